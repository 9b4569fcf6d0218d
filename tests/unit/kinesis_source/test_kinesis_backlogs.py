"""The backlog of a stream of Kinesis: whether a record waits, since when, and whether a bookmark is renewed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.delta.versions import MAX_STEPS, SEEN_SECONDS, LatestVersion, LatestVersions
from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kinesis.look_ahead import RENEWALS
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.operate.monitoring.backlog_reader import BacklogReader
from kdi_assets.operate.monitoring.ledger_cache import LedgerCache
from kdi_assets.sensors.incidents import current_incidents
from kdi_assets.sensors.memory import Memory
from kdi_assets.sensors.policy import progress_digest, streams_to_drain
from kdi_assets.streams.ledger.entry import Kind
from kdi_assets.streams.ledger.positions import read_ledger
from tests.kinesis.shard import DAY, OneShard
from tests.table_by_hand import TOPIC, TP, TableByHand, orders

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class OnceAMinute(LatestVersions):
    """Tells of an idle table on this machine what it told before, for a minute, as of one on object storage."""

    def __init__(self) -> None:
        super().__init__()
        self._idle_tables: set[str] = set()
        self._told: dict[str, tuple[LatestVersion | None, float]] = {}

    def set_idle(self, uri: str, *, idle: bool) -> None:
        (self._idle_tables.add if idle else self._idle_tables.discard)(uri)

    def of(self, uri: str, *, since: int, max_steps: int = MAX_STEPS) -> LatestVersion | None:
        told, at = self._told.get(uri, (None, 0.0))
        if told and told.version >= since and uri in self._idle_tables and time.monotonic() < at + SEEN_SECONDS:
            return told
        found = super().of(uri, since=since, max_steps=max_steps)
        self._told[uri] = found, time.monotonic()
        return found


def no_session() -> SparkSession:
    pytest.fail("nothing is read")


def test_a_backlog_shows_that_a_record_waits_and_since_when(shard: OneShard, lake: str) -> None:
    shard.client.create_stream(StreamName=TOPIC, ShardCount=1)
    shard.server.advance(60)
    topic = shard.source.topic(TOPIC)
    stream = replace(orders(), cluster=shard.connection)
    TableByHand(lake).ledger_commit("start", at={TP: 0}, topic_id=topic.topic_id, bookmarks={TP: Bookmark()})
    look = BacklogReader(clock=lambda: datetime.fromtimestamp(shard.server.now(), UTC))

    (idle,) = look([stream], lake=lake)
    shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a")
    shard.server.advance(3600)
    (waits,) = look([stream], lake=lake)
    calls = shard.server.calls("GetRecords")
    (still,) = look([stream], lake=lake)

    assert (idle.refusal, idle.offsets, idle.lag_seconds) == (None, 0, None)
    assert (waits.refusal, waits.offsets) == (None, 1)
    assert waits.lag_seconds == pytest.approx(3600, abs=5)
    assert waits.topic_partitions[TP].time_to_loss_seconds == pytest.approx(DAY - 3600, abs=5)
    assert [each.needs_position_commit for each in (idle, waits, still)] == [True, False, False], "nobody looked before"
    assert still.offsets == 1
    assert shard.server.calls("GetRecords") == calls, "the record waits until the position moves"


def test_the_backlog_of_an_idle_shard_asks_for_a_run_that_renews_its_bookmark(
    shard: OneShard, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard.client.create_stream(StreamName=TOPIC, ShardCount=1)
    shard.server.advance(60)
    sequence = shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a")["SequenceNumber"]
    topic, mark = shard.source.topic(TOPIC), shard.bookmark(sequence, "a")
    TableByHand(lake).ledger_commit("drain", at={TP: 1}, topic_id=topic.topic_id, bookmarks={TP: mark})

    needs, told = [], list[bool]()
    monkeypatch.setattr(LedgerCache, "set_idle", lambda *of, idle: told.append(idle))
    for hours in (1, 6):
        shard.server.advance(hours * 3600)
        (found,) = BacklogReader()([replace(orders(), cluster=shard.connection)], lake=lake)
        needs.append((found.offsets, found.needs_position_commit))

    assert needs == [(0, False), (0, True)]
    assert told == [True, False], "on object storage, an idle table's log is looked at once a minute"


def test_a_stream_that_is_idle_for_days_has_a_run_for_each_renewal_and_no_incident(shard: OneShard, lake: str) -> None:
    """Purpose: a renewal moves no position, and its run must not be taken for one that failed.
    Procedure: three ticks every half an hour for two days; each run commits what a drain finds. The log of an idle
    table is looked at once a minute, as on object storage.
    Pass: four renewals in a retention of a day, each by one run; nothing is told.
    """
    shard.client.create_stream(StreamName=TOPIC, ShardCount=2)
    shard.server.advance(60)
    stream, topic, table = replace(orders(), cluster=shard.connection), shard.source.topic(TOPIC), TableByHand(lake)
    first = Bookmark(seen_at=int(shard.server.now() * 1000), held_seconds=DAY)

    def commit(kind: Kind, marks: Mapping[TopicPartition, Bookmark]) -> None:
        table.ledger_commit(kind, at=dict.fromkeys(marks, 0), topic_id=topic.topic_id, bookmarks=marks)

    commit("start", dict.fromkeys(topic.partitions, first))
    look = BacklogReader(leader_seconds=0.0, versions=OnceAMinute())
    memory, runs, told = Memory(), 0, set[str]()
    for tick in range(2 * 48 * 3):
        found = look([stream], lake=lake)
        known: dict[str, Any] = {"streams": {stream.name: stream}, "memories": {stream.name: memory}}
        incidents = current_incidents(found, in_flight=(), tables={}, **known)
        told |= {key for key, incident in incidents.items() if incident}
        now = shard.server.now()
        for due in streams_to_drain(found, in_flight={}, now=now, **known).due:
            memory, runs = memory.requested(progress_digest(due.backlog), now), runs + 1
            ledger = read_ledger(stream, lake, topic_id=topic.topic_id, topic_partitions=2)
            assert ledger
            with shard.source.hold(no_session, shard.source.topic(TOPIC), ledger, most=1) as held:
                commit("renewal", held.renewal)
        shard.server.advance(5 if tick % 3 else 1790)

    assert (runs, told) == (2 * RENEWALS - 1, set())


def test_two_tables_of_a_stream_each_have_a_backlog_of_their_own(shard: OneShard, lake: str) -> None:
    """Procedure: each table has read one record, so both are at number 1; the second one began at the last record."""
    shard.client.create_stream(StreamName=TOPIC, ShardCount=1)
    shard.server.advance(60)
    made = [shard.client.put_record(StreamName=TOPIC, Data=b"a", PartitionKey="a") for _ in range(2)]
    topic_id, tables = shard.source.topic(TOPIC).topic_id, ("bronze/orders", "bronze/late")
    for table, record in zip(tables, made, strict=True):
        mark = shard.bookmark(record["SequenceNumber"], "a")
        by_hand = TableByHand(lake, table=table)
        by_hand.ledger_commit("drain", at={TP: 1}, topic_id=topic_id, bookmarks={TP: mark})
    shard.server.advance(2)
    streams = [replace(orders(), table=table, cluster=shard.connection) for table in tables]
    look, found = BacklogReader(), []

    for both in (streams, streams[::-1]):
        found.append({one.stream: one.offsets for one in look(both, lake=lake)})
        shard.server.advance(2)

    assert found == [{"bronze/orders": 1, "bronze/late": 0}] * 2
