"""A bronze table and its downstream assets, tick by tick: drains are scripted; events, conditions and runs are real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from itertools import count

import dagster as dg
from dagster import AutomationCondition, DagsterInstance
from dagster._core.definitions.asset_daemon_cursor import AssetDaemonCursor  # only for an annotation

from kdi_assets.components.names import check_key, dates, table_key
from kdi_assets.components.table_asset import Audit, table_asset
from kdi_assets.documents.model.stream import CheckName, DateWindow, Stream
from kdi_assets.resources.spark import SparkResource
from kdi_assets.streams.audit.audit import AuditReport
from tests.dagster.fakes import ScriptedDrain, a_commit, a_stream, assets_of, materialize, no_audit, run

BRONZE = a_stream(date_window=DateWindow(ahead_days=0))  # the latest date is today: the only one that eager() looks at
SILVER, GOLD = dg.AssetKey(["silver", "requests"]), dg.AssetKey(["gold", "requests"])
DAILY = dates(BRONZE)
AUDIT: CheckName = "every_offset_accounted_for"

Condition = AutomationCondition[dg.AssetKey] | AutomationCondition[dg.AssetKey | dg.AssetCheckKey]
_versions = count(1)


def silver_on(
    bronze: Stream,
    condition: Condition,
    *,
    partitions: dg.PartitionsDefinition[str] | None = DAILY,
    body: Callable[[], None] = lambda: None,
) -> dg.AssetsDefinition:
    """An asset on a bronze table that only does what the test says."""

    @dg.asset(key=SILVER, deps=[table_key(bronze)], partitions_def=partitions, automation_condition=condition)
    def silver() -> None:
        body()

    return silver


@dataclass
class World:
    """A location with one bronze table, as Dagster sees it tick by tick.

    Attributes:
        partitions: Of silver.
        checks: On the bronze table, beside its own.
        during: Called while a run of silver or gold is active.
    """

    instance: DagsterInstance
    condition: Condition
    partitions: dg.PartitionsDefinition[str] | None = DAILY
    bronze: Stream = BRONZE
    with_gold: bool = False
    checks: Sequence[dg.AssetChecksDefinition] = ()
    during: Callable[[], None] = lambda: None
    cursor: AssetDaemonCursor | None = None

    def drain(self, *days: date) -> None:
        """A run of the bronze table that commits rows of these dates."""
        commit = a_commit(next(_versions), dict.fromkeys(days, 3))
        assert run(self.instance, self.bronze, ScriptedDrain([commit])).success

    def audit(self, *, complete: bool, during: Callable[[], None] = lambda: None) -> None:
        """A run of only the bronze table's check; ``during`` is called while it is active."""

        def audit(*_: object, **__: object) -> AuditReport:
            during()
            return AuditReport(complete=complete)

        assert self._run_the_check(audit) is complete

    def crash_the_audit(self) -> None:
        """A run of the check that ends without a verdict."""

        def crash(*_: object, **__: object) -> AuditReport:
            raise OSError("the lake is away")

        assert not self._run_the_check(crash)

    def _run_the_check(self, audit: Audit) -> bool:
        table = table_asset(self.bronze, drain=ScriptedDrain(), audit=audit)
        return materialize(self.instance, [table], check_key(self.bronze, AUDIT)).success

    def tick(self, key: dg.AssetKey = SILVER, *, at: datetime | None = None) -> set[str | None]:
        """The dates of an asset that a tick requests, now or ``at`` a moment; ``None`` means a whole table."""
        everything = dg.AssetSelection.all()
        result = dg.evaluate_automation_conditions(
            self.definitions(), self.instance, everything, evaluation_time=at, cursor=self.cursor
        )
        self.cursor = result.cursor
        assert not result.get_requested_partitions(table_key(self.bronze)), "tables are the lag sensor's"
        return set(result.get_requested_partitions(key))

    def build(self, *requested: str | None, key: dg.AssetKey = SILVER) -> bool:
        """Execute requests; whether every run succeeded."""
        assets = assets_of(self.definitions())
        return all([materialize(self.instance, assets, key, day=date).success for date in requested])

    def definitions(self) -> dg.Definitions:
        """The location as it is now."""
        silver = silver_on(self.bronze, self.condition, partitions=self.partitions, body=lambda: self.during())
        table = table_asset(self.bronze, drain=ScriptedDrain(), audit=no_audit)
        assets = [table, silver, *([self._gold()] if self.with_gold else [])]
        return dg.Definitions(
            assets=assets,
            asset_checks=self.checks,
            resources={"spark": SparkResource()},
            executor=dg.in_process_executor,
        )

    def _gold(self) -> dg.AssetsDefinition:
        @dg.asset(key=GOLD, deps=[SILVER], partitions_def=self.partitions, automation_condition=self.condition)
        def gold() -> None:
            self.during()

        return gold
