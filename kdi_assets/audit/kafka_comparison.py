"""What Kafka still holds against what is in the tables, message by message, by hashes that Spark joins."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from kdi_assets.audit.audit import audited_history
from kdi_assets.audit.coverage import Coverage, coverage
from kdi_assets.audit.foreign_changes import changes
from kdi_assets.audit.missing_offsets import taken_away, unnamed
from kdi_assets.audit.offsets_in_spark import covering, islands
from kdi_assets.audit.report import SHOWN, Hole
from kdi_assets.audit.row_hashes import RowHashes
from kdi_assets.drain.cached_messages import cached
from kdi_assets.drain.errors import TopicRecreated
from kdi_assets.drain.rules.records import knowing_schemas_of, stream_decoder
from kdi_assets.drain.rules.schema_evolution import evolved
from kdi_assets.drain.rules.shape import analyse
from kdi_assets.drain.rules.table_schema import refuse_other_schema
from kdi_assets.drain.spark_errors import spark_failures
from kdi_assets.ledger.coordinates import Bounds, inside
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.history import LiveHistory, removes_rows
from kdi_assets.sources.kafka.reader import read_ranges
from kdi_assets.sources.kafka.topic import read_topic
from kdi_assets.stream.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AT = ["partition", "offset"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What became of the messages that Kafka still holds.

    Attributes:
        ranges: What was read again: below the positions, as far back as Kafka reaches.
        messages: How many there are in them.
        agreed: Rows and letters that are what today's definition makes of the message; tombstones and filtered
            messages without either.
        changed: Messages whose row or letter is another one.
        absent: Messages with a value, not filtered, and with neither; what was deleted or declared lost is not among
            them.
        changed_at: Where, and which ledger commit brought them; the first ranges.
        absent_at: The same of the absent.
        notes: What may be behind it.
    """

    ranges: tuple[OffsetRange, ...]
    messages: int = 0
    agreed: int = 0
    changed: int = 0
    absent: int = 0
    changed_at: tuple[Hole, ...] = ()
    absent_at: tuple[Hole, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        return not (self.changed or self.absent)

    def line(self) -> str:
        """The comparison in one line."""
        if not self.ranges:
            return "against Kafka: it holds nothing of this any more"
        held = f"against Kafka: it still holds {self.messages:,} messages of {', '.join(map(str, self.ranges))}"
        faults = f", {self.changed:,} changed, {self.absent:,} in neither table" if not self.agrees else ""
        return f"{held}; {self.agreed:,} agree{faults}"

    def fields(self) -> dict[str, object]:
        """As programs read it."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**said, **{name: [hole.fields() for hole in said[name]] for name in ("changed_at", "absent_at")}}


def compare(
    stream: Stream, *, lake: str, session: Callable[[], SparkSession], bounds: Bounds | None = None
) -> Comparison:
    """Read again what Kafka still holds below the positions, and compare it with rows and dead letters.

    A message is compared with what it became, row or letter, not judged anew: the window of dates moves on.

    Raises:
        NothingToAudit: There is no ledger entry.
        TopicRecreated: The topic there now is not the one that was drained.
        SchemaDisagrees, ShapeMistake: The document does not fit the table.
    """
    history = audited_history(stream, lake)
    covered = coverage(history.entries)
    ranges = _held(stream, history, bounds if bounds is not None else covered.bounds())
    if not ranges:
        return Comparison(())
    spark = session()
    stream = evolved(stream, lake, spark)
    gains_nothing = replace(stream, contract=replace(stream.contract, new_columns="discard_value"))
    refuse_other_schema(gains_nothing, TableLog.existing(stream.table_uri(lake)), analyse(stream, spark))
    decoder = stream_decoder(stream)
    with spark_failures(stream, "reading the topic again"):
        messages = read_ranges(spark, stream.cluster, ranges)
        decoder = knowing_schemas_of(messages, decoder) or decoder
        compared = RowHashes(spark, stream, lake, history, ranges, messages, decoder).judged()
        return _Comparing(spark, stream, lake, history, covered, ranges).result(compared)


def _held(stream: Stream, history: LiveHistory, bounds: Bounds) -> tuple[OffsetRange, ...]:
    topic, recorded = read_topic(stream.cluster, stream.topic), history.entries[-1].topic_id
    if topic.topic_id != recorded:
        raise TopicRecreated(stream=stream.name, topic=stream.topic, recorded_id=recorded, found_id=topic.topic_id)
    held = (
        OffsetRange(tp, max(r.start, topic.partitions[tp].earliest), min(r.end, topic.partitions[tp].end))
        for tp, r in sorted(bounds.items())
        if tp in topic.partitions
    )
    return tuple(r for r in held if r.start < r.end)


@dataclass(frozen=True)
class _Comparing:
    spark: SparkSession
    stream: Stream
    lake: str
    history: LiveHistory
    covered: Coverage
    ranges: tuple[OffsetRange, ...]

    def result(self, judged: DataFrame) -> Comparison:
        """What became of the messages.

        Args:
            judged: As ``Hashed.judged`` gives them.
        """
        counts = judged.selectExpr(
            "count(*) AS messages",
            "count_if(NOT agrees AND stored) AS changed",
            "count_if(NOT agrees AND NOT stored) AS absent",
        ).collect()[0]
        if not (counts["changed"] or counts["absent"]):
            return Comparison(self.ranges, counts["messages"], counts["messages"])
        # Where they are takes a second look at all of it; nearly always there is nothing to look for.
        with cached(judged.where("NOT agrees")) as differing:
            return self._comparison(counts["messages"], counts["changed"], counts["absent"], differing)

    def _comparison(self, messages: int, changed: int, absent: int, differing: DataFrame) -> Comparison:
        nowhere, explained, notes = self._unexplained(differing.where("NOT stored"), absent)
        return Comparison(
            ranges=self.ranges,
            messages=messages,
            agreed=messages - changed - absent + explained,
            changed=changed,
            absent=absent - explained,
            changed_at=self._at(differing.where("stored")) if changed else (),
            absent_at=self._at(nowhere) if absent - explained else (),
            notes=(*notes, *(self._causes() if changed else ()), *(self._filtered() if absent - explained else ())),
        )

    def _unexplained(self, absent: DataFrame, count: int) -> tuple[DataFrame, int, list[str]]:
        """The absent without what was declared lost or deleted; how many these are; notes."""
        if not count:
            return absent, 0, []
        lost = " OR ".join(inside({r.topic_partition: r}) for r in self.covered.declared_losses) or "false"
        log = TableLog.existing(self.stream.table_uri(self.lake))
        feed = changes(self.spark, self.stream, log, self.history.removing)
        taken = taken_away(
            self.spark,
            self.stream,
            self.lake,
            self._covered(absent).withColumnRenamed("changed_by", "version"),
            feed,
            self.history,
        )
        left = taken.where(f"NOT coalesce(deliberate, false) AND NOT ({lost})")
        remaining = left.count()
        unread = [c for c in feed.unread if removes_rows(c)]
        return left, count - remaining, unnamed(unread) if remaining else []

    def _covered(self, offsets: DataFrame) -> DataFrame:
        """The offsets with the newest entry that drained them as ``changed_by``."""
        from pyspark.sql import functions as F

        drained = covering(self.spark, offsets, self.covered.drained)
        newest = drained.groupBy(*_AT).agg(F.max("changed_by").alias("changed_by"))
        return offsets.select(*_AT).join(newest, _AT, "left")

    def _at(self, offsets: DataFrame) -> tuple[Hole, ...]:
        found: list[Any] = islands(self._covered(offsets), ["changed_by"], limit=SHOWN)
        return tuple(Hole(self._range(r), r["changed_by"]) for r in found)

    def _range(self, r: Mapping[str, Any]) -> OffsetRange:
        return OffsetRange(TopicPartition(self.stream.topic, r["partition"]), r["start"], r["end"])

    def _filtered(self) -> list[str]:
        """Why messages may be in neither table that nobody lost."""
        filtered = sum(p.counts.filtered for p in self.covered.pieces)
        if not filtered:
            return []
        said = "a message is in neither table also where filter or route was changed since"
        return [f"{said}: {filtered:,} were filtered"]

    def _causes(self) -> list[str]:
        """What may have changed rows that nobody tampered with."""
        by = [
            f"v{c.version} {c.operation}" for c in self.history.foreign if c.operation.startswith(("UPDATE", "MERGE"))
        ]
        others = f"; {', '.join(by)} changed rows since" if by else ""
        return [f"a row is changed also where the stream's definition was, after it was drained{others}"]
