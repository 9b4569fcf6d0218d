"""Comparison of the messages that the source still holds with the tables, by hashes that Spark joins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.message_format import Files
from kdi_assets.documents.model.stream import OffsetRange, Stream
from kdi_assets.messages.coordinates import Bounds, ranges_sql
from kdi_assets.messages.of_stream import source_of
from kdi_assets.messages.topic_state import TopicState
from kdi_assets.streams.audit.audit import audited_history
from kdi_assets.streams.audit.coverage import Coverage, coverage
from kdi_assets.streams.audit.errors import FilesNotCompared
from kdi_assets.streams.audit.foreign_changes import row_changes
from kdi_assets.streams.audit.missing_offsets import note_on_unreadable, with_removing_commit
from kdi_assets.streams.audit.offsets_in_spark import draining_commits, islands
from kdi_assets.streams.audit.report import Hole
from kdi_assets.streams.audit.row_hashes import RowHashes
from kdi_assets.streams.drain.cached_messages import cached
from kdi_assets.streams.drain.plan_errors import TopicRecreated
from kdi_assets.streams.drain.schema_evolution import evolved
from kdi_assets.streams.ledger.erased import with_erasing_commit
from kdi_assets.streams.ledger.history import LiveHistory, removes_rows
from kdi_assets.streams.rules.records import stream_decoder, with_schemas_of
from kdi_assets.streams.rules.shape import analyse
from kdi_assets.streams.rules.table.table_schema import refuse_other_schema
from kdi_assets.streams.spark_errors import refused_to, spark_failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AT = ["partition", "offset"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How the messages that the source still holds compare with the tables.

    Attributes:
        ranges: The offsets that were read again: below the positions, as far back as Kafka has them.
        messages: How many messages they hold.
        agreed: Messages whose row or dead letter is what today's definition makes of them, and tombstones and filtered
            messages without either.
        changed: Messages with another row or dead letter.
        absent: Messages with neither that should have one; deleted, erased and declared lost messages are not counted.
        changed_at: The first ranges of changed messages, and the ledger commit that drained them.
        absent_at: The same for absent messages.
        notes: Possible causes.
        faults: Messages of the source that were drained and are others now, or that no drain read.
        system: The kind of the source.
    """

    ranges: tuple[OffsetRange, ...]
    messages: int = 0
    agreed: int = 0
    changed: int = 0
    absent: int = 0
    changed_at: tuple[Hole, ...] = ()
    absent_at: tuple[Hole, ...] = ()
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    system: str = "kafka"

    @property
    def agrees(self) -> bool:
        return not (self.changed or self.absent or self.faults)

    def line(self) -> str:
        """The comparison in one line."""
        against = f"against {self.system.capitalize()}: it"
        if not self.ranges:  # of a span whose first record is gone, Kinesis may hold others
            return f"{against} holds {'nothing' if self.system == 'kafka' else 'no whole span'} of this any more"
        held = f"{against} still holds {self.messages:,} messages of {', '.join(map(str, self.ranges))}"
        faults = f", {self.changed:,} changed, {self.absent:,} in neither table" if self.changed or self.absent else ""
        return f"{held}; {self.agreed:,} agree{faults}"

    def fields(self) -> dict[str, object]:
        """The form in JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, **{name: [hole.fields() for hole in values[name]] for name in ("changed_at", "absent_at")}}


def compare(
    stream: Stream, *, lake: str, session: Callable[[], SparkSession], bounds: Bounds | None = None
) -> Comparison:
    """Read again what the source still holds below the positions, and compare it with rows and dead letters.

    A message is compared with its row or dead letter, whatever its verdict would be today: the date window moves on.

    Raises:
        NothingToAudit: There is no ledger entry.
        TopicRecreated: The topic is not the one that was drained.
        SchemaDisagrees, ShapeMistake: The document does not fit the table.
        FilesNotCompared: The messages only name files.
        KdiError: As ``Source.again``.
    """
    if isinstance(stream.format, Files):
        raise FilesNotCompared(stream=stream.name)
    history = audited_history(stream, lake)
    covered = coverage(history.entries)
    wanted = tuple(r for _, r in sorted((bounds if bounds is not None else covered.bounds()).items()))
    again = source_of(stream).again(_same_topic(stream, history), wanted, reversed(history.entries))
    ranges = again.held(wanted)
    if not ranges and (stream.cluster.knows_offsets or not wanted):
        return Comparison((), system=stream.cluster.system)
    spark = session()
    stream = evolved(stream, lake, spark)
    without_new_columns = replace(stream, contract=replace(stream.contract, new_columns="discard_value"))
    refuse_other_schema(without_new_columns, TableLog.existing(stream.table_uri(lake)), analyse(stream, spark))
    decoder = stream_decoder(stream)
    command, step = f"kdi audit {stream.name} --against-source", "reading the topic again"
    with refused_to(command), spark_failures(stream, step), again.audited(spark, ranges) as read:
        found = Comparison(())
        if read.ranges:
            decoder = with_schemas_of(read.messages, decoder) or decoder
            compared = RowHashes(spark, stream, lake, history, read.ranges, read.messages, decoder).compared()
            found = _KafkaComparison(spark, stream, lake, history, covered, read.ranges).result(compared)
        return replace(found, faults=read.faults, system=stream.cluster.system)


def _same_topic(stream: Stream, history: LiveHistory) -> TopicState:
    topic, recorded = source_of(stream).topic(stream.topic), history.entries[-1].topic_id
    if topic.topic_id != recorded:
        raise TopicRecreated(stream=stream.name, topic=stream.topic, recorded_id=recorded, found_id=topic.topic_id)
    return topic


@dataclass(frozen=True)
class _KafkaComparison:
    spark: SparkSession
    stream: Stream
    lake: str
    history: LiveHistory
    covered: Coverage
    ranges: tuple[OffsetRange, ...]

    def result(self, compared: DataFrame) -> Comparison:
        """Count the messages, and find those that differ.

        Args:
            compared: The result of ``RowHashes.compared``.
        """
        counts = compared.selectExpr(
            "count(*) AS messages",
            "count_if(NOT agrees AND stored) AS changed",
            "count_if(NOT agrees AND NOT stored) AS absent",
        ).collect()[0]
        if not (counts["changed"] or counts["absent"]):
            return Comparison(self.ranges, counts["messages"], counts["messages"])
        # To find them, all messages are read a second time; this is rare.
        with cached(compared.where("NOT agrees")) as differing:
            return self._comparison(counts["messages"], counts["changed"], counts["absent"], differing)

    def _comparison(self, messages: int, changed: int, absent: int, differing: DataFrame) -> Comparison:
        unexplained, explained, notes = self._unexplained(differing.where("NOT stored"), absent)
        return Comparison(
            ranges=self.ranges,
            messages=messages,
            agreed=messages - changed - absent + explained,
            changed=changed,
            absent=absent - explained,
            changed_at=self._at(differing.where("stored")) if changed else (),
            absent_at=self._at(unexplained) if absent - explained else (),
            notes=(
                *(*notes, *(self._causes_of_changes() if changed else ())),
                *(self._causes_of_absence() if absent - explained else ()),
            ),
        )

    def _unexplained(self, absent: DataFrame, count: int) -> tuple[DataFrame, int, list[str]]:
        """The absent messages that were neither declared lost nor deleted; how many others there are; notes."""
        if not count:
            return absent, 0, []
        lost = ranges_sql(self.covered.declared_losses)
        log = TableLog.existing(self.stream.table_uri(self.lake))
        feed = row_changes(self.spark, self.stream, log, self.history.removing)
        covered = self._with_draining_commit(absent).withColumnRenamed("changed_by", "version")
        removed = with_removing_commit(self.spark, self.stream, self.lake, covered, feed, self.history)
        left = removed.where(f"NOT coalesce(deliberate, false) AND NOT ({lost})")
        erased_uri = self.stream.erased_uri(self.lake)
        undone = self.history.undone_expiries
        left = with_erasing_commit(self.spark, erased_uri, left, self.history.entries, undone=undone)
        left = left.where("erased_by IS NULL")
        remaining = left.count()
        unread = [c for c in feed.unread if removes_rows(c)]
        return left, count - remaining, note_on_unreadable(unread) if remaining else []

    def _with_draining_commit(self, offsets: DataFrame) -> DataFrame:
        """The offsets with the newest commit that drained them as ``changed_by``."""
        from pyspark.sql import functions as F

        drained = draining_commits(self.spark, offsets, self.covered.every_range())
        newest = drained.groupBy(*_AT).agg(F.max("changed_by").alias("changed_by"))
        return offsets.select(*_AT).join(newest, _AT, "left")

    def _at(self, offsets: DataFrame) -> tuple[Hole, ...]:
        drained = self._with_draining_commit(offsets)
        found = islands(drained, ["changed_by"], topic=self.stream.topic)
        return tuple(Hole(r, by["changed_by"]) for r, by in found)

    def _causes_of_absence(self) -> list[str]:
        filtered = sum(p.counts.filtered for p in self.covered.pieces)
        if not filtered:
            return []
        return [
            "a message is also in neither table if filter or route was changed after it was drained: "
            f"{filtered:,} were filtered"
        ]

    def _causes_of_changes(self) -> list[str]:
        by = [
            f"v{c.version} {c.operation}" for c in self.history.foreign if c.operation.startswith(("UPDATE", "MERGE"))
        ]
        others = f"; {', '.join(by)} changed rows since" if by else ""
        return [f"a row is also changed if the stream's definition was changed after it was drained{others}"]
