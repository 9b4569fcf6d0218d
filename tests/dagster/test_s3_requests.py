"""What the ticks of the sensors ask of object storage."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from dagster import DagsterInstance
from deltalake import DeltaTable, write_deltalake

from kdi_assets.components.names import table_key
from kdi_assets.components.table_asset import table_asset
from kdi_assets.delta.versions import SEEN_SECONDS, LatestVersions
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream import DrainWhen
from kdi_assets.follow.refine.plan import RefinePlan
from kdi_assets.follow.upstream import UpstreamChanges
from kdi_assets.messages.kafka.source import KafkaSource
from kdi_assets.messages.topic_state import BrokerOffsets, TopicState
from kdi_assets.operate.monitoring.backlog_reader import BacklogReader
from kdi_assets.operate.monitoring.refined_status import RefinedStatus
from kdi_assets.resources.spark import SparkResource
from kdi_assets.sensors.follow import follow_sensor
from kdi_assets.sensors.followers import RefinedFollower
from kdi_assets.sensors.lag import lag_sensor
from kdi_assets.tools.local.s3_server import S3Server
from tests.dagster.fakes import ScriptedDrain, no_audit, tick
from tests.dagster.refined_world import a_refined_table
from tests.faults.s3_proxy import ProxyProcess, proxy_process_to
from tests.table_by_hand import TP, TableByHand, orders

STREAM = orders(drain_when=DrainWhen(backlog_messages=1_000))
TICKS = 12
CONDITIONAL = {"aws_conditional_put": "etag"}


@dataclass
class Ticks:
    """The lag sensor of one stream whose table is on S3; its topic, its clock and its requests."""

    instance: DagsterInstance
    s3: ProxyProcess
    end: int = 100
    now: float = field(default_factory=time.monotonic)
    cursor: str | None = None

    def __post_init__(self) -> None:
        versions = LatestVersions(clock=lambda: self.now)
        self._sensor = lag_sensor("main", [STREAM], read_backlogs=BacklogReader(versions=versions), versions=versions)

    def topics(self, *_: object, **__: object) -> dict[str, TopicState]:
        return {STREAM.topic: TopicState(STREAM.topic, "topic", {TP: BrokerOffsets(0, self.end, self.end)})}

    def tick(self) -> tuple[str, list[str]]:
        """What the tick says, and the methods of its requests."""
        assets = [table_asset(STREAM, drain=ScriptedDrain(), audit=no_audit)]
        defs = dg.Definitions(assets=assets, sensors=[self._sensor], resources={"spark": SparkResource()})
        data = tick(self.instance, defs, self.cursor)
        self.cursor = data.cursor
        return str(data.skip_message or data.run_requests), [request.method for request, _ in self.s3.new()]


@pytest.fixture
def ticks(
    bucket: str, s3_server: S3Server, tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Ticks]:
    """The sensor after two ticks: it has read the table and logged its events."""
    local = TableByHand(tmp_path / "lake")
    local.drain(100)
    for file in local.log.iterdir():
        key = f"lake/{file.relative_to(tmp_path / 'lake')}"
        s3_server.client().put_object(Bucket=bucket.removeprefix("s3://"), Key=key, Body=file.read_bytes())
    monkeypatch.setenv("KDI_LAKE", f"{bucket}/lake")
    monkeypatch.setenv("KDI_ALERT_WEBHOOK", "http://127.0.0.1:1/hook")
    with proxy_process_to(s3_server.port) as s3:
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
        ticks = Ticks(instance, s3)
        monkeypatch.setattr(KafkaSource, "topics", ticks.topics)
        monkeypatch.setattr(KafkaSource, "watch", lambda _: None)
        monkeypatch.setattr(KafkaSource, "around", lambda *_, **__: {})
        monkeypatch.setattr(KafkaSource, "retention", lambda *_: {})
        assert len(ticks.tick()[1]) > 0
        ticks.tick()
        yield ticks


def test_an_idle_stream_takes_no_request_at_a_tick_and_two_a_minute(ticks: Ticks) -> None:
    within = [ticks.tick() for _ in range(TICKS)]
    ticks.now += SEEN_SECONDS

    said, once_a_minute = ticks.tick()

    assert within == [("nothing due; no backlog", [])] * TICKS
    assert (said, once_a_minute, ticks.tick()[1]) == ("nothing due; no backlog", ["HEAD", "HEAD"], [])


def test_a_stream_with_a_backlog_takes_a_head_for_each_cache_and_no_list(ticks: Ticks) -> None:
    ticks.end += 10

    said, requests = ticks.tick()
    _, again = ticks.tick()

    assert said == "nothing due; largest backlog: bronze/orders 10 offsets, ?"
    assert Counter(again) == Counter({"HEAD": 3}), "missing events, backlog, alerts"
    assert len(requests) > 0


def test_a_restore_of_an_idle_table_is_seen_within_a_minute(ticks: Ticks, bucket: str) -> None:
    DeltaTable(STREAM.table_uri(f"{bucket}/lake"), storage_options=CONDITIONAL).restore(0)
    ticks.s3.new()

    before, requests = ticks.tick()
    ticks.now += SEEN_SECONDS
    after, _ = ticks.tick()

    assert (before, requests) == ("nothing due; no backlog", [])
    assert "orders" in after and after != before


def test_an_idle_refined_table_takes_no_request_at_a_tick_and_two_a_minute_for_each_table(
    bucket: str, s3_server: S3Server, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pass: a run that ended between two ticks is seen at the next one, a commit of another writer within a minute."""
    lake, now = f"{bucket}/lake", time.monotonic()
    silver = a_refined_table("silver/orders", STREAM.table)
    uris = {path: f"{lake}/{path}" for path in (STREAM.table, silver.table)}
    monkeypatch.setenv("KDI_LAKE", lake)
    reads = list[int]()

    def append(path: str) -> None:
        write_deltalake(uris[path], pa.table({"id": [1]}), mode="append", storage_options=CONDITIONAL)

    def read(table: RefinedTableSpec, lake: str) -> RefinedStatus:
        reads.append(1)
        versions = {path: DeltaTable(uri, storage_options=CONDITIONAL).version() for path, uri in uris.items()}
        upstream = UpstreamChanges("", STREAM.table, uris[STREAM.table], "u", 0, versions[STREAM.table], "nothing")
        return RefinedStatus(table, RefinePlan("", versions[silver.table], "id", (upstream,), "nothing"))

    for path in uris:
        append(path)
    with proxy_process_to(s3_server.port) as s3:
        monkeypatch.setenv("AWS_ENDPOINT_URL", s3.endpoint)
        sensor = follow_sensor([RefinedFollower(silver, read)], [STREAM], versions=LatestVersions(clock=lambda: now))
        defs, cursor = dg.Definitions(sensors=[sensor]), None

        def requests() -> list[str]:
            nonlocal cursor
            cursor = tick(instance, defs, cursor, name="follow").cursor
            return [request.method for request, _ in s3.new()]

        for _ in range(3):
            requests()
        idle = [requests() for _ in range(TICKS)]
        now += SEEN_SECONDS
        a_minute_later, again, reads_before = requests(), requests(), len(reads)
        append(STREAM.table)
        instance.report_runless_asset_event(dg.AssetMaterialization(table_key(STREAM)))
        s3.new()
        after_a_run, reads_then = requests(), len(reads)
        append(STREAM.table)
        s3.new()
        unseen = requests(), len(reads)
        now += SEEN_SECONDS
        requests()

    assert idle == [[]] * TICKS
    assert (sorted(a_minute_later), again) == (["HEAD"] * 4, [])
    assert len(after_a_run) > 0
    assert (reads_then, unseen, len(reads)) == (reads_before + 1, ([], reads_then), reads_then + 1)
