"""Progress of long work: what a watch shows of steps, from their own counts and from Spark's tasks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from kdi_assets.runtime.progress import WorkStep, announced
from kdi_assets.runtime.step_watch import HowFar, LogLines, StepWatch


@dataclass
class Shown:
    """What was shown, as a log has it; ``None``: the line was cleared."""

    lines: list[str | None] = field(default_factory=list)

    def show(self, now: HowFar) -> None:
        LogLines(self.lines.append).show(now)

    def clear(self) -> None:
        self.lines.append(None)


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


class Option:
    def __init__(self, value: object = None) -> None:
        self._value = value

    def isDefined(self) -> bool:
        return self._value is not None

    def get(self) -> object:
        return self._value


def spark(*, ours: Sequence[int], running: Sequence[int], stages: dict[int, dict[int, tuple[int, int]]]) -> Any:
    """A session whose tracker knows jobs: by job its stages, and of each the tasks that have ended and all."""
    of_stage = {number: counts for by_stage in stages.values() for number, counts in by_stage.items()}
    tracker = SimpleNamespace(
        getJobIdsForTag=lambda tag: list(ours) if tag == "ours" else [],
        getActiveJobIds=lambda: list(running),
        getJobInfo=lambda job: Option(SimpleNamespace(stageIds=lambda: list(stages[job])) if job in stages else None),
        getStageInfo=lambda stage: Option(
            SimpleNamespace(
                numCompletedTasks=lambda: of_stage[stage][0],
                numTasks=lambda: of_stage[stage][1],
            )
        ),
    )
    jvm = SimpleNamespace(java=SimpleNamespace(util=SimpleNamespace(Arrays=SimpleNamespace(toString=str))))
    context = SimpleNamespace(sc=lambda: SimpleNamespace(statusTracker=lambda: tracker))
    return SimpleNamespace(
        _jvm=jvm,
        _jsparkSession=SimpleNamespace(sessionJobTag=lambda: "ours"),
        sparkContext=SimpleNamespace(_jsc=context),
    )


def test_a_step_with_a_total_shows_how_many_the_rate_and_the_time_left() -> None:
    shown, clock, done = Shown(), Clock(), [0]
    watch = StepWatch(shown, every=1.0, clock=clock)
    step = WorkStep(name="bronze/orders", doing="reading", total=1_000_000, done=lambda: done[0])

    watch.begin(step)
    watch.look()
    clock.now, done[0] = 110.0, 200_000
    watch.look()
    watch.end(step, None)

    assert shown.lines == [
        "bronze/orders: reading: 0 of 1,000,000 offsets",
        "bronze/orders: reading: 200,000 of 1,000,000 offsets, 20,000 a second, about 40 s left",
        None,
    ]


def test_the_rate_is_that_of_the_last_half_minute() -> None:
    shown, clock, done = Shown(), Clock(), [0]
    watch = StepWatch(shown, every=1.0, clock=clock)
    watch.begin(WorkStep(doing="reading", unit="row", done=lambda: done[0]))

    for seconds, rows in ((60, 60), (90, 3_060), (120, 6_060)):
        clock.now, done[0] = 100.0 + seconds, rows
        watch.look()

    assert shown.lines == [
        "reading: 60 rows, 1 a second",
        "reading: 3,060 rows, 100 a second",
        "reading: 6,060 rows, 100 a second",
    ]


def test_sparks_tasks_are_those_of_running_jobs_of_the_own_session() -> None:
    shown = Shown()
    session = spark(ours=[1, 2], running=[2, 7], stages={1: {1: (9, 9)}, 2: {3: (4, 4), 4: (8, 96)}, 7: {5: (1, 1000)}})
    watch = StepWatch(shown, spark=lambda: session, every=1.0)

    watch.begin(WorkStep(name="silver/orders", doing="writing rows"))
    watch.look()

    assert shown.lines == ["silver/orders: writing rows: 12 of 100 tasks"]


def test_without_a_running_job_the_seconds_are_shown() -> None:
    shown, clock = Shown(), Clock()
    watch = StepWatch(shown, spark=lambda: spark(ours=[1], running=[], stages={}), every=1.0, clock=clock)

    watch.begin(WorkStep(doing="starting Spark"))
    clock.now += 75
    watch.look()

    assert shown.lines == ["starting Spark: 1 min 15 s"]


def test_the_innermost_step_is_shown_by_the_name_around_it_and_then_the_outer_one_goes_on() -> None:
    shown, clock = Shown(), Clock()
    watch = StepWatch(shown, every=1.0, clock=clock)
    outer, inner = WorkStep(name="bronze/orders", doing="exchanging rows"), WorkStep(doing="committing", commits=True)

    watch.begin(outer)
    clock.now += 10
    watch.begin(inner)
    clock.now += 2
    watch.look()
    watch.end(inner, None)
    watch.look()

    assert shown.lines == ["bronze/orders: committing: 2 s", None, "bronze/orders: exchanging rows: 12 s"]
    assert watch.commits == 1


def test_a_step_that_does_not_count_shows_the_count_of_the_step_around_it() -> None:
    shown, clock, done = Shown(), Clock(), [3]
    watch = StepWatch(shown, every=1.0, clock=clock)
    watch.begin(WorkStep(name="bronze/orders", doing="compacting", total=12, unit="date", done=lambda: done[0]))
    watch.begin(WorkStep(doing="compacting 2026-01-31", commits=True))

    clock.now += 6
    watch.look()

    assert shown.lines == ["bronze/orders: compacting 2026-01-31: 3 of 12 dates, about 18 s left"]


def test_an_interrupted_step_is_known_and_a_failed_commit_does_not_count() -> None:
    watch = StepWatch(None, every=1.0)

    with (
        pytest.raises(KeyboardInterrupt),
        watch.watching(),
        announced(WorkStep(name="bronze/orders", doing="exchanging")),
    ):
        with pytest.raises(ValueError), announced(WorkStep(doing="committing", commits=True)):
            raise ValueError
        with announced(WorkStep(doing="writing")):
            raise KeyboardInterrupt

    assert watch.interrupted == (WorkStep(doing="writing"), "bronze/orders")
    assert watch.commits == 0


def test_a_watch_looks_again_and_again_and_what_it_cannot_ask_does_not_disturb_the_work() -> None:
    seen, asked = threading.Event(), []

    def done() -> int:
        asked.append(threading.current_thread().name)
        if len(asked) == 1:
            raise ConnectionError("the JVM has ended")
        return 7

    def write(line: str) -> None:
        if line.startswith("jars: fetching: 7 jars"):
            seen.set()

    with StepWatch(LogLines(write), every=0.001).watching():
        with announced(WorkStep(name="jars", doing="fetching", unit="jar", done=done)):
            assert seen.wait(20)

    assert set(asked) == {"progress"}
    assert [thread.name for thread in threading.enumerate() if thread.name == "progress"] == []


def test_without_a_listener_a_step_is_only_its_body() -> None:
    asked: list[str] = []

    with pytest.raises(ZeroDivisionError), announced(WorkStep(doing="writing", done=lambda: len(asked))):
        asked.append("the body")
        asked[1 // 0]

    assert asked == ["the body"]


def test_a_terminal_that_is_gone_does_not_fail_the_work_that_is_done() -> None:
    class Gone(Shown):
        def clear(self) -> None:
            raise OSError("the terminal is gone")

    watch, step = StepWatch(Gone(), every=1.0), WorkStep(doing="committing", commits=True)
    watch.begin(step)

    watch.end(step, None)

    assert watch.commits == 1
