"""A table's checks in a run: what blocks, what holds nothing up, and what a sensor asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, timedelta

import dagster as dg
import pytest
from dagster import DagsterInstance

from kdi_assets.checks import subject
from kdi_assets.components.assets import table_asset
from kdi_assets.components.names import check_key, table_key
from kdi_assets.downstream import on_new_upstream_data
from kdi_assets.ledger.audit import AuditReport
from kdi_assets.stream import CheckName, Checks, Stream
from resources.spark import SparkResource
from sensors.lag import lag_sensor
from tests.dagster.fakes import (
    UNREACHABLE,
    ScriptedDrain,
    a_backlog,
    a_commit,
    assets_of,
    audited,
    materialize,
    tick,
    today,
    will_retry,
)
from tests.table_by_hand import TableByHand, data_file, orders

pytestmark = pytest.mark.usefixtures("lake_in_environment")

SILVER = dg.AssetKey(["silver", "orders"])
OLD = date(2001, 2, 3)


@dataclass
class Built:
    """A table, and an asset that is built on it whenever it got new data."""

    instance: DagsterInstance
    stream: Stream

    def drain(self, *checks: CheckName) -> tuple[dg.ExecuteInProcessResult, bool]:
        """A run that drains rows of today and makes these checks; and whether the asset is requested then."""
        defs = self._definitions()
        before = dg.evaluate_automation_conditions(defs, self.instance, dg.AssetSelection.all())
        keys = [check_key(self.stream, name) for name in checks]
        result = materialize(self.instance, assets_of(defs), table_key(self.stream), *keys, day=today())
        after = dg.evaluate_automation_conditions(defs, self.instance, dg.AssetSelection.all(), cursor=before.cursor)
        return result, bool(after.get_requested_partitions(SILVER))

    def _definitions(self) -> dg.Definitions:
        drain = ScriptedDrain([a_commit(7, {today(): 3})])
        table = table_asset(self.stream, drain=drain, audit=audited(complete=True))
        condition = on_new_upstream_data()

        @dg.asset(key=SILVER, deps=[table_key(self.stream)], automation_condition=condition)
        def silver() -> None: ...

        return dg.Definitions(assets=[table, silver], resources={"spark": SparkResource()})


def test_an_error_of_a_check_that_blocks_keeps_the_downstream_from_being_built(
    instance: DagsterInstance, table: TableByHand
) -> None:
    table.drain(100, dead_letters=90)
    stream = orders(checks=Checks(blocking=("dead_letter_rate",)))

    result, requested = Built(instance, stream).drain("dead_letter_rate", "table_health")

    assert not result.success and not requested
    found = {e.check_name: e.passed for e in result.get_asset_check_evaluations()}
    assert found == {"dead_letter_rate": False, "table_health": True}, "those behind it are made as well"
    assert not will_retry(instance, result)


def test_an_error_of_a_check_that_does_not_block_is_shown_and_holds_nothing_up(
    instance: DagsterInstance, table: TableByHand
) -> None:
    table.drain(100, dead_letters=90)

    result, requested = Built(instance, orders()).drain("dead_letter_rate")

    assert result.success and requested
    (evaluation,) = result.get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert evaluation.metadata["share"].value == pytest.approx(0.45)


def test_a_warning_of_a_check_that_blocks_holds_nothing_up(instance: DagsterInstance, table: TableByHand) -> None:
    table.commit(data_file(1, OLD, rows=7), ago=timedelta(0))
    stream = orders(checks=Checks(blocking=("dates_in_window",)))

    result, requested = Built(instance, stream).drain("dates_in_window")

    assert result.success and requested
    (evaluation,) = result.get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.severity) == (True, dg.AssetCheckSeverity.WARN)
    assert (evaluation.description or "").startswith("warning: 7 rows have dates outside")


def test_a_check_that_blocks_and_finds_no_broker_fails_the_run_for_a_retry(
    instance: DagsterInstance, table: TableByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "look", lambda stream, lake: replace(a_backlog(stream, 0), refusal=UNREACHABLE))
    stream = orders(checks=Checks(blocking=("backlog_after_drain",)))

    result, _ = Built(instance, stream).drain("backlog_after_drain")

    assert not result.success
    assert will_retry(instance, result)


def test_a_sensor_asks_for_the_checks_that_block_and_need_no_spark(instance: DagsterInstance) -> None:
    blocking: tuple[CheckName, ...] = ("every_offset_accounted_for", "dead_letter_rate", "positions_never_go_back")
    stream = orders(checks=Checks(blocking=blocking))
    sensor = lag_sensor("main", [stream], look=lambda streams, *, lake: [a_backlog(stream, 5000, lag=90.0)])
    table = table_asset(stream, drain=ScriptedDrain(), audit=audited(complete=True))
    defs = dg.Definitions(assets=[table], sensors=[sensor], resources={"spark": SparkResource()})
    (request,) = tick(instance, defs).run_requests or []

    wanted = {check_key(stream, "dead_letter_rate"), check_key(stream, "positions_never_go_back")}
    assert set(request.asset_check_keys or ()) == wanted


def test_a_run_of_a_table_judges_what_waits_before_it_reads_the_table(
    instance: DagsterInstance, table: TableByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = [0]

    def audit(*_: object, **__: object) -> AuditReport:
        waits[0] = 7
        return AuditReport(complete=True)

    monkeypatch.setattr(subject, "look", lambda stream, lake: a_backlog(stream, waits[0]))
    stream = orders()
    asset = table_asset(stream, drain=ScriptedDrain(), audit=audit)
    wanted: tuple[CheckName, ...] = ("every_offset_accounted_for", "backlog_after_drain")

    result = materialize(instance, [asset], *(check_key(stream, name) for name in wanted))

    numbers = {e.check_name: e.metadata for e in result.get_asset_check_evaluations()}
    assert numbers.keys() == set(wanted)
    assert numbers["backlog_after_drain"]["backlog"].value == 0
