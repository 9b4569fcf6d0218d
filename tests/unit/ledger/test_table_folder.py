"""A table's folder on this machine answers as delta-rs's file system does, and needs no pyarrow."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from kdi_assets.delta.storage import TableFolder, names_in
from kdi_assets.delta.versions import LatestVersions
from tests.table_by_hand import TableByHand, data_file

LOOKS = """
import sys
from kdi_assets.delta.log import TableLog

log = TableLog.existing(sys.argv[1])
log.refuse_empty_commits()
log.commit(0), log.commit_files(), log.checkpoint, log.missing_files(["part-0.parquet"]), log.has_change_files(1)
print({"numpy", "pandas", "pyarrow"} & sys.modules.keys())
"""


@pytest.fixture
def table(lake: str) -> Path:
    """A table with three commits, two data files, and a folder in its log."""
    table = TableByHand(lake)
    for number in range(2):
        table.commit(data_file(number, table.now.date(), rows=1), ago=timedelta())
        (table.log.parent / f"part-{number}.parquet").write_bytes(b"x" * number)
    (table.log / "_sidecars").mkdir()
    return table.log.parent


@pytest.fixture
def both(table: Path) -> tuple[TableFolder, TableFolder]:
    """The folder as this machine has it, and as delta-rs reads it from a storage with a scheme."""
    remote = TableFolder(f"file://{table}")
    remote._local = None  # otherwise it would be read like the other one
    return TableFolder(str(table)), remote


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_folder_of_this_machine_is_found_however_its_address_is_written(table: Path, scheme: str) -> None:
    uri = f"{scheme}{table}"

    newest = LatestVersions().of(uri, since=0)

    assert len(TableFolder(uri).log_files()) == 4
    assert sorted(names_in(uri)) == ["_delta_log", "part-0.parquet", "part-1.parquet"]
    assert newest and newest.version == 2


def test_the_files_of_a_log_have_the_same_names_and_times(both: tuple[TableFolder, TableFolder]) -> None:
    here, remote = ({f.name: f.written for f in folder.log_files() if f.name[0] != "_"} for folder in both)

    assert len(here) == 3
    assert here.keys() == remote.keys()
    assert all(abs(here[name] - remote[name]) < timedelta(milliseconds=1) for name in here)


def test_a_file_has_a_size_and_neither_a_folder_nor_what_is_missing_has_one(
    both: tuple[TableFolder, TableFolder],
) -> None:
    paths = ["part-0.parquet", "part-1.parquet", "_delta_log", "part-2.parquet"]

    here, remote = (folder.sizes(paths) for folder in both)

    assert here == remote == [0, 1, None, None]


def test_a_file_is_read_and_a_missing_one_is_an_error(both: tuple[TableFolder, TableFolder]) -> None:
    here, remote = (folder.read("_delta_log/00000000000000000001.json") for folder in both)

    assert here == remote != b""
    for folder in both:
        with pytest.raises(FileNotFoundError):
            folder.read("_delta_log/00000000000000000009.json")


@pytest.mark.parametrize("folder", ["empty", "gone", "a b"])
def test_a_folder_without_a_log_has_no_log_files_and_one_by_its_uri_is_the_same_folder(
    tmp_path: Path, folder: str
) -> None:
    if folder != "gone":
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "probe").write_bytes(b"read")

    for uri in (str(tmp_path / folder), (tmp_path / folder).as_uri()):
        assert TableFolder(uri).log_files() == []
        assert TableFolder(uri).sizes(["probe"]) == [None if folder == "gone" else 4]


def test_what_a_drain_asks_of_a_log_on_this_machine_loads_no_pyarrow(table: Path) -> None:
    """It loads numpy too: together more than what a small drain plans."""
    asked = subprocess.run([sys.executable, "-c", LOOKS, table], capture_output=True, text=True, check=True, timeout=60)

    assert asked.stdout == "set()\n"
