"""`kdi import-kdi`: command lines of kafka-delta-ingest become documents that load, or the reason why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdi_assets.config.loader import read_streams
from tests.predecessor_calls import CALLS, Call, write_tables
from tests.typed import Kdi, typed

every_call = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)


@pytest.fixture
def kdi(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Kdi:
    """Runs `kdi import-kdi` in this process and in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KDI_LAKE", raising=False)
    (tmp_path / "defs").mkdir()
    return typed(monkeypatch, capsys, "import-kdi", "--defs", "defs")


def prepared(call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tables(folder, call.table)
    for name, text in call.files.items():
        (folder / name).write_text(text)
    for name, value in call.variables.items():
        monkeypatch.setenv(name, value)


@every_call
def test_a_call_becomes_documents_that_load_or_a_named_reason(
    call: Call, kdi: Kdi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(call, tmp_path, monkeypatch)

    shown = kdi(*call.words)
    files_of_a_dry_run = list((tmp_path / "defs").rglob("*"))
    written = kdi("--yes", *call.words)

    assert files_of_a_dry_run == []
    text = {path.parent.name: path.read_text() for path in (tmp_path / "defs").rglob("defs.yaml")}
    assert shown.code == written.code == (0 if call.stream else 1), shown.err
    assert [said for said in call.said if said not in shown.out + shown.err] == []
    stream = "\n".join(text.pop(name) for name in list(text) if name not in ("kafka", "registry"))
    wanted = [line.replace("HERE", str(tmp_path)) for line in call.stream]
    assert [line for line in wanted if line not in stream] == []
    assert [line for line in call.cluster if line not in "\n".join(text.values())] == []
    assert "hunter2" not in stream + "".join(text.values()) + shown.out + shown.err
    loaded = read_streams(tmp_path / "defs")
    assert (loaded.mistakes, len(loaded.streams)) == ([], 1 if call.stream else 0)
