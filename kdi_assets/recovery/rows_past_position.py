"""Rows and dead letters past positions that a rewind sets back, and how the rows are removed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from kdi_assets.drain.errors import AccountingMismatch
from kdi_assets.ledger.coordinates import Bounds, bounds_sql, coordinates
from kdi_assets.ledger.delta_transaction import Staged
from kdi_assets.ledger.history import LiveHistory, live_history
from kdi_assets.ledger.letters import dead_letters_with_state
from kdi_assets.ledger.rewrite import FILE, MESSAGE, as_change_rows, old_rows, rows_of_messages, rows_with_files
from kdi_assets.ledger.superseded_offsets import NO_END
from kdi_assets.sources.kafka.reader import read_ranges
from kdi_assets.sources.kafka.topic import TopicState
from kdi_assets.stream.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHORTLY = 1_000
"""So many offsets before a new position are looked at for a row that tells whether the log below is the one drained."""


@dataclass(frozen=True, slots=True)
class PastPosition:
    """What lies at or behind positions.

    Attributes:
        rows: By topic partition, where there are any.
        messages: That these rows are of.
        only_copies: Of these rows, those whose messages the broker does not have.
        kept_in: The table that such rows are kept in when they are taken out.
        letters: Dead letters that are open.
        replaced_letters: Of these, those whose offsets the broker has given to other messages, or will.
        untold: Rows where those of an older topic may lie, and that have no timestamp to tell whose they are.
    """

    rows: Mapping[TopicPartition, int] = field(default_factory=dict)
    messages: int = 0
    only_copies: int = 0
    kept_in: str = ""
    letters: int = 0
    replaced_letters: int = 0
    untold: int = 0

    @property
    def row_count(self) -> int:
        return sum(self.rows.values())


@dataclass(frozen=True)
class RowsPastPosition:
    """Rows of a table at one version that are of messages of its present topic.

    Attributes:
        topic: Rows of one that was there before lie at the same offsets.
        within: The offsets that are looked at.
        drained: Where the positions stand: what lies behind is not looked for at the broker.
    """

    spark: SparkSession
    stream: Stream
    lake: str
    version: int
    topic: TopicState
    within: Bounds
    drained: Mapping[TopicPartition, int]

    @property
    def uri(self) -> str:
        """Where the table lies."""
        return self.stream.table_uri(self.lake)

    def look(self) -> PastPosition:
        """Count what is there."""
        from pyspark.sql import functions as F

        if not self.within:
            return PastPosition()
        rows = self._rows()
        lacking = F.expr("count_if(held IS NULL)").alias("lacking")
        counts = (F.count("*").alias("rows"), F.count_distinct("offset").alias("messages"), lacking)
        there = self._messages.selectExpr(*MESSAGE, "true AS held")
        by_partition = rows.join(there, list(MESSAGE), "left").groupBy("partition").agg(*counts)
        found = {TopicPartition(self.stream.topic, r["partition"]): r for r in by_partition.collect()}
        letters, replaced = self._letters()
        return PastPosition(
            rows={tp: r["rows"] for tp, r in sorted(found.items())},
            messages=sum(r["messages"] for r in found.values()),
            only_copies=sum(r["lacking"] for r in found.values()),
            kept_in=self.stream.removed_uri(self.lake),
            letters=letters,
            replaced_letters=replaced,
            untold=self._untold(),
        )

    def last_before(self) -> dict[TopicPartition, tuple[int, int]]:
        """The last row shortly before each topic partition's offsets: its offset, and its timestamp in milliseconds.

        Absent where there is none, where it has no timestamp, and where rows of an older topic may lie.
        """
        from pyspark.sql import functions as F

        before = {tp: replace(r, start=max(0, r.start - SHORTLY), end=r.start) for tp, r in self.within.items()}
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

    def removal(self, expected: PastPosition) -> Staged:
        """Take the rows out; they go with the commit of what this gives.

        Those whose messages the broker does not have are kept first: the commit would remove their only copies. Who is
        killed in between leaves them there and in the table, and the next one keeps them once more.

        Args:
            expected: What ``snapshot`` counted.

        Raises:
            AccountingMismatch: As many would not go, or were not kept.
        """
        messages, version = self._rows().select(*MESSAGE).distinct(), self.version
        old = old_rows(self.spark, self.stream, self.uri, messages, version=version, within=self.within)
        there = sum(old.rows_by_date.values()) if old else 0
        if old is None or there != expected.row_count:
            raise self._mismatch(f"{there:,} rows would be taken out, of {expected.row_count:,} that were counted")
        only_copies = rows_of_messages(old.rows, self.stream, self._messages, others=True)
        if (kept := self._keep(only_copies) if expected.only_copies else 0) != expected.only_copies:
            raise self._mismatch(f"{kept:,} rows were kept, of {expected.only_copies:,} that the broker does not have")
        return old.rewrite_files(as_change_rows(old.rows, "delete"))

    def _keep(self, rows: DataFrame) -> int:
        """Append rows to the table of those that were removed; how many they were."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        counted = Observation()
        told = {"removed_from_version": F.lit(self.version).cast("bigint"), "removed_at": F.current_timestamp()}
        kept = rows.drop(FILE).withColumns(told).observe(counted, F.count("*").alias("rows"))
        writing = kept.write.format("delta").mode("append").option("mergeSchema", "true")
        writing.save(self.stream.removed_uri(self.lake))
        return int(counted.get["rows"])

    def _mismatch(self, detail: str) -> AccountingMismatch:
        return AccountingMismatch(stream=self.stream.name, detail=detail, ranges=tuple(self.within.values()))

    @cached_property
    def _messages(self) -> DataFrame:
        """``MESSAGE`` of what the broker has of these offsets."""
        held = [r for r in (self._held(r) for r in self.within.values()) if r.offset_count]
        if not held:
            return self.spark.createDataFrame([], "partition int, offset bigint, timestamp timestamp")
        return read_ranges(self.spark, self.stream.cluster, held).select(*MESSAGE)

    def _rows(self) -> DataFrame:
        """``coordinates`` of the rows."""
        rows = self._within()
        if not self._doubtful:
            return rows
        certain = rows.where(f"NOT ({bounds_sql(self._doubtful)})")
        # A row says of when its message is, and not of which topic: the topic itself knows its messages.
        return certain.unionByName(
            rows.where(bounds_sql(self._doubtful)).join(self._messages, list(MESSAGE), "left_semi")
        )

    def _within(self) -> DataFrame:
        table = rows_with_files(self.spark, self.stream, self.uri, version=self.version, within=self.within)
        return table.select(*coordinates(table, self.stream))

    def _untold(self) -> int:
        if not self._doubtful:
            return 0
        return self._within().where(f"({bounds_sql(self._doubtful)}) AND timestamp IS NULL").count()

    def _held(self, r: OffsetRange) -> OffsetRange:
        offsets, drained = self.topic.partitions[r.topic_partition], self.drained.get(r.topic_partition, 0)
        start = max(r.start, offsets.earliest)
        return replace(r, start=start, end=max(start, min(r.end, offsets.end, drained)))

    @cached_property
    def _doubtful(self) -> dict[TopicPartition, OffsetRange]:
        return of_older_topics(self._history, self.topic.topic_id, self.within)

    def _letters(self) -> tuple[int, int]:
        """Open dead letters, and those of them whose offsets belong to other messages by now, or will."""
        from pyspark.sql import functions as F

        entries = self._history.entries if self._history else ()
        if self._history is None or not any(e.dead_letters or e.letters_by_date for e in entries):
            return 0, 0
        letters = dead_letters_with_state(self.spark, self.stream, self.lake, self._history, with_messages=False)
        of_topic = letters.where(f"state = 'open' AND topic_id = '{self.topic.topic_id}'").where(
            bounds_sql(self.within)
        )
        there = self._messages.withColumnRenamed("timestamp", "held")
        lost = bounds_sql(from_positions({tp: held.high_watermark for tp, held in self.topic.partitions.items()}))
        replaced = F.expr(f"count_if(held <> timestamp OR ({lost}))").alias("replaced")
        both = of_topic.join(there, ["partition", "offset"], "left")
        found = both.agg(F.count("*").alias("letters"), replaced).collect()[0]
        return found["letters"], found["replaced"]

    @cached_property
    def _history(self) -> LiveHistory | None:
        return live_history(self.uri, self.stream.app_id, archive_uri=self.stream.archive_uri(self.lake))


def from_positions(positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetRange]:
    """All that lies at or behind positions."""
    return {tp: OffsetRange(tp, at, NO_END) for tp, at in sorted(positions.items())}


def of_older_topics(history: LiveHistory | None, topic_id: str, within: Bounds) -> dict[TopicPartition, OffsetRange]:
    """Where rows of a topic of this name that was there before may lie, at the offsets of the present one.

    Anywhere, if there were entries that cannot be read any more: one of them may have been of another topic.
    """
    if history is None or not history.entries:
        return {}
    if history.since and history.entries[0].kind not in ("start", "takeover"):
        return dict(within)
    before: dict[TopicPartition, int] = {}
    for entry in history.entries:
        if entry.topic_id != topic_id:
            before |= {tp: max(at, before.get(tp, 0)) for tp, at in entry.positions.items()}
    ends = ((r, min(r.end, before.get(tp, 0))) for tp, r in within.items())
    return {r.topic_partition: replace(r, end=end) for r, end in ends if r.start < end}
