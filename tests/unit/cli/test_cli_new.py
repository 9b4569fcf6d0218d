"""`kdi new` without a sample: what happened, what is safe, what to run next; and no file is made."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.documents import CLUSTER, stream, written
from tests.typed import Kdi, typed

CHECKOUT = Path(__file__).parents[3]


@pytest.fixture
def defs(tmp_path: Path) -> Path:
    """Folder of the documents: a cluster that does not answer, and a stream."""
    return written(tmp_path / "defs", kafka=CLUSTER.replace("localhost:9092", "127.0.0.1:1"), t=stream("bronze/t"))


@pytest.fixture
def kdi(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Kdi:
    """Runs `kdi new` in this process."""
    monkeypatch.setenv("KDI_DEFS", str(tmp_path / "defs"))
    for module in ("topic", "client"):
        monkeypatch.setattr(f"kdi_assets.messages.kafka.{module}.REQUEST_SECONDS", 0.3)  # nobody answers later either
    return typed(monkeypatch, capsys, "new")


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("clusters", "said"),
    [((), "no document describes one; KDI_KAFKA=host:9092 does"), (("west", "east"), "east, west")],
)
def test_no_cluster_is_guessed(kdi: Kdi, tmp_path: Path, clusters: tuple[str, ...], said: str) -> None:
    written(tmp_path / "defs", t=stream("bronze/t"), **{name: CLUSTER.replace("main", name) for name in clusters})
    answer = kdi("orders")

    assert answer.code == 2
    assert f"which cluster? {said}" in re.sub(r"[\s│]+", " ", answer.err)


def test_a_broker_that_does_not_answer_is_worth_a_retry(kdi: Kdi, defs: Path) -> None:
    before = files(defs)
    answer = kdi("orders", "--json")

    assert answer.code == 75
    error = json.loads(answer.out)["error"]
    assert (error["type"], error["retry_helps"]) == ("BrokerUnreachable", True)
    assert "no answer from 127.0.0.1:1" in error["happened"]
    assert files(defs) == before


def test_a_document_that_is_there_is_not_touched(kdi: Kdi, defs: Path) -> None:
    before = (defs / "t" / "defs.yaml").read_text()
    answer = kdi("t", "--table", "silver/t")

    assert answer.code == 1
    assert "t/defs.yaml exists already and stays as it is.\n  Safe: nothing was written" in answer.err
    assert "kdi new t --stdout" in answer.err
    assert (defs / "t" / "defs.yaml").read_text() == before


def test_below_a_document_that_ends_the_search_nothing_is_written(kdi: Kdi, defs: Path) -> None:
    (defs / "defs.yaml").write_text(CLUSTER)
    answer = kdi("orders")

    assert answer.code == 1
    assert "defs/defs.yaml ends the search for documents, so none below its folder would be loaded." in answer.err
    assert not (defs / "orders").exists()


def test_no_document_is_written_into_the_package(kdi: Kdi, monkeypatch: pytest.MonkeyPatch, defs: Path) -> None:
    """A checkout without `KDI_DEFS` has the documents of the demo."""
    monkeypatch.delenv("KDI_DEFS")
    monkeypatch.setenv("KDI_KAFKA", "127.0.0.1:1")
    before = files(CHECKOUT / "kdi_assets" / "defs")

    answer = kdi("orders")

    assert answer.code == 1
    assert "kdi_assets/defs belongs to the package: its documents are those of the demo" in answer.err
    assert "export KDI_DEFS=$PWD/defs; mkdir -p defs; kdi new orders" in answer.err
    assert files(CHECKOUT / "kdi_assets" / "defs") == before
