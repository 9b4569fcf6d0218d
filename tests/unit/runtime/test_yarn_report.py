"""What YARN's report of an application that has ended says, or leaves unsaid; of a client of YARN that is not there."""

from __future__ import annotations

from threading import Event
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JNetworkError

from kdi_assets.runtime import yarn
from kdi_assets.runtime.yarn import what_yarn_says


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Any:
    """YARN's client in the JVM of this process."""
    gateway = MagicMock()
    monkeypatch.setattr(yarn, "current_gateway", lambda: gateway)
    return gateway.jvm.org.apache.hadoop.yarn.client.api.YarnClient.createYarnClient.return_value


def reports(client: Any, status: str, diagnostics: str | None) -> None:
    report = client.getApplicationReport.return_value
    report.getFinalApplicationStatus.return_value, report.getDiagnostics.return_value = status, diagnostics


@pytest.mark.parametrize(
    ("status", "diagnostics", "said"),
    [
        ("KILLED", "killed by user lake", "KILLED: killed by user lake"),
        ("FAILED", "", "FAILED: "),
        ("SUCCEEDED", "Shutdown hook called", "SUCCEEDED: Shutdown hook called"),
        ("SUCCEEDED", "", ""),
        ("UNDEFINED", "", ""),
        ("UNDEFINED", None, ""),
    ],
)
def test_an_end_of_which_yarn_knows_no_reason_has_none(
    client: Any, status: str, diagnostics: str | None, said: str
) -> None:
    """Purpose: a driver that somebody stops ends its application too, and that is not the application's failure."""
    reports(client, status, diagnostics)

    assert what_yarn_says("application_7") == said


def test_a_jvm_that_has_ended_is_not_what_yarn_says(client: Any) -> None:
    client.getApplicationReport.side_effect = Py4JNetworkError("Answer from Java side is empty")

    assert what_yarn_says("application_7") == ""


def test_that_yarn_does_not_answer_in_time_is_no_reason(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    never = Event()
    client.getApplicationReport.side_effect = lambda application: never.wait()
    monkeypatch.setattr(yarn, "ANSWER_SECONDS", 0.01)

    assert what_yarn_says("application_7") == ""
    never.set()
