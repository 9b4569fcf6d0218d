"""Executors on other machines: who they are, and what they get."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark import SparkConf

from kdi_assets.runtime.cluster import JARS, refuse_unshared_lake, runs_here, send_jars
from kdi_assets.runtime.environment import whoami
from kdi_assets.runtime.errors import ContextDidNotStart, FolderNotWritable, LakeNotShared


def conf(**values: str) -> SparkConf:
    return SparkConf(loadDefaults=False).setAll([(f"spark.{name}", value) for name, value in values.items()])


@pytest.mark.parametrize(
    ("master", "here"),
    [
        ("local", True),
        ("local[2]", True),
        ("local[*]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://master:7077", False),
        ("yarn", False),
        ("k8s://https://kubernetes.default.svc", False),
        (None, False),
    ],
)
def test_only_a_local_master_runs_tasks_in_the_drivers_jvm(master: str | None, here: bool) -> None:
    assert runs_here(master) is here


def test_executors_get_our_jars_beside_those_of_sparks_own_configuration() -> None:
    own, none = conf(jars="/own.jar"), conf()

    send_jars(own, [Path("/a.jar"), Path("/b.jar"), Path("/janino-3.1-unsigned.jar")])
    send_jars(none, [Path("/a.jar")])

    assert own.get(JARS) == "/a.jar,/b.jar,/own.jar"
    assert none.get(JARS) == "/a.jar"


class Untouched:
    """A session that remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        raise AttributeError(name)


def test_only_a_lake_that_is_a_folder_is_looked_at_by_an_executor(tmp_path: Path) -> None:
    session = Untouched()

    for lake in ("s3://bucket/lake", "abfss://lake@account.dfs.core.windows.net/"):
        refuse_unshared_lake(cast(Any, session), lake)
    asked_of_storage = list(session.asked)
    with pytest.raises(AttributeError):
        refuse_unshared_lake(cast(Any, session), str(tmp_path))

    assert not asked_of_storage
    assert session.asked
    assert not list(tmp_path.iterdir()), "the probe is left behind"


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_an_executor_is_asked_for_the_file_that_was_written_whatever_the_folders_name(
    tmp_path: Path, scheme: str
) -> None:
    """Purpose: Hadoop takes a URI as it is written, so that an escaped one names a folder that nobody has."""
    lake, seen = tmp_path / "la ke ä", list[bool]()

    def text(uri: str) -> Any:
        seen.append(Path(uri.removeprefix("file://")).is_file())
        return SimpleNamespace(count=lambda: 1)

    refuse_unshared_lake(cast(Any, SimpleNamespace(read=SimpleNamespace(text=text))), f"{scheme}{lake}")

    assert seen == [True]


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("FileNotFoundException: File {file} does not exist", LakeNotShared),
        ("[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file {file}.", LakeNotShared),
        ("SparkException: Job 0 cancelled because SparkContext was shut down", ContextDidNotStart),
        ("FileNotFoundException: /local/blockmgr-7/0d/temp (No such file or directory)", ContextDidNotStart),
        ("FileNotFoundException: {file} (Permission denied)", LakeNotShared),
    ],
)
def test_a_lake_is_refused_only_if_an_executor_looked_and_did_not_find_its_file(
    tmp_path: Path, said: str, error: type[Exception]
) -> None:
    """Purpose: a driver that lost its JVM or its executors must not ask for another lake; a retry may help."""

    def text(file: str) -> Any:
        raise OSError(said.format(file=file))

    session = SimpleNamespace(read=SimpleNamespace(text=text), sparkContext=SimpleNamespace(master="yarn"))
    with pytest.raises(Exception, match=r"\w") as raised:
        refuse_unshared_lake(cast(Any, session), str(tmp_path))

    assert type(raised.value) is error
    assert not list(tmp_path.iterdir()), "the probe is left behind"


def test_a_lake_that_the_driver_cannot_write_names_the_folder_and_the_user(tmp_path: Path) -> None:
    lake = tmp_path / "file" / "lake"
    lake.parent.write_text("no folder")

    with pytest.raises(FolderNotWritable, match=f"{lake}.*\n.*\n.*once user {whoami()} can"):
        refuse_unshared_lake(cast(Any, Untouched()), str(lake))
