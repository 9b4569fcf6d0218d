"""Ticks of the follow sensor, over refined tables whose logs a test makes up."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import dagster as dg
from dagster import DagsterInstance

from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.entry import RefineKind
from kdi_assets.follow.refine.errors import ChangedByOthers, UpstreamMissing
from kdi_assets.follow.refine.plan import RefinePlan
from kdi_assets.operate.monitoring.refined_status import RefinedStatus
from kdi_assets.resources.spark import SparkResource
from kdi_assets.sensors.follow import NAME, follow_sensor
from kdi_assets.sensors.followers import RefinedFollower
from tests.dagster.fakes import execute_request
from tests.dagster.refined_world import BRONZE, GOLD, SILVER, ScriptedRefine, refined_assets

MISSING = UpstreamMissing(table=SILVER.name, upstream=BRONZE.table, uri="/lake/bronze")
DECIDE = ChangedByOthers(table=SILVER.name, uri="/lake", version=4, operation="DELETE")


@dataclass
class Sensor:
    """Ticks over tables whose logs the test makes up.

    Attributes:
        behind: Tables with something new upstream.
        versions: Of the tables; a run that commits makes one higher.
        other_commits: Commits without rows to each table, such as OPTIMIZE.
    """

    instance: DagsterInstance
    tables: tuple[RefinedTableSpec, ...] = (SILVER, GOLD)
    streams: tuple[Stream, ...] = (BRONZE,)
    behind: set[str] = field(default_factory=set)
    refusals: dict[str, KdiError] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    other_commits: int = 0
    cursor: str | None = None
    said: str | None = None
    reads: int = 0
    made: tuple[tuple[Sequence[RefinedTableSpec], Sequence[Stream]], dg.SensorDefinition] | None = None

    during: Callable[[RefinedTableSpec, str], object] = lambda *_: None

    def read(self, table: RefinedTableSpec, lake: str) -> RefinedStatus:
        self.during(table, lake)
        self.reads += 1
        if refusal := self.refusals.get(table.name):
            return RefinedStatus(table, refusal=refusal)
        kind: RefineKind = "changes" if table.name in self.behind else "nothing"
        version = self.versions.get(table.name, 1)
        return RefinedStatus(table, RefinePlan("", version + self.other_commits, "id", (), kind, committed=version))

    def sensor(self) -> dg.SensorDefinition:
        """One as long as the tables stay: it keeps what it has read."""
        if self.made is None or self.made[0] != (self.tables, self.streams):
            followers = [RefinedFollower(table, self.read) for table in self.tables]
            self.made = (self.tables, self.streams), follow_sensor(followers, self.streams)
        return self.made[1]

    def tick(self) -> list[dg.RunRequest]:
        """The requests of a tick."""
        defs = self.definitions(ScriptedRefine())
        context = dg.build_sensor_context(self.instance, cursor=self.cursor, definitions=defs, sensor_name=NAME)
        result = defs.get_repository_def().get_sensor_def(NAME).evaluate_tick(context)
        self.cursor, self.said = result.cursor, result.skip_message
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        return list(result.run_requests or ())

    def definitions(self, refine: ScriptedRefine) -> dg.Definitions:
        assets = refined_assets(refine, *self.tables, streams=self.streams)
        return dg.Definitions(
            assets=assets,
            sensors=[self.sensor()],
            resources={"spark": SparkResource()},
            executor=dg.in_process_executor,
        )

    def carry_out(self, request: dg.RunRequest) -> list[str]:
        """Run what a tick requested, without its checks; the tables that were refined, in this order."""
        refine = ScriptedRefine()
        execute_request(self.instance, self.definitions(refine), request)
        return [table for table, _ in refine.asked]

    def selected(self) -> list[set[str]]:
        """The tables of each run that a tick requests."""
        return [{key.to_user_string() for key in request.asset_selection or ()} for request in self.tick()]

    def later(self, seconds: float) -> None:
        """Set the times of the cursor back, as if so much time had passed."""
        memories = json.loads(self.cursor or "{}")
        for memory in memories.values():
            for name in ("requested_at", "looked_at"):
                memory[name] = memory.get(name, 0.0) - seconds
        self.cursor = json.dumps(memories)
