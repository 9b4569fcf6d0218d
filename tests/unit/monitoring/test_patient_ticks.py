"""A tick that finds nothing goes on looking, and ends as soon as there is something to request, to log or to say."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg
import pytest

from kdi_assets.resources import reload
from kdi_assets.resources.reload import end_ticks
from kdi_assets.sensors import waiting
from kdi_assets.sensors.waiting import PatientTick

IDLE = "nothing due; no backlog"
OURS = {"use_threads": True, "num_workers": 16}
FOUND = dg.SensorResult(run_requests=[dg.RunRequest()], cursor="found")
LOGGED = dg.SensorResult(skip_reason=IDLE, asset_events=[dg.AssetMaterialization("t")])


@dataclass
class Context:
    """As much of Dagster's context as ticks use, with the settings of ``sensors`` in dagster.yaml."""

    sensors: dict[str, Any] = field(default_factory=lambda: OURS)
    cursor: str | None = "0"
    last_tick_completion_time: float | None = 1.0

    @property
    def instance(self) -> Context:
        return self

    def get_sensor_settings(self) -> dict[str, Any]:
        return self.sensors


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 0.01)


def nothing(cursor: str | None) -> dg.SensorResult:
    return dg.SensorResult(skip_reason=IDLE, cursor=f"{int(cursor or 0) + 1}")


def ticked(look: Callable[[str | None], dg.SensorResult], context: Context | None = None) -> dg.SensorResult:
    return PatientTick(IDLE)(look, cast("dg.SensorEvaluationContext", context or Context()))


@pytest.mark.parametrize("last", [FOUND, LOGGED, dg.SensorResult(skip_reason="due: bronze/orders"), dg.SensorResult()])
def test_a_look_that_finds_something_ends_the_tick_and_each_goes_on_from_the_cursor_before(
    last: dg.SensorResult,
) -> None:
    cursors: list[str | None] = []

    def look(cursor: str | None) -> dg.SensorResult:
        cursors.append(cursor)
        return last if len(cursors) == 4 else nothing(cursor)

    assert ticked(look) is last
    assert cursors == ["0", "1", "2", "3"]


def unchanged(cursor: str | None) -> dg.SensorResult:
    return dg.SensorResult(skip_reason=IDLE, cursor=cursor)


def test_there_is_no_look_while_all_is_still_idle() -> None:
    moved = iter([True, True, False, True, False])
    looks = iter([unchanged("0"), unchanged("0"), FOUND])

    tick = PatientTick(IDLE)
    assert (
        tick(lambda _: next(looks), cast("dg.SensorEvaluationContext", Context()), still_idle=lambda: next(moved))
        is FOUND
    )

    assert next(moved, None) is None


def test_a_tick_that_finds_nothing_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LONGEST_SECONDS", 0.1)
    began = time.monotonic()

    last = ticked(nothing)

    assert 0.05 < time.monotonic() - began < 5
    assert int(last.cursor or 0) > 1


def test_a_log_that_is_read_in_pieces_is_read_on_at_each_look_although_all_is_idle() -> None:
    looks = iter([nothing("0"), nothing("1"), nothing("2"), unchanged("3")])

    def idle() -> bool:
        if next(looks, None):
            raise AssertionError("the cursor has just moved: the next look would read on")
        end_ticks()
        return True

    last = PatientTick(IDLE)(lambda _: next(looks), cast("dg.SensorEvaluationContext", Context()), still_idle=idle)

    assert last.cursor == "3"


def test_a_tick_ends_with_an_answer_that_took_long_so_that_dagster_does_not_give_it_up() -> None:
    """A broker that hangs is asked for up to 30 s: by a tick at its end, and again by the look, that is over 60 s."""
    looks, now = list[str | None](), [0.0]

    def look(cursor: str | None) -> dg.SensorResult:
        looks.append(cursor)
        return unchanged(cursor)

    def hangs() -> bool:
        now[0] += 30.0
        return False

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting, "time", SimpleNamespace(monotonic=lambda: now[0]))
        last = PatientTick(IDLE)(look, cast("dg.SensorEvaluationContext", Context()), still_idle=hangs)

    assert (looks, last.cursor, now) == (["0"], "0", [30.0])


@pytest.mark.parametrize("sensors", [{}, {"use_threads": True}, {"use_threads": True, "num_workers": 8}])
def test_a_tick_looks_once_where_it_would_delay_other_sensors(sensors: dict[str, Any]) -> None:
    """Dagster evaluates one sensor after the other, unless dagster.yaml gives it threads."""
    assert ticked(nothing, Context(sensors)).cursor == "1"


def test_a_test_of_the_sensor_in_the_ui_looks_once() -> None:
    """The UI names no tick before it (``test_dagster_internals.py``); the daemon does, from its second one on."""
    assert ticked(nothing, Context(last_tick_completion_time=None)).cursor == "1"


def test_a_test_of_the_sensor_in_the_ui_leaves_the_tick_that_waits() -> None:
    tick, looks = PatientTick(IDLE), list[str | None]()

    def look(cursor: str | None) -> dg.SensorResult:
        looks.append(cursor)
        if len(looks) == 1:
            tick(nothing, cast("dg.SensorEvaluationContext", Context(last_tick_completion_time=None)))
        return FOUND if len(looks) == 3 else nothing(cursor)

    assert tick(look, cast("dg.SensorEvaluationContext", Context())) is FOUND


def test_no_more_ticks_wait_at_once_than_a_code_server_has_threads_for() -> None:
    with ExitStack() as stack:
        for _ in range(waiting.WAITING_AT_ONCE):
            stack.enter_context(waiting._waiting)
        assert ticked(nothing).cursor == "1"


def test_a_reload_or_the_end_of_the_code_server_ends_the_ticks_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 20.0)
    waits = Thread(target=ticked, args=(nothing,))
    waits.start()

    began = time.monotonic()
    while waits.is_alive() and time.monotonic() < began + 10:
        end_ticks()
        waits.join(0.05)

    assert not waits.is_alive()


def test_no_tick_waits_while_the_code_server_stops_whether_or_not_a_reload_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waiting, "LOOK_SECONDS", 20.0)
    monkeypatch.setattr(reload, "_TICKS_END", [Event()])
    end_ticks(for_good=True)
    end_ticks()

    began = time.monotonic()
    assert ticked(nothing).cursor == "1"

    assert time.monotonic() - began < 10


def test_a_tick_of_a_daemon_that_was_started_again_replaces_the_one_that_waits() -> None:
    tick, answers = PatientTick(IDLE), list[dg.SensorResult]()
    looks: Iterator[int] = iter(range(100))

    def first(cursor: str | None) -> dg.SensorResult:
        if next(looks) == 2:  # meanwhile the new daemon asks
            answers.append(tick(lambda _: FOUND, cast("dg.SensorEvaluationContext", Context())))
        return nothing(cursor)

    assert tick(first, cast("dg.SensorEvaluationContext", Context())).cursor == "3"
    assert answers == [FOUND]
