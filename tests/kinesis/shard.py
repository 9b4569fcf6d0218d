"""A stream with one shard, as the second client sees it."""

from __future__ import annotations

from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kinesis.client import digest_of
from kdi_assets.messages.kinesis.look_ahead import Ahead, HeldRecords, look_ahead
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.messages.kinesis.source import KinesisSource
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.positions import LedgerState
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.kinesis.endpoint import kinesis_client

DAY = 86_400


class OneShard:
    """A stream with one shard on a server whose clock stands still."""

    def __init__(self, server: KinesisServer) -> None:
        self.server, self.client = server, kinesis_client(server.endpoint)
        self.connection = KinesisRegion("main", "us-east-1", server.endpoint)
        self.source = KinesisSource(self.connection)
        self.client.create_stream(StreamName="s", ShardCount=1)
        server.advance(60)

    def put(self, *data: str) -> list[str]:
        """The sequence numbers of new records."""
        made = [self.client.put_record(StreamName="s", Data=each.encode(), PartitionKey=each) for each in data]
        self.server.advance(1)
        return [record["SequenceNumber"] for record in made]

    def look(self, mark: Bookmark, *, until: int | None = None, days: int = 1, is_open: bool = True) -> Ahead:
        now = int(self.server.now() * 1000)
        self.server.advance(1)  # more than five calls a second are refused
        upto, held = now if until is None else until, HeldRecords(now, days * DAY)
        return look_ahead(self.client, "s", id_of(0), mark, until=upto, held=held, table="bronze/s", is_open=is_open)

    def bookmark(self, sequence: str, data: str) -> Bookmark:
        """After the record, seen just now."""
        now = int(self.server.now() * 1000)
        digest = digest_of(data.encode(), data.encode())
        return Bookmark(sequence, arrived=now - 1000, digest=digest, seen_at=now - 1000)


def sequence_of(ahead: Ahead) -> str:
    assert ahead.first
    return ahead.first.sequence


def ledger_of(tp: TopicPartition, mark: Bookmark) -> LedgerState:
    """The ledger of a table that has one record of the shard."""
    entry = LedgerEntry(1, "drain", "s", "v1", "s", "topic", "table", {tp: 1}, bookmarks={tp: mark})
    return LedgerState("/lake/s", 1, "table", 1, {tp: 1}, {}, None, True, True, entry)
