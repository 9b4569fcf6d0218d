"""What a job that waited in vain for an executor becomes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

import pytest

from kdi_assets.follow.refine.spark_errors import spark_failures as of_refinement
from kdi_assets.follow.serve.postgres.staging import reading_failures as of_serving
from kdi_assets.operate.upkeep.errors import spark_failures as of_upkeep
from kdi_assets.runtime import executors
from kdi_assets.runtime.errors import NoExecutors
from kdi_assets.streams.spark_errors import jvm_loss_named
from kdi_assets.streams.spark_errors import spark_failures as of_drain
from tests.judged import stream_of

STREAM = stream_of("id int")
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
def cancelled(asked: Callable[..., tuple[int, int, str]]) -> Callable[[str], str]:
    """What Spark says of a job that was cancelled on a cluster."""

    def by(master: str) -> str:
        seconds, _, reason = asked(master, **{"spark.kubernetes.namespace": "lake"})
        return f"SparkException: [SPARK_JOB_CANCELLED] Job 3 cancelled {reason % seconds} SQLSTATE: XXKDA"

    return by


@pytest.mark.parametrize(("conf", "again"), [({}, 30), ({"spark.dynamicAllocation.enabled": "true"}, 300)])
def test_jobs_after_one_in_vain_wait_briefly_only_if_the_driver_goes_on_asking(
    asked: Callable[..., tuple[int, int, str]], conf: dict[str, str], again: int
) -> None:
    """Purpose: with dynamic allocation a cancelled job takes back what the driver asked the cluster for."""
    assert asked("yarn", **conf)[:2] == (300, again)


@pytest.mark.parametrize("failures", FAILURES.values(), ids=FAILURES)
def test_whatever_needs_spark_gets_the_same_error(
    failures: Callable[[], AbstractContextManager[None]], cancelled: Callable[[str], str]
) -> None:
    with pytest.raises(NoExecutors) as refused, failures():
        raise OSError(cancelled("spark://100%25.example:7077"))

    assert refused.value.master == "spark://100%25.example:7077"
    assert (refused.value.application, refused.value.seconds) == ("application_7", 300)


@pytest.mark.parametrize(
    ("master", "said"),
    [
        ("spark://host:7077", "no worker is alive.*(?s:.)*spark.cores.max"),
        ("yarn", "the queue has no room.*(?s:.)*yarn application -status application_7"),
        ("k8s://https://api", "a quota of the namespace lake.*(?s:.)*spark-app-selector=application_7"),
    ],
)
def test_the_error_says_where_to_look(cancelled: Callable[[str], str], master: str, said: str) -> None:
    with pytest.raises(NoExecutors, match=f"{master} gave Spark no executor within 300 s: {said}"), FAILURES["drain"]():
        raise OSError(cancelled(master))


def test_other_cancelled_jobs_are_what_they_were() -> None:
    assert executors.no_executors("[SPARK_JOB_CANCELLED] Job 3 cancelled its client, process 7, has gone") is None
