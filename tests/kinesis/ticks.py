"""Looks at streams of Kinesis at the pace of a sensor, and the calls that each look costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.operate.monitoring.backlog import Backlog
from kdi_assets.operate.monitoring.backlog_reader import BacklogReader
from kdi_assets.streams.ledger.entry import Kind
from tests.kinesis.shard import OneShard
from tests.table_by_hand import TOPIC, TableByHand, orders

TICK = 5.0
OPERATIONS = ("GetRecords", "GetShardIterator", "ListShards", "DescribeStreamSummary")


class Ticks:
    """Looks at streams whose tables have read nothing yet, every five seconds of the server's clock."""

    def __init__(self, shard: OneShard, lake: str, *, shards: int = 1, names: Sequence[str] = (TOPIC,)) -> None:
        self.shard, self.server, self.lake = shard, shard.server, lake
        self.streams: list[Stream] = []
        self._tables: dict[str, TableByHand] = {}
        for name in names:
            shard.client.create_stream(StreamName=name, ShardCount=shards)
            shard.server.advance(1)
            table = f"bronze/{name}"
            self.streams.append(replace(orders(), topic=name, table=table, app_id=name, cluster=shard.connection))
        shard.server.advance(60)
        for stream in self.streams:
            topic = shard.source.topic(stream.topic)
            self.commit(stream, "start", dict.fromkeys(range(shards), Bookmark()), topic.topic_id)
            shard.server.advance(1)
        self._calls = self._counts()
        self.read = BacklogReader(leader_seconds=0.0, clock=lambda: datetime.fromtimestamp(shard.server.now(), UTC))

    def commit(self, stream: Stream, kind: Kind, marks: dict[int, Bookmark], topic_id: str, *, at: int = 0) -> None:
        """Commit these bookmarks, and the position of the shards of which a record was read."""
        tps = {number: TopicPartition(stream.topic, number) for number in marks}
        if stream.table not in self._tables:
            self._tables[stream.table] = TableByHand(self.lake, table=stream.table)
        self._tables[stream.table].ledger_commit(
            kind,
            at={tps[number]: at if mark.sequence else 0 for number, mark in marks.items()},
            topic_id=topic_id,
            bookmarks={tps[number]: mark for number, mark in marks.items()},
        )

    def tick(self) -> tuple[list[Backlog], list[int]]:
        """The backlogs, and the calls of this tick by ``OPERATIONS``."""
        found = self.read(self.streams, lake=self.lake)
        before, self._calls = self._calls, self._counts()
        self.server.advance(TICK)
        return found, [self._calls[name] - before[name] for name in OPERATIONS]

    def _counts(self) -> dict[str, int]:
        return {name: self.server.calls(name) for name in OPERATIONS}
