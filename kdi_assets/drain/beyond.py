"""Beyond: rows and dead letters of messages that are to be drained again, and how a rewind takes the rows out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from kdi_assets.drain.refusals import AccountingMismatch
from kdi_assets.ledger.coverage import Bounds
from kdi_assets.ledger.delta import Staged
from kdi_assets.ledger.history import LiveHistory, live_history
from kdi_assets.ledger.letters import standing_letters
from kdi_assets.ledger.offsets import coordinates, inside
from kdi_assets.ledger.rewrite import MESSAGE, as_changes, old_rows, rows_with_files
from kdi_assets.ledger.superseded_offsets import ENDLESS
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
        messages: That these rows are of.
        letters: Dead letters that are open.
        untold: Rows where those of an older topic may lie, and that have no timestamp to tell whose they are.
    """

    rows: Mapping[TopicPartition, int] = field(default_factory=dict)
    messages: int = 0
    letters: int = 0
    untold: int = 0

    @property
    def row_count(self) -> int:
        return sum(self.rows.values())


@dataclass(frozen=True)
class RowsBeyond:
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
            .agg(F.count("*").alias("rows"), F.count_distinct("offset").alias("messages"))
        )
        found = {TopicPartition(self.stream.topic, r["partition"]): r for r in by_partition.collect()}
        return Beyond(
            rows={tp: r["rows"] for tp, r in sorted(found.items())},
            messages=sum(r["messages"] for r in found.values()),
            letters=self._letters(),
            untold=self._untold(),
        )

    def removal(self, expected: int) -> Staged:
        """Take the rows out; they go with the commit of what this gives.

        Args:
            expected: How many there are.

        Raises:
            AccountingMismatch: As many would not go.
        """
        messages = self._rows().select(*MESSAGE).distinct()
        old = old_rows(self.spark, self.stream, self.uri, messages, version=self.version, within=self.within)
        staged = old.exchanged(as_changes(old.rows, "delete")) if old else Staged()
        if staged.removed_rows != expected:
            detail = f"{staged.removed_rows:,} rows would be taken out, of {expected:,} that were counted"
            raise AccountingMismatch(stream=self.stream.name, detail=detail, ranges=tuple(self.within.values()))
        return staged

    def _rows(self) -> DataFrame:
        """``coordinates`` of the rows."""
        rows = self._within()
        if not self._doubtful:
            return rows
        certain = rows.where(f"NOT ({inside(self._doubtful)})")
        # A row says of when its message is, and not of which topic: the topic itself knows its messages.
        held = [r for r in (self._held(r) for r in self._doubtful.values()) if r.offset_count]
        if not held:
            return certain
        messages = read_ranges(self.spark, self.stream.cluster, held, headers=False).select(*MESSAGE)
        return certain.unionByName(rows.where(inside(self._doubtful)).join(messages, list(MESSAGE), "left_semi"))

    def _within(self) -> DataFrame:
        table = rows_with_files(self.spark, self.stream, self.uri, version=self.version, within=self.within)
        return table.select(*coordinates(table, self.stream))

    def _untold(self) -> int:
        if not self._doubtful:
            return 0
        return self._within().where(f"({inside(self._doubtful)}) AND timestamp IS NULL").count()

    def _held(self, r: OffsetRange) -> OffsetRange:
        offsets = self.topic.partitions[r.topic_partition]
        return replace(r, start=max(r.start, offsets.earliest), end=max(r.start, min(r.end, offsets.end)))

    @cached_property
    def _doubtful(self) -> dict[TopicPartition, OffsetRange]:
        return of_older_topics(self._history, self.topic.topic_id, self.within)

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
