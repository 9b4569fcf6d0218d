"""Compare: what Kafka still holds against what was made of it, message by message, by hashes that Spark joins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kdi_assets.drain.contract import with_rescued
from kdi_assets.drain.evolution import evolved
from kdi_assets.drain.explode import Elements, apart, elements_of, in_rows
from kdi_assets.drain.failures import spark_failures
from kdi_assets.drain.masking import letter_columns, with_secrets
from kdi_assets.drain.records import decode, knowing_schemas_of, stream_decoder
from kdi_assets.drain.refusals import TopicRecreated
from kdi_assets.drain.shape import analyse, evaluate, table_columns
from kdi_assets.drain.table_schema import refuse_other_schema
from kdi_assets.drain.verdict import leaves_no_trace
from kdi_assets.formats.decoder import DECODED, VALUE
from kdi_assets.formats.of_stream import StreamDecoder
from kdi_assets.ledger.audit import audited_history
from kdi_assets.ledger.changes import changes, removed_by_count
from kdi_assets.ledger.coverage import Bounds, Coverage, coverage
from kdi_assets.ledger.history import LiveHistory, removes_rows
from kdi_assets.ledger.letters import OUTCOME, standing_letters
from kdi_assets.ledger.log import TableLog
from kdi_assets.ledger.offsets import coordinates, covering, inside, islands
from kdi_assets.ledger.reckoning import taken_away
from kdi_assets.ledger.report import SHOWN, Hole
from kdi_assets.sources.kafka import read_topic
from kdi_assets.sources.kafka_frame import read_ranges
from kdi_assets.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_AT = ["partition", "offset"]
_LETTER = ("key", "value", "headers", "timestamp", "timestamp_type")
# Microseconds: by default JSON has milliseconds, and a change below them would not show.
_EXACT = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


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
        return {
            "ranges": list(self.ranges),
            "messages": self.messages,
            "agreed": self.agreed,
            "changed": self.changed,
            "absent": self.absent,
            "changed_at": [at.fields() for at in self.changed_at],
            "absent_at": [at.fields() for at in self.absent_at],
            "notes": list(self.notes),
        }


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
    refuse_other_schema(gains_nothing, stream.table_uri(lake), analyse(stream, spark))
    decoder = stream_decoder(stream)
    with spark_failures(stream, "reading the topic again"):
        messages = read_ranges(spark, stream.cluster, ranges)
        decoder = knowing_schemas_of(messages, decoder) or decoder
        return _Comparing(spark, stream, lake, history, covered, ranges, messages, decoder).result()


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
    messages: DataFrame
    decoder: StreamDecoder

    def result(self) -> Comparison:
        from pyspark import StorageLevel

        judged = self._judged()
        counts = judged.selectExpr(
            "count(*) AS messages",
            "count_if(NOT agrees AND stored) AS changed",
            "count_if(NOT agrees AND NOT stored) AS absent",
        ).collect()[0]
        if not (counts["changed"] or counts["absent"]):
            return Comparison(self.ranges, counts["messages"], counts["messages"])
        # Where they are takes a second look at all of it; nearly always there is nothing to look for.
        differing = judged.where("NOT agrees").persist(StorageLevel.DISK_ONLY)
        try:
            return self._comparison(counts["messages"], counts["changed"], counts["absent"], differing)
        finally:
            differing.unpersist()

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

    def _judged(self) -> DataFrame:
        """``partition, offset, stored: boolean, agrees: boolean`` of every message that Kafka holds."""
        from pyspark.sql import functions as F

        same = "CASE WHEN is_row THEN stored_hash = row_hash ELSE stored_hash = letter_hash END"
        both = self._messages().join(self._rows().unionByName(self._letters()), _AT, "left")
        seen = both.groupBy(*_AT).agg(
            F.expr("max(stored_hash IS NOT NULL)").alias("stored"),
            F.expr(f"coalesce(max({same}), false)").alias("same"),
            F.expr("max(untraced)").alias("untraced"),
        )
        return seen.selectExpr(*_AT, "stored", "CASE WHEN stored THEN same ELSE untraced END AS agrees")

    def _messages(self) -> DataFrame:
        from pyspark.sql import functions as F

        evaluated = evaluate(decode(self.messages, self.decoder), self.stream, self._elements)
        evaluated = with_secrets(evaluated, self.stream)
        if self.stream.rescued:
            evaluated = with_rescued(self.decoder.with_unknown(evaluated, where=DECODED), self.stream)
        letter = [F.expr(VALUE if name == "value" else f"kafka.{name}").alias(name) for name in self._letter]
        messages = evaluated.select(
            *in_rows(self._columns, self._elements),
            F.expr(leaves_no_trace(self.stream)).alias("_kdi_untraced"),
            _hash(letter).alias("_kdi_letter_hash"),
        )
        rows = apart(messages, self._columns, self._elements, beside=["_kdi_untraced", "_kdi_letter_hash"])
        types = {f.name.lower(): f.dataType for f in self._table().schema.fields}
        # The table's spelling of nested names.
        columns = [F.col(f"`{column}`").cast(types[column.lower()]).alias(column) for column in self._columns]
        return self._by_message(
            rows.select(
                *coordinates(rows, self.stream),
                F.col("_kdi_untraced").alias("untraced"),
                _hash(columns).alias("row_hash"),
                F.col("_kdi_letter_hash").alias("letter_hash"),
            ),
            "row_hash",
        )

    def _rows(self) -> DataFrame:
        from pyspark.sql import functions as F

        table = self._table()
        columns = [F.col(f"`{column}`").alias(column) for column in self._columns]
        rows = table.select(*coordinates(table, self.stream), _hash(columns).alias("stored_hash"))
        messages = self._by_message(rows.where(self._inside), "stored_hash")
        return messages.select(*_AT, "stored_hash", F.lit(True).alias("is_row"))

    def _by_message(self, rows: DataFrame, hashed: str) -> DataFrame:
        """One row for each message, and in ``hashed`` what its rows have there together."""
        from pyspark.sql import functions as F

        if self._elements is None:
            return rows
        others = [c for c in rows.columns if c not in (*_AT, "timestamp", "index", "count", hashed)]
        every = F.expr(f"xxhash64(count(*), bit_xor(xxhash64(index, {hashed})))").alias(hashed)
        # By their time, too: other messages had these offsets before the topic was made anew.
        return rows.groupBy(*_AT, "timestamp").agg(every, *(F.first(c).alias(c) for c in others))

    @cached_property
    def _elements(self) -> Elements | None:
        return elements_of(self.stream, self.decoder.record, self.spark)

    @cached_property
    def _columns(self) -> dict[str, str]:
        """The table's columns, as ``table_columns`` has them."""
        return table_columns(self.stream, self.decoder.record, self._elements)

    def _letters(self) -> DataFrame:
        from pyspark.sql import functions as F

        letters = standing_letters(self.spark, self.stream, self.lake, self.history)
        stored = _hash([F.col(name) for name in self._letter]).alias("stored_hash")
        no_row = letters.where(self._inside).where(f"{OUTCOME} IS DISTINCT FROM 'row'")
        return no_row.select(*_AT, stored, F.lit(False).alias("is_row"))

    @property
    def _letter(self) -> list[str]:
        """What a letter has in common with its message."""
        return letter_columns(self.stream, self.decoder.record, _LETTER)

    def _table(self) -> DataFrame:
        uri = self.stream.table_uri(self.lake)
        return self.spark.read.format("delta").option("versionAsOf", self.history.version).load(uri)

    @property
    def _inside(self) -> str:
        return inside({r.topic_partition: r for r in self.ranges})

    def _unexplained(self, absent: DataFrame, count: int) -> tuple[DataFrame, int, list[str]]:
        """The absent without what was declared lost or deleted; how many these are; what only a count explains."""
        if not count:
            return absent, 0, []
        lost = " OR ".join(_sql(r) for r in self.covered.declared_losses) or "false"
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
        # Of rows; of how many messages they were, nothing tells where a message has several.
        removed = 0 if self.stream.explodes else sum(removed_by_count(c) for c in feed.unread if removes_rows(c))
        if remaining and remaining <= removed:
            said = ", ".join(f"v{c.version} {c.operation}" for c in feed.unread if removes_rows(c))
            return left, count, [f"{said}: what it deleted is known by its count alone, which explains what is absent"]
        return left, count - remaining, []

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


def _hash(columns: Sequence[Column]) -> Column:
    """Of the columns' names and values; ``xxhash64`` alone passes over nulls and refuses maps."""
    from pyspark.sql import functions as F

    return F.xxhash64(F.to_json(F.struct(*columns), _EXACT))


def _sql(r: OffsetRange) -> str:
    return f"(partition = {r.topic_partition.partition} AND offset >= {r.start} AND offset < {r.end})"
