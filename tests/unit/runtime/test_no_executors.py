"""What a job that waited in vain for an executor becomes."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kdi_assets.follow.refine.spark_errors import spark_failures as of_refinement
from kdi_assets.follow.serve.postgres.staging import reading_failures as of_serving
from kdi_assets.messages.formats.files.decoder import FilesDecoder
from kdi_assets.messages.formats.files.names import NamedFiles
from kdi_assets.operate.erase.erase import erase
from kdi_assets.operate.erase.selection import EraseFilter
from kdi_assets.operate.upkeep import old_letters
from kdi_assets.operate.upkeep.errors import EraseUnfinished
from kdi_assets.operate.upkeep.errors import spark_failures as of_upkeep
from kdi_assets.runtime import executors
from kdi_assets.runtime.errors import NoExecutors
from kdi_assets.streams.rules import files
from kdi_assets.streams.spark_errors import jvm_loss_named
from kdi_assets.streams.spark_errors import spark_failures as of_drain
from tests.judged import stream_of

STREAM = stream_of("id int")
FILES, ERASE = files.__name__, "kdi_assets.operate.erase.erase"
NO_SESSION: Any = SimpleNamespace(sparkSession=None)
FAILURES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "drain": lambda: of_drain(STREAM, "writing files"),
    "drain, between its steps": lambda: jvm_loss_named(STREAM),
    "refinement": lambda: of_refinement("silver/t", "writing rows"),
    "upkeep": lambda: of_upkeep("bronze/t", "VACUUM"),
    "serving": lambda: of_serving("postgres/public/t"),
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, int, str]]:
    """What the kernel is asked for: both waits in seconds, and the reason that it gives when it cancels a job."""

    def by(master: str, **conf: str) -> tuple[int, int, str]:
        asked: list[tuple[int, int, str]] = []
        monkeypatch.setattr(executors, "cancel_without_executor", lambda session, *said: asked.append(said))
        context = SimpleNamespace(master=master, applicationId="application_7", getConf=lambda: conf)
        session: Any = SimpleNamespace(sparkContext=context)
        executors.bound_waits(session)
        (only,) = asked
        return only

    return by


@pytest.fixture
def cancelled(asked: Callable[..., tuple[int, int, str]]) -> Callable[..., str]:
    """What Spark says of a job that was cancelled on a cluster."""

    def by(
        master: str,
        namespace: str = "lake",
        said: str = "x-exec-1 has no node: 0/3 nodes are available: 3 Insufficient memory.",
    ) -> str:
        seconds, _, reason = asked(master, **{"spark.kubernetes.namespace": namespace})
        said = reason % (seconds, said)
        return f"SparkException: [SPARK_JOB_CANCELLED] Job 3 cancelled {said} SQLSTATE: XXKDA"

    return by


@pytest.mark.parametrize(("conf", "again"), [({}, 30), ({"spark.dynamicAllocation.enabled": "true"}, 300)])
def test_jobs_after_one_in_vain_wait_briefly_only_if_the_driver_goes_on_asking(
    asked: Callable[..., tuple[int, int, str]], conf: dict[str, str], again: int
) -> None:
    """Purpose: with dynamic allocation a cancelled job takes back what the driver asked the cluster for."""
    assert asked("yarn", **conf)[:2] == (300, again)


@pytest.mark.parametrize("failures", FAILURES.values(), ids=FAILURES)
def test_whatever_needs_spark_gets_the_same_error(
    failures: Callable[[], AbstractContextManager[None]], cancelled: Callable[..., str]
) -> None:
    with pytest.raises(NoExecutors) as refused, failures():
        raise OSError(cancelled("spark://100%25.example:7077"))

    assert refused.value.master == "spark://100%25.example:7077"
    assert (refused.value.application, refused.value.seconds) == ("application_7", 300)


@pytest.mark.parametrize("before", [[], ["FAILED_READ_FILE.NO_HINT"]], ids=["all files", "one file alone"])
def test_a_first_pass_over_files_gets_it_too_and_blames_none(
    monkeypatch: pytest.MonkeyPatch, cancelled: Callable[..., str], before: list[str]
) -> None:
    said = iter([*before, cancelled("yarn")])

    def numbered_rows(*_: Any) -> None:
        raise OSError(next(said))

    decoder: Any = SimpleNamespace(
        payload_decoder=object.__new__(FilesDecoder), stream=SimpleNamespace(name="t", of_file_rows=None)
    )
    message = SimpleNamespace(is_read=True, named=NamedFiles(("/lake/a.parquet",)))
    monkeypatch.setattr(f"{FILES}._Reading._messages", lambda *_: [message])
    monkeypatch.setattr(f"{FILES}._Reading._look", lambda *_: {})
    monkeypatch.setattr(f"{FILES}.stream_decoder", lambda *_: None)
    monkeypatch.setattr(f"{FILES}.numbered_rows", numbered_rows)

    with pytest.raises(NoExecutors):
        files.knowing_files(NO_SESSION, decoder, now=datetime.now(UTC))


def test_the_removal_of_old_letters_gets_it_too(
    monkeypatch: pytest.MonkeyPatch, cancelled: Callable[..., str], tmp_path: Path
) -> None:
    monkeypatch.setattr(old_letters, "TableLog", SimpleNamespace(open=lambda uri: uri))
    monkeypatch.setattr(old_letters, "until_won", failing_with(cancelled("yarn")))
    monkeypatch.setattr(old_letters, "delta_log", lambda *_: None)

    with pytest.raises(NoExecutors):
        old_letters.delete_letters(NO_SESSION, STREAM, str(tmp_path), [], before=date(2026, 3, 1))


def test_an_erasure_without_executors_says_what_is_safe_and_how_it_goes_on(
    monkeypatch: pytest.MonkeyPatch, cancelled: Callable[..., str], tmp_path: Path
) -> None:
    """Purpose: its rows have left the table, so "the same command again" would find nothing to erase."""
    found = SimpleNamespace(is_nothing=False, letter_records=1, removed_rows=0)
    selected = nullcontext((SimpleNamespace(spark=None, stream=STREAM, lake=str(tmp_path), ledger=None), found))
    for name in ("_newest_ledger", "history_at", "_report", "_commit", "delta_log"):
        monkeypatch.setattr(f"{ERASE}.{name}", lambda *_: None)
    monkeypatch.setattr(f"{ERASE}._selected", lambda *_: selected)
    monkeypatch.setattr(f"{ERASE}.delete_letters", failing_with(cancelled("yarn")))

    with pytest.raises(EraseUnfinished) as refused:
        erase(STREAM, lake=str(tmp_path), session=lambda: NO_SESSION, chosen=EraseFilter("true"))

    happened, safe, run = refused.value.message_parts()
    assert re.search(r": yarn gave Spark no executor within 300 s: the queue has no room [^{}]*$", happened)
    assert "no replay and no list shows these messages" in safe
    assert run.startswith("kdi erase bronze/t --again --because WHY --yes ")


def failing_with(said: str) -> Callable[..., None]:
    """A step whose job was cancelled."""

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(said)

    return fail


@pytest.mark.parametrize(
    ("master", "said"),
    [
        ("local-cluster[2,1,1024]", "the cluster has no room"),
        ("spark://host:7077", "no worker is alive.*(?s:.)*spark.cores.max"),
        ("yarn", "the queue has no room.*(?s:.)*yarn application -status application_7"),
        (
            "k8s://https://api",
            "in the namespace lake, x-exec-1 .* 3 Insufficient memory\\.\n(?s:.)*kdi doctor; kubectl",
        ),
    ],
)
def test_the_error_says_where_to_look(cancelled: Callable[..., str], master: str, said: str) -> None:
    with (
        pytest.raises(NoExecutors, match=f"{re.escape(master)} gave Spark no executor within 300 s: {said}"),
        FAILURES["drain"](),
    ):
        raise OSError(cancelled(master))


def test_the_longest_names_and_words_of_kubernetes_are_read_whole(cancelled: Callable[..., str]) -> None:
    """Purpose: of an exception of Spark's so much is kept; a reason that is cut would be no error of executors."""
    host, namespace, said = ("h" * 253, "n" * 63, "x" * 200)

    with pytest.raises(NoExecutors) as refused, FAILURES["drain"]():
        raise OSError(cancelled(f"k8s://https://{host}:65535", namespace, said))

    assert (refused.value.namespace, refused.value.said) == (namespace, said)


def test_other_cancelled_jobs_are_what_they_were() -> None:
    assert executors.no_executors("[SPARK_JOB_CANCELLED] Job 3 cancelled its client, process 7, has gone") is None
