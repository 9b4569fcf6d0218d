"""Progress in the log of a Dagster run."""

from __future__ import annotations

import threading

import pytest

from kdi_assets.resources.spark import SparkResource
from kdi_assets.runtime.progress import WorkStep, announced


def test_a_run_logs_how_far_it_is_and_nothing_after_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdi_assets.resources.spark.LOG_SECONDS", 0.001)
    lines: list[str] = []
    logged = threading.Event()

    def log(line: str) -> None:
        lines.append(line)
        logged.set()

    step = WorkStep(name="bronze/orders", doing="reading messages", total=10, done=lambda: 5)
    with SparkResource().watched(log), announced(step):
        assert logged.wait(20)
    at_the_end = len(lines)

    assert lines[0].startswith("bronze/orders: reading messages: 5 of 10 offsets")
    with announced(step):
        pass
    assert len(lines) == at_the_end


def test_a_short_run_logs_no_progress() -> None:
    lines: list[str] = []

    with SparkResource().watched(lines.append), announced(WorkStep(doing="writing rows")):
        pass

    assert lines == []
