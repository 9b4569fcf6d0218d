"""Rows and dead letters past the positions that a rewind sets, and the removal of these rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from kdi_assets.delta.files import FILE
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.transaction import Staged
from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.messages.coordinates import Bounds, bounds_sql, coordinates, keeps_timestamps
from kdi_assets.messages.held import Again
from kdi_assets.messages.of_stream import source_of
from kdi_assets.messages.topic_state import TopicState
from kdi_assets.streams.drain.errors import AccountingMismatch
from kdi_assets.streams.ledger.history import LiveHistory, live_history
from kdi_assets.streams.ledger.letters import dead_letters_with_state
from kdi_assets.streams.ledger.rewrite import MESSAGE, as_deletions, old_rows, rows_of_messages, rows_with_files
from kdi_assets.streams.ledger.superseded_offsets import NO_END

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOOKBACK_OFFSETS = 1_000
"""How far before a new position a row is looked for that shows whether the broker still has the drained log."""


@dataclass(frozen=True, slots=True)
class PastPositionCounts:
    """Rows and dead letters at or after positions.

    Attributes:
        rows: By topic partition; absent without rows.
        messages: The messages that these rows came from.
        only_copies: Rows whose messages the broker does not have, or may not have: without timestamps in the table
            nobody knows whether the message at a row's offset is the row's.
        kept_in: URI of the table that keeps such rows when they are removed.
        letters: Open dead letters.
        replaced_letters: Open dead letters whose offsets the broker has given to other messages, or will.
        without_timestamp: Rows without a timestamp, at offsets where rows of an earlier topic may lie: nobody knows
            which topic they belong to.
    """

    rows: Mapping[TopicPartition, int] = field(default_factory=dict)
    messages: int = 0
    only_copies: int = 0
    kept_in: str = ""
    letters: int = 0
    replaced_letters: int = 0
    without_timestamp: int = 0

    @property
    def row_count(self) -> int:
        return sum(self.rows.values())


@dataclass(frozen=True)
class RowsPastPosition:
    """The rows of one table version that came from messages of the present topic.

    Attributes:
        topic: The present topic; rows of an earlier topic of this name may lie at the same offsets.
        bounds: The offsets to look at.
        positions: Next offset of every topic partition; later messages are not looked for at the broker.
    """

    spark: SparkSession
    stream: Stream
    lake: str
    version: int
    topic: TopicState
    bounds: Bounds
    positions: Mapping[TopicPartition, int]

    @property
    def uri(self) -> str:
        """Where the table lies."""
        return self.stream.table_uri(self.lake)

    def count(self) -> PastPositionCounts:
        """Count rows and dead letters."""
        from pyspark.sql import functions as F

        if not self.bounds:
            return PastPositionCounts()
        only_copies = F.expr("count_if(held IS NULL)").alias("only_copies")
        counts = (F.count("*").alias("rows"), F.count_distinct("offset").alias("messages"), only_copies)
        held = self._held.selectExpr(*MESSAGE, "true AS held")
        by_partition = self._rows().join(held, list(MESSAGE), "left").groupBy("partition").agg(*counts)
        found = {TopicPartition(self.stream.topic, r["partition"]): r for r in by_partition.collect()}
        letters, replaced = self._count_letters()
        return PastPositionCounts(
            rows={tp: r["rows"] for tp, r in sorted(found.items())},
            messages=sum(r["messages"] for r in found.values()),
            only_copies=sum(r["only_copies"] for r in found.values()),
            kept_in=self.stream.removed_uri(self.lake),
            letters=letters,
            replaced_letters=replaced,
            without_timestamp=self._count_without_timestamp(),
        )

    def last_rows_before(self) -> dict[TopicPartition, tuple[int, int]]:
        """Offset and timestamp (in milliseconds) of the last row within ``LOOKBACK_OFFSETS`` before the bounds.

        Absent if there is no such row, if it has no timestamp, or if rows of an earlier topic may lie there.
        """
        from pyspark.sql import functions as F

        before = {
            tp: replace(r, start=max(0, r.start - LOOKBACK_OFFSETS), end=r.start) for tp, r in self.bounds.items()
        }
        certain = {
            tp: r
            for tp, r in before.items()
            if r.offset_count and not of_older_topics(self._history, self.topic.topic_id, {tp: r})
        }
        if not certain:
            return {}
        table = rows_with_files(self.spark, self.stream, self.uri, version=self.version, within=certain)
        at = table.select(*coordinates(table, self.stream)).where("timestamp IS NOT NULL")
        last = at.groupBy("partition").agg(
            F.expr("max(struct(offset, unix_millis(timestamp) AS written))").alias("last")
        )
        found = last.selectExpr("partition", "last.offset", "last.written").collect()
        return {TopicPartition(self.stream.topic, r["partition"]): (r["offset"], r["written"]) for r in found}

    def removal(self, expected: PastPositionCounts) -> Staged:
        """Stage the removal of the rows; it takes effect with the commit.

        Rows whose messages the broker may not have are first appended to the table of removed rows: the commit removes
        their only copies. If the process ends between the two, the rows are in both tables, and the next decision
        appends them once more.

        Args:
            expected: The result of ``count``.

        Raises:
            AccountingMismatch: The rows to remove, or the rows that were kept, are not as many as counted.
        """
        messages, version = self._rows().select(*MESSAGE).distinct(), self.version
        old = old_rows(self.spark, self.stream, self.uri, messages, version=version, within=self.bounds)
        present = sum(old.rows_by_date.values()) if old else 0
        if old is None or present != expected.row_count:
            raise self._mismatch(f"{present:,} rows would be removed, {expected.row_count:,} were counted")
        only_copies = rows_of_messages(old.rows, self.stream, self._held, others=True)
        if (kept := self._keep(only_copies) if expected.only_copies else 0) != expected.only_copies:
            raise self._mismatch(f"{kept:,} rows were kept, of {expected.only_copies:,} that the broker does not have")
        return old.rewrite_files(as_deletions(old.rows))

    def _keep(self, rows: DataFrame) -> int:
        """Append rows to the table of removed rows; answers how many."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        counted = Observation()
        removal = {"removed_from_version": F.lit(self.version).cast("bigint"), "removed_at": F.current_timestamp()}
        kept = rows.drop(FILE).withColumns(removal).observe(counted, F.count("*").alias("rows"))
        writing = kept.write.format("delta").mode("append").option("mergeSchema", "true")
        writing.save(self.stream.removed_uri(self.lake))
        return int(counted.get["rows"])

    def _mismatch(self, detail: str) -> AccountingMismatch:
        return AccountingMismatch(stream=self.stream.name, detail=detail, ranges=tuple(self.bounds.values()))

    @cached_property
    def _messages(self) -> DataFrame:
        """``MESSAGE`` of the messages that the broker has at these offsets."""
        readable = [r for r in map(self._readable, self.bounds.values()) if r.offset_count]
        if not readable:
            return self.spark.createDataFrame([], "partition int, offset bigint, timestamp timestamp")
        return self._again.read(self.spark, readable).select(*MESSAGE)

    @cached_property
    def _again(self) -> Again:
        entries = self._history.entries if self._history else ()
        return source_of(self.stream).again(self.topic, tuple(self.bounds.values()), reversed(entries))

    @cached_property
    def _held(self) -> DataFrame:
        """The messages that certainly belong to rows: none if the table keeps no timestamps.

        By its offset alone, a row may be of an earlier topic, or of a log that the broker lost the end of.
        """
        schema = TableLog.existing(self.uri, self.version).schema
        return self._messages if keeps_timestamps(schema, self.stream) else self._messages.limit(0)

    def _readable(self, r: OffsetRange) -> OffsetRange:
        offsets, position = self._again.topic.partitions[r.topic_partition], self.positions.get(r.topic_partition, 0)
        start = max(r.start, offsets.earliest)
        return replace(r, start=start, end=max(start, min(r.end, offsets.end, position)))

    def _rows(self) -> DataFrame:
        """``coordinates`` of the rows of the present topic."""
        rows = self._rows_of_any_topic()
        if not self._ambiguous:
            return rows
        certain = rows.where(f"NOT ({bounds_sql(self._ambiguous)})")
        # A row has its message's timestamp, but no topic id: only the messages show which rows are the present topic's.
        own = rows.where(bounds_sql(self._ambiguous)).join(self._messages, list(MESSAGE), "left_semi")
        return certain.unionByName(own)

    def _rows_of_any_topic(self) -> DataFrame:
        table = rows_with_files(self.spark, self.stream, self.uri, version=self.version, within=self.bounds)
        return table.select(*coordinates(table, self.stream))

    def _count_without_timestamp(self) -> int:
        if not self._ambiguous:
            return 0
        return self._rows_of_any_topic().where(f"({bounds_sql(self._ambiguous)}) AND timestamp IS NULL").count()

    def _count_letters(self) -> tuple[int, int]:
        """Open dead letters, and those whose offsets belong to other messages by now, or will."""
        from pyspark.sql import functions as F

        entries = self._history.entries if self._history else ()
        if self._history is None or not any(e.dead_letters or e.letters_by_date for e in entries):
            return 0, 0
        letters = dead_letters_with_state(self.spark, self.stream, self.lake, self._history)
        of_topic = letters.where(f"state = 'open' AND topic_id = '{self.topic.topic_id}'").where(
            bounds_sql(self.bounds)
        )
        messages = self._messages.withColumnRenamed("timestamp", "held")
        held_until = {tp: held.high_watermark for tp, held in self._again.topic.partitions.items()}
        past_end = bounds_sql(from_positions(held_until))
        replaced = F.expr(f"count_if(held <> timestamp OR ({past_end}))").alias("replaced")
        both = of_topic.join(messages, ["partition", "offset"], "left")
        found = both.agg(F.count("*").alias("letters"), replaced).collect()[0]
        return found["letters"], found["replaced"]

    @cached_property
    def _ambiguous(self) -> dict[TopicPartition, OffsetRange]:
        """Offsets at which rows of an earlier topic may lie as well."""
        return of_older_topics(self._history, self.topic.topic_id, self.bounds)

    @cached_property
    def _history(self) -> LiveHistory | None:
        return live_history(self.uri, self.stream.app_id, archive_uri=self.stream.archive_uri(self.lake))


def from_positions(positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetRange]:
    """All offsets at or after positions."""
    return {tp: OffsetRange(tp, at, NO_END) for tp, at in sorted(positions.items())}


def of_older_topics(history: LiveHistory | None, topic_id: str, bounds: Bounds) -> dict[TopicPartition, OffsetRange]:
    """The part of the bounds at which rows of an earlier topic of this name may lie.

    All of it if older entries cannot be read any more: one of them may be of another topic.
    """
    if history is None or not history.entries:
        return {}
    if history.since and history.entries[0].kind not in ("start", "takeover"):
        return dict(bounds)
    before: dict[TopicPartition, int] = {}
    for entry in history.entries:
        if entry.topic_id != topic_id:
            before |= {tp: max(at, before.get(tp, 0)) for tp, at in entry.positions.items()}
    ends = ((r, min(r.end, before.get(tp, 0))) for tp, r in bounds.items())
    return {r.topic_partition: replace(r, end=end) for r, end in ends if r.start < end}
