"""A stream that a test produces to and drains."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from shutil import copytree
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, DeltaTable, Transaction

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import Cluster, OffsetRange, Stream, TopicPartition
from kdi_assets.streams.audit.audit import AuditReport, audit
from kdi_assets.streams.audit.source_comparison import Comparison, compare
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.resolve.resolve import Action, Decision, commit_decision, decide
from kdi_assets.tools.local.generator import Traffic, WebRequests
from tests.kafka_log import Headers, Produced, Publisher
from tests.oracle import Found, Reading, Row, assert_each_offset_once, at_path, attempts_that_count, entries, read_back

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WEB_REQUESTS = (
    "meta struct<producer: struct<timestamp: string>>, method string, session_id string, status int, url string, "
    "uuid string"
)

AS_DECODED: dict[str, Any] = {
    "record_ddl": "",
    "columns": {},
    "coordinates": "kafka",
    "date_expression": "to_date(kafka.timestamp)",
}
"""Fields of a stream whose columns are those of its format."""


def web_requests(topic: str, cluster: Cluster, **fields: Any) -> Stream:
    """The demo's stream over another topic."""
    given = {
        "topic": topic,
        "table": f"bronze/{topic}",
        "record_ddl": WEB_REQUESTS,
        "date_expression": "to_date(substr(meta.producer.timestamp, 1, 10))",
        "columns": {"host": "parse_url(url, 'HOST')"},
        "coordinates": "meta.kafka",
        "cluster": cluster,
        **fields,
    }
    return Stream(**given)


def web_requests_document(topic: str, **fields: str) -> str:
    """The same stream as a document; the cluster is the only one, and ``fields`` are YAML."""
    given = {
        "topic": topic,
        "table": f"bronze/{topic}",
        "schema": f'"{WEB_REQUESTS}"',
        "date": "to_date(substr(meta.producer.timestamp, 1, 10))",
        "columns": "{host: \"parse_url(url, 'HOST')\"}",
        "coordinates": "meta.kafka",
        **fields,
    }
    attributes = "".join(f"  {name}: {value}\n" for name, value in given.items())
    return f"type: kdi_assets.components.TopicTable\nattributes:\n{attributes}"


