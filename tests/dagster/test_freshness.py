"""Freshness in Dagster: the sensor that makes the check without a run, and Dagster's own policy."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import dagster as dg
import pytest
from dagster import DagsterInstance

from kdi_assets.components.asset_checks import freshness_policy
from kdi_assets.components.assets import table_asset
from kdi_assets.drain.backlog import Backlog
from kdi_assets.stream import FreshnessLimits, KafkaCluster, Stream
from sensors import freshness
from tests.dagster.fakes import ScriptedDrain, a_backlog, audited, latest_check
from tests.table_by_hand import orders

pytestmark = pytest.mark.usefixtures("lake_in_environment")

LIMITS = FreshnessLimits(300, 1800)


def test_the_freshness_sensor_tells_of_a_change_at_once_and_of_the_same_only_hourly(instance: DagsterInstance) -> None:
    stream, lags = orders(freshness=LIMITS), [10.0, 12.0, 400.0, 410.0]

    def look(streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
        return [a_backlog(stream, 5, lag=lags.pop(0))]

    sensor, cursor, told = freshness.freshness_sensor("main", [stream], look=look), None, []
    for _ in range(4):
        context = dg.build_sensor_context(instance, cursor=cursor)
        data = sensor.evaluate_tick(context)
        cursor = data.cursor
        for event in data.asset_events:
            instance.report_runless_asset_event(event)
        told.append(len(data.asset_events))

    assert told == [1, 0, 1, 0]
    shown = latest_check(instance, stream, "fresh")
    assert shown is not None and (shown.passed, shown.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert (data.skip_message or "").startswith("bronze/orders: the oldest of 5 offsets that wait is 410 s old")


def test_the_freshness_sensor_tells_of_so_many_at_once_and_of_what_does_not_pass_first(
    instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(freshness, "TOLD_PER_TICK", 2)
    streams = [replace(orders(freshness=LIMITS), table=f"bronze/{name}") for name in "abc"]

    def look(streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
        return [a_backlog(s, 5, lag=400.0 if s.table == "bronze/c" else 1.0) for s in streams]

    sensor, cursor, told = freshness.freshness_sensor("main", streams, look=look), None, []
    for _ in range(3):
        data = sensor.evaluate_tick(dg.build_sensor_context(instance, cursor=cursor))
        cursor = data.cursor
        told.append([event.asset_key.path[-1] for event in data.asset_events])

    assert told == [["c", "a"], ["b"], []]


def test_a_cursor_that_cannot_be_read_costs_the_freshness_sensor_no_tick(instance: DagsterInstance) -> None:
    stream = orders(freshness=LIMITS)
    waits = a_backlog(stream, 5, lag=10.0)
    sensor = freshness.freshness_sensor("main", [stream], look=lambda streams, *, lake: [waits])

    for cursor in ("not json", "[1]", '{"bronze/orders": "passed"}'):
        data = sensor.evaluate_tick(dg.build_sensor_context(instance, cursor=cursor))
        assert len(data.asset_events) == 1


def test_brokers_that_never_answer_cost_the_freshness_of_their_own_streams_alone(instance: DagsterInstance) -> None:
    mute = KafkaCluster("mute", "127.0.0.1:1")
    silent = replace(orders(freshness=LIMITS), table="bronze/silent", cluster=mute)

    def look(streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
        if silent in streams:
            raise TimeoutError("as when Dagster ends a tick that takes too long")
        return [a_backlog(s, 5, lag=10.0) for s in streams]

    told: list[str] = []
    for sensor in freshness.freshness_sensors([silent, orders(freshness=LIMITS)], look=look):
        with suppress(TimeoutError):
            data = sensor.evaluate_tick(dg.build_sensor_context(instance))
            told += [event.asset_key.path[-1] for event in data.asset_events]

    assert told == ["orders"]


def test_dagsters_own_policy_has_the_limits_of_the_document() -> None:
    stream = orders(freshness=LIMITS)

    for status in ("paused", "retired"):
        assert freshness_policy(orders(freshness=LIMITS, status=status)) is None, "nothing drains it"
    (spec,) = table_asset(stream, drain=ScriptedDrain(), audit=audited(complete=True)).specs

    window = dg.FreshnessPolicy.time_window(fail_window=timedelta(minutes=30), warn_window=timedelta(minutes=5))
    assert spec.freshness_policy == window
