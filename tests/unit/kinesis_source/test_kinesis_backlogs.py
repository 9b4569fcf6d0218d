"""The backlog of a stream of Kinesis: whether a record waits, since when, and whether a bookmark is renewed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kdi_assets.ledger.bookmarks import Bookmark
from kdi_assets.monitoring.backlog_reader import BacklogReader
from kdi_assets.monitoring.ledger_cache import LedgerCache
from tests.kinesis.shard import DAY, OneShard
from tests.table_by_hand import TOPIC, TP, TableByHand, orders


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
