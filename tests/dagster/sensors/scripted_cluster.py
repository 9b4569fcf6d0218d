"""Backlogs that a test scripts, and the lag sensor over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import dagster as dg
from dagster import DagsterInstance

from kdi_assets.components.names import table_key
from kdi_assets.components.table_asset import table_asset
from kdi_assets.documents.model.stream import DrainWhen, Stream, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.operate.monitoring.backlog import Backlog, PartitionBacklog
from kdi_assets.resources.spark import SparkResource
from kdi_assets.sensors.lag import lag_sensor
from tests.dagster.fakes import ScriptedDrain, a_stream, execute_request, no_audit, tick

AT_ONCE = DrainWhen(min_gap_seconds=0)
ORDERS, CLICKS, PAYMENTS = (a_stream(f"bronze/{name}", drain_when=AT_ONCE) for name in ("orders", "clicks", "payments"))


@dataclass
class Cluster:
    """Scripted backlogs, and the code location with the sensor."""

    instance: DagsterInstance
    streams: Sequence[Stream] = (ORDERS, CLICKS, PAYMENTS)
    waiting: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, KdiError] = field(default_factory=dict)
    cursor: str | None = None
    wait_seconds: float = 0.0

    def __post_init__(self) -> None:
        self._sensor = lag_sensor("main", self.streams, read_backlogs=self.look, wait_seconds=self.wait_seconds)

    def look(self, streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
        return [self._backlog(stream) for stream in streams]

    def _backlog(self, stream: Stream) -> Backlog:
        offsets = self.waiting.get(stream.name, 0)
        waits = {TopicPartition(stream.topic, 0): PartitionBacklog(0, offsets, 0)}
        lag = 2.0 if offsets else None
        return Backlog(stream.name, waits, offsets, lag, self.refusals.get(stream.name), 0)

    def definitions(self) -> dg.Definitions:
        assets = [table_asset(s, drain=ScriptedDrain(), audit=no_audit) for s in self.streams]
        resources, executor = {"spark": SparkResource()}, dg.in_process_executor
        return dg.Definitions(assets=assets, sensors=[self._sensor], resources=resources, executor=executor)

    def tick(self) -> dg.SensorExecutionData:
        """Evaluate the sensor as the daemon does, and keep its cursor for the next tick."""
        data = tick(self.instance, self.definitions(), self.cursor)
        self.cursor = data.cursor
        return data

    def carry_out(self, request: dg.RunRequest) -> set[str]:
        """Run what a tick requested, without its checks; the streams that were drained."""
        execute_request(self.instance, self.definitions(), request)
        keys = [table_key(s) for s in self.streams]
        return {"/".join(key.path) for key in keys if self.instance.fetch_observations(key, limit=1).records}
