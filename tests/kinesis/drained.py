"""The document of a stream of Kinesis, and its table as a drain has left it; nothing starts a JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

from kdi_assets.documents.loading.loader import load_streams
from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.errors import Terminal
from kdi_assets.messages.kinesis.client import digest_of
from kdi_assets.messages.kinesis.source import KinesisSource
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.documents import written
from tests.kinesis.endpoint import kinesis_client
from tests.table_by_hand import TP, TableByHand


class NoSparkHere(Terminal):
    """A unit test starts no JVM."""

    what_happened = "Spark is needed."
    what_is_safe = "everything."
    what_to_run = "the tests of tests/spark"


def no_spark(*_: object) -> NoReturn:
    raise NoSparkHere


def document(folder: Path, endpoint: str = "http://127.0.0.1:1") -> Stream:
    """The stream ``bronze/orders``, as a document in the folder describes it."""
    connection = f"{{name: eu, region: eu-central-1{f', endpoint: {endpoint!r}' * bool(endpoint)}}}"
    fields = "stream_name: orders, connection: eu, table: bronze/orders, schema: id bigint, date: current_date()"
    kdi = "type: kdi_assets.components"
    text = f"{kdi}.KinesisConnection\nattributes: {connection}\n---\n{kdi}.KinesisTable\nattributes: {{{fields}, "
    text += "freshness: {warn: 5 minutes, fail: 2 hours}}\n"
    (only,) = load_streams(written(folder, orders=text)).values()
    return only


def drained(lake: str, *, at: int = 3, tp: TopicPartition = TP, **fields: Any) -> TableByHand:
    """A table that a drain has filled up to this number."""
    table = TableByHand(lake)
    table.ledger_commit("drain", at={tp: at}, bookmarks={tp: Bookmark("49", digest="d")}, **fields)
    return table


class Drained:
    """A stream with a shard on a server of ours, and a table that has its first record."""

    def __init__(self, server: KinesisServer, folder: Path, lake: str) -> None:
        self.server, self.client = server, kinesis_client(server.endpoint)
        self.client.create_stream(StreamName="orders", ShardCount=1)
        server.advance(60)
        sequence = self.put()
        server.advance(1)
        self.stream = document(folder, server.endpoint)
        source = KinesisSource(KinesisRegion("eu", "eu-central-1", endpoint=server.endpoint))
        now = int(server.now() * 1000)
        mark = Bookmark(sequence, arrived=now - 1000, digest=digest_of(b"key", b"{}"), seen_at=now)
        table, topic_id = TableByHand(lake), source.topic("orders").topic_id
        table.ledger_commit("drain", at={TP: 1}, bookmarks={TP: mark}, topic_id=topic_id)

    def put(self) -> str:
        """The sequence number of another record."""
        return str(self.client.put_record(StreamName="orders", Data=b"{}", PartitionKey="key")["SequenceNumber"])
