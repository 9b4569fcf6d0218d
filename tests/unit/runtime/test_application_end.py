"""What a failure becomes once the cluster has ended Spark's application."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kdi_assets.cli.errors import StatementInterrupted
from kdi_assets.errors import KdiError
from kdi_assets.operate.upkeep.errors import EraseUnfinished
from kdi_assets.runtime import application_end
from kdi_assets.runtime.application_end import ended_application
from kdi_assets.runtime.errors import ApplicationEnded, DriverGone
from kdi_assets.runtime.spark import driver_loss_named
from tests.unit.runtime.test_no_executors import FAILURES

KILLED = "KILLED: Application application_7 was killed by user lake"
STOPPED = "IllegalStateException: Cannot call methods on a stopped SparkContext."


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets the application of this process have ended on a master; YARN says ``KILLED``."""

    def on(master: str) -> None:
        context = SimpleNamespace(master=master, applicationId="application_7")
        monkeypatch.setattr(application_end, "ended_context", lambda: context)
        monkeypatch.setattr(application_end, "what_yarn_says", {"application_7": KILLED}.__getitem__)

    return on


@pytest.mark.parametrize("failures", FAILURES.values(), ids=FAILURES)
def test_whatever_fails_then_says_what_yarn_says(
    failures: Callable[[], AbstractContextManager[None]], ended: Callable[[str], None]
) -> None:
    ended("yarn")

    with pytest.raises(ApplicationEnded) as refused, failures():
        raise OSError(STOPPED)

    happened, safe, run = refused.value.message_parts()
    assert happened == f"Spark's application application_7 ended on yarn: {KILLED}"
    assert "there as a whole or not at all" in safe
    assert "yarn logs -applicationId application_7" in run


def test_other_clusters_are_not_asked(ended: Callable[[str], None]) -> None:
    ended("spark://host:7077")

    assert str(ended_application()).startswith("Spark's application application_7 ended on spark://host:7077.\n")


def test_a_process_without_spark_has_no_application_that_could_have_ended() -> None:
    assert ended_application() is None


@pytest.mark.parametrize(("said", "reason"), [(KILLED, f": Spark's application a ended on yarn: {KILLED}"), ("", "")])
def test_the_loss_of_a_warm_driver_has_yarns_reason_and_no_other(said: str, reason: str) -> None:
    """Purpose: a driver that is stopped ends its application too, and then nobody has to be told of the application."""
    with pytest.raises(DriverGone) as gone, driver_loss_named(session_of_ended_driver()):
        raise ApplicationEnded(master="yarn", application="a", said=said)

    assert gone.value.reason == f"it ended while this process was attached{reason}"


@pytest.mark.parametrize(
    "failure",
    [EraseUnfinished(stream="web", table="/web_dead_letters", detail="lost"), StatementInterrupted(detail="lost")],
    ids=lambda failure: type(failure).__name__,
)
def test_an_error_by_which_the_same_command_must_not_follow_stays_when_the_driver_has_ended(failure: KdiError) -> None:
    """Purpose: the rows have left the table: the same erasure would find nothing, and leave their dead letters."""
    with pytest.raises(type(failure)) as raised, driver_loss_named(session_of_ended_driver()):
        raise failure

    assert raised.value is failure


def session_of_ended_driver() -> Any:
    """The session of a process whose warm driver has ended."""
    connection = SimpleNamespace(folder=Path("/home"), driver_ended=lambda: True)
    return SimpleNamespace(sparkContext=SimpleNamespace(connection=connection))
