"""Beyond: rows and dead letters of messages that are to be drained again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from kdi_assets.drain.refusals import AccountingMismatch
from kdi_assets.ledger.anew import ENDLESS
from kdi_assets.ledger.coverage import Bounds
from kdi_assets.ledger.delta import Staged
from kdi_assets.ledger.history import LiveHistory, live_history
from kdi_assets.ledger.letters import standing_letters
from kdi_assets.ledger.offsets import coordinates, inside
from kdi_assets.ledger.rewrite import (
    FILE,
    MESSAGE,
    as_changes,
    of_messages,
    rows_with_files,
    rows_written,
    stage_removal,
    stage_rewrite,
    touched,
)
from kdi_assets.sources.kafka import TopicState
from kdi_assets.sources.kafka_frame import read_ranges
from kdi_assets.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Beyond:
    """What lies at or behind positions.

    Attributes:
        rows: By topic partition, where there are any.
        ends: Of these, the offset behind the highest.
        messages: That these rows are of.
        letters: Dead letters that are open.
        untold: Rows without a timestamp among their coordinates: nothing tells for certain whose they are.
    """

    rows: Mapping[TopicPartition, int] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    messages: int = 0
    letters: int = 0
    untold: int = 0

    @property
    def row_count(self) -> int:
        return sum(self.rows.values())


@dataclass(frozen=True)
class Standing:
    """Rows of a table at one version that are of messages of its present topic.

    Attributes:
        topic: Rows of one that was there before lie at the same offsets.
        within: The offsets that are looked at.
    """

    spark: SparkSession
    stream: Stream
    lake: str
    version: int
    topic: TopicState
    within: Bounds

    @property
    def uri(self) -> str:
        """Where the table lies."""
        return self.stream.table_uri(self.lake)

    def look(self) -> Beyond:
        """Count what is there."""
        from pyspark.sql import functions as F

        if not self.within:
            return Beyond()
        by_partition = (
            self._rows()
            .groupBy("partition")
            .agg(
                F.count("*").alias("rows"),
                F.count_distinct("offset").alias("messages"),
                F.expr("count_if(timestamp IS NULL)").alias("untold"),
                F.expr("max(offset) + 1").alias("end"),
            )
        )
        found = {TopicPartition(self.stream.topic, r["partition"]): r for r in by_partition.collect()}
        return Beyond(
            rows={tp: r["rows"] for tp, r in sorted(found.items())},
            ends={tp: r["end"] for tp, r in found.items()},
            messages=sum(r["messages"] for r in found.values()),
            letters=self._letters(),
            untold=sum(r["untold"] for r in found.values()),
        )

    def removal(self, expected: int) -> Staged:
        """Take the rows out; they go with the commit of what this gives.

        Args:
            expected: How many there are.

        Raises:
            AccountingMismatch: As many would not go.
        """
        messages = self._rows().select(*MESSAGE).distinct()
        staged = stage_removal(self.spark, self.stream, self.uri, messages, version=self.version, within=self.within)
        return _accounted(self.stream, staged, expected, self.within)

    def _rows(self) -> DataFrame:
        """``coordinates`` of the rows."""
        table = rows_with_files(self.spark, self.stream, self.uri, version=self.version, within=self.within)
        rows = table.select(*coordinates(table, self.stream))
        doubtful = self._doubtful()
        if not doubtful:
            return rows
        certain = rows.where(f"NOT ({inside(doubtful)})")
        # A row says of when its message is, and not of which topic: the topic itself knows its messages.
        held = [r for r in (self._held(r) for r in doubtful.values()) if r.offset_count]
        if not held:
            return certain
        messages = read_ranges(self.spark, self.stream.cluster, held, headers=False).select(*MESSAGE)
        return certain.unionByName(rows.where(inside(doubtful)).join(messages, list(MESSAGE), "left_semi"))

    def _held(self, r: OffsetRange) -> OffsetRange:
        offsets = self.topic.partitions[r.topic_partition]
        return replace(r, start=max(r.start, offsets.earliest), end=max(r.start, min(r.end, offsets.end)))

    def _doubtful(self) -> dict[TopicPartition, OffsetRange]:
        """Where rows of a topic that was there before may lie."""
        before: dict[TopicPartition, int] = {}
        for entry in self._history.entries if self._history else ():
            if entry.topic_id != self.topic.topic_id:
                before |= {tp: max(at, before.get(tp, 0)) for tp, at in entry.positions.items()}
        ends = ((r, min(r.end, before.get(tp, 0))) for tp, r in self.within.items())
        return {r.topic_partition: OffsetRange(r.topic_partition, r.start, end) for r, end in ends if r.start < end}

    def _letters(self) -> int:
        if self._history is None:
            return 0
        letters = standing_letters(self.spark, self.stream, self.lake, self._history, with_messages=False)
        of_topic = letters.where(f"state = 'open' AND topic_id = '{self.topic.topic_id}'")
        return of_topic.where(inside(self.within)).count()

    @cached_property
    def _history(self) -> LiveHistory | None:
        return live_history(self.uri, self.stream.app_id, archive_uri=self.stream.archive_uri(self.lake))


def from_positions(positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetRange]:
    """All that lies at or behind positions."""
    return {tp: OffsetRange(tp, at, ENDLESS) for tp, at in sorted(positions.items())}


def in_place_of_rows(
    spark: SparkSession,
    stream: Stream,
    uri: str,
    staged: Staged,
    messages: DataFrame,
    *,
    version: int,
    within: Bounds,
) -> Staged:
    """What a drain has written, in the place of the rows that its messages have already.

    Rows of messages that the topic no longer holds, because it is compacted, stay.

    Args:
        messages: Those of the drain, as ``kafka_frame.read_ranges`` gives them.
        version: Of the table, that the drain was planned on.
        within: Where there may be such rows.

    Raises:
        AccountingMismatch: Other rows would go than these.
    """
    if not within:
        return staged
    again = messages.where(inside(within)).select(*MESSAGE)
    table = rows_with_files(spark, stream, uri, version=version, within=within)
    lying = {r[FILE]: r["count"] for r in of_messages(table, stream, again).groupBy(FILE).count().collect()}
    if not lying:
        return staged
    files = touched(spark, uri, lying, version=version)
    was = as_changes(of_messages(files.rows, stream, again), "delete")
    now = as_changes(rows_written(spark, files, staged), "insert")
    changes = was.unionByName(now, allowMissingColumns=True)
    exchanged = stage_rewrite(spark, stream, files, again, changes=changes, added=staged)
    return _accounted(stream, exchanged, sum(lying.values()), within)


def _accounted(stream: Stream, staged: Staged, expected: int, within: Bounds) -> Staged:
    if staged.removed_rows != expected:
        detail = f"{staged.removed_rows:,} rows would be taken out, of {expected:,} that are there"
        raise AccountingMismatch(stream=stream.name, detail=detail, ranges=tuple(within.values()))
    return staged