@dataclass
class DrivenStream:
    """A stream with its topic, its table and everything that was produced to it."""

    stream: Stream
    lake: str
    publisher: Publisher
    session: Callable[[], SparkSession]
    seed: int = 0

    @property
    def uri(self) -> str:
        return self.stream.table_uri(self.lake)

    def produce(self, count: int, *, bad: float = 0.0, tombstones: float = 0.0, seed: int = 0) -> list[Produced]:
        """Produce web requests, and return everything that was ever produced here."""
        partitions = self.partitions()
        traffic = WebRequests(Traffic(bad=bad, tombstones=tombstones, seed=1000 * self.seed + seed))
        values = traffic.batch(count, now=datetime.now(UTC))
        for number, value in enumerate(values):
            # We assign partitions round robin: the client would put a small batch into one topic partition.
            self.publisher.produce(self.stream.topic, value, key=f"k{number}", partition=number % partitions)
        return self.publisher.flush()

    def send(
        self,
        *values: bytes | str | None,
        partition: int = 0,
        key: bytes | str | None = None,
        headers: Headers = (),
        timestamp: datetime | None = None,
    ) -> list[Produced]:
        """Produce these values, and return everything that was ever produced here."""
        for value in values:
            self.publisher.produce(
                self.stream.topic, value, key=key, partition=partition, headers=headers, timestamp=timestamp
            )
        return self.publisher.flush()

    def tp(self, partition: int = 0) -> TopicPartition:
        """A topic partition of the stream."""
        return TopicPartition(self.stream.topic, partition)

    def partitions(self) -> int:
        """The number of topic partitions."""
        topic, until = self.stream.topic, time.monotonic() + 20
        # A broker may announce a topic before its partitions.
        while not (found := self.publisher.client.list_topics(topic, timeout=10).topics[topic].partitions):
            assert time.monotonic() < until, f"{topic} has no partitions"
            time.sleep(0.05)
        return len(found)

    def drain(self, stream: Stream | None = None, *, at: Callable[[str], None] = lambda point: None) -> DrainReport:
        """Drain, by default with the stream's own document."""
        return drain(stream or self.stream, lake=self.lake, session=self.session, at=at)

    def drain_rounds(self, rounds: int, count: int, *, bad: float = 0.0) -> list[Produced]:
        """Produce this many messages and drain them, in rounds; the result is as that of ``produce``."""
        produced: list[Produced] = []
        for seed in range(1, rounds + 1):
            produced = self.produce(count, bad=bad, seed=seed)
            self.drain()
        return produced

    def version(self) -> int:
        """The newest version of the table."""
        return TableLog.existing(self.uri).version

    def as_another_writer(self, app_id: str, *, last: int) -> None:
        """Commit a position as kafka-delta-ingest does: the last offset of topic partition 0, inclusive."""
        table = DeltaTable(self.uri)
        ingested = CommitProperties(app_transactions=[Transaction(f"{app_id}-0", last)])
        table.create_write_transaction([], mode="append", schema=table.schema(), commit_properties=ingested)

    def audit(self) -> AuditReport:
        return audit(self.stream, lake=self.lake, session=self.session)

    def compare(self) -> Comparison:
        """Compare with Kafka."""
        return compare(self.stream, lake=self.lake, session=self.session)

    def decide(self, action: Action, **options: Any) -> Decision:
        """The decision that `kdi resolve` shows."""
        return decide(self.stream, self.lake, action, session=self.session, **options)

    def carry_out(self, decision: Decision, **options: str) -> LedgerEntry:
        """Execute it as with `--yes`."""
        return commit_decision(self.session(), decision, self.stream, self.lake, **options)

    def resolve(self, action: Action, *, because: str = "", **target: Any) -> Decision:
        """Make a decision and execute it, as `kdi resolve … --yes` does."""
        decision = self.decide(action, **target)
        self.carry_out(decision, because=because)
        return decision

    def entries(self) -> list[LedgerEntry]:
        """The ledger's entries, the oldest first."""
        return entries(self.uri, self.stream.app_id)

    def feed(self, version: int) -> Counter[str]:
        """The change feed of a commit: how many rows of each kind."""
        reader = self.session().read.format("delta").option("readChangeFeed", "true")
        changes = reader.option("startingVersion", version).option("endingVersion", version).load(self.uri)
        return Counter(row["_change_type"] for row in changes.select("_change_type").collect())

    def found(self) -> Found:
        return read_back(self.stream, self.lake)

    def rows(self, *paths: str) -> list[Any]:
        """The rows in the order of their messages: a value for one path, a tuple for several, else everything."""
        where = self.stream.coordinates
        return _in_order(self.found().rows, lambda row: at_path(row, where), paths)

    def letters(self, *paths: str) -> list[Any]:
        """The same for the dead letters that count."""
        return _in_order(self.found().dead_letters, lambda letter: letter, paths)

    def assert_each_offset_once(
        self,
        produced: Sequence[Produced],
        *,
        given_up: Collection[OffsetRange] = (),
        reading: Reading | None = None,
    ) -> None:
        """Ask the oracle."""
        where = self.stream.coordinates
        assert_each_offset_once(
            produced, self.found(), coordinates=where, given_up=given_up, seed=self.seed, reading=reading
        )

    def assert_spark_finds_each_offset_once(self, produced: Sequence[Produced]) -> None:
        """Ask the oracle about what Spark reads: for shallow clones and column mapping, delta-rs reads only the log."""
        attempts = attempts_that_count(self.stream, self.lake)

        def rows(uri: str) -> list[dict[str, Any]]:
            return [row.asDict(recursive=True) for row in self.session().read.format("delta").load(uri).collect()]

        letters = [x for x in rows(self.stream.dead_letters_uri(self.lake)) if x["attempt_id"] in attempts]
        where = self.stream.coordinates
        assert_each_offset_once(produced, Found(rows(self.uri), letters), coordinates=where, seed=self.seed)

    def copied(self, lake: str | Path) -> DrivenStream:
        """The same stream over a copy of its tables, which a test may damage."""
        return replace(self, lake=str(copytree(self.lake, lake)))

    def with_definition(self, **fields: Any) -> DrivenStream:
        """The same stream under another document."""
        return replace(self, stream=replace(self.stream, **fields))


class Once:
    """A hook of a drain (``at``): does something when the drain first reaches a point."""

    def __init__(self, point: str, do: Callable[[], object]) -> None:
        self._point, self._do, self.happened = point, do, False

    def __call__(self, reached: str) -> None:
        if reached == self._point and not self.happened:
            self.happened = True
            self._do()


def _in_order(rows: Sequence[Row], coordinates: Callable[[Row], Row], paths: Sequence[str]) -> list[Any]:
    def place(row: Row) -> tuple[int, ...]:
        at = coordinates(row)
        return at["partition"], at["offset"], at.get("index", 0)

    told = [[at_path(row, path) for path in paths] or [row] for row in sorted(rows, key=place)]
    return [values[0] if len(values) == 1 else tuple(values) for values in told]
