"""Adopted rows: those that others wrote, held against the positions that a decision takes for theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from kdi_assets.drain.beyond import Beyond, Standing, from_positions
from kdi_assets.drain.case import Case, another_table, told
from kdi_assets.ledger.offsets import inside, rows_at
from kdi_assets.ledger.rewrite import MESSAGE
from kdi_assets.ledger.state import version_id
from kdi_assets.sources.kafka_frame import read_ranges
from kdi_assets.stream import OffsetRange, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TYPES = {"partition": {"integer", "long"}, "offset": {"integer", "long"}, "timestamp": {"timestamp"}}


class Odd(NamedTuple):
    """A row that is not of the message at its offset: how many there are, and one of them."""

    rows: int
    topic_partition: TopicPartition
    offset: int
    row: datetime
    message: datetime

    def __str__(self) -> str:
        row, message = told(self.row), told(self.message)
        return f"the row at offset {self.offset} of {self.topic_partition} is of {row}, the message there of {message}"


@dataclass(frozen=True)
class AdoptedRows:
    """The rows of a table at the version of a case.

    Attributes:
        positions: Next offset of every topic partition, as it would be adopted.
    """

    case: Case
    positions: Mapping[TopicPartition, int]

    @cached_property
    def have_coordinates(self) -> bool:
        """Whether the table has the columns that say where the message of a row stood; a row may lack them still."""
        fields: Any = self.case.log.schema["fields"]
        for step in self.case.stream.coordinates.lower().split("."):
            inner = next((f["type"] for f in fields if f["name"].lower() == step), None)
            fields = inner["fields"] if isinstance(inner, dict) and inner.get("type") == "struct" else []
        types = {f["name"].lower(): f["type"] for f in fields if isinstance(f["type"], str)}
        return all(types.get(name) in known for name, known in _TYPES.items())

    def without_coordinates(self) -> int | None:
        """How many do not say where their message stood; ``None``: all of them."""
        if not self.have_coordinates:
            return None
        return self._rows.where("partition IS NULL OR offset IS NULL").count()

    def refuse_another_topic(self) -> None:
        """Refuse positions of a topic that was made anew since, though it may have as many messages by now.

        The newest row of every topic partition is held against the message at its offset, where both have a time.

        Raises:
            NothingToResolve: They are not of one time.
        """
        if not self.have_coordinates:
            return
        behind = inside(from_positions(self.positions))
        below = self._rows.where(f"timestamp IS NOT NULL AND offset IS NOT NULL AND NOT ({behind})")
        newest = below.groupBy("partition").agg({"offset": "max"}).toDF("partition", "offset").collect()
        at = {TopicPartition(self.case.stream.topic, r["partition"]): r["offset"] for r in newest}
        odd = self.odd({tp: OffsetRange(tp, offset, offset + 1) for tp, offset in at.items()})
        if odd is None:
            return
        stream = self.case.stream
        why = "the topic was made anew since, or its rows do not keep Kafka's timestamps (set them null, then adopt)"
        # A table that has a ledger, though not of this table's id: that one knows the topic's id, and decides by it.
        ours = self.case.log.transaction(version_id(stream.app_id)) is not None
        anew = f"kdi resolve {stream.name} adopt   (if the topic was made anew: from its start)"
        raise self.case.no(f"{odd}: {why}", then=anew if ours else another_table(stream))

    def beyond(self) -> Beyond:
        """What lies at or behind the positions, in whose place a drain puts what it brings of these offsets.

        Raises:
            NothingToResolve: Some of these rows are, or may be, of other messages than the topic's.
        """
        if not self.have_coordinates:
            return Beyond()
        case, within = self.case, from_positions(self.positions)
        beyond = Standing(case.session(), case.stream, case.lake, case.log.version, case.topic, within).look()
        if beyond.rows or beyond.untold:
            self._refuse_others(beyond)
        return beyond

    def _refuse_others(self, beyond: Beyond) -> None:
        case = self.case
        lie = f"{beyond.row_count:,} rows lie at or behind these offsets, of another writer or a later query"
        for tp, end in sorted(beyond.ends.items()):
            if end > (there := case.topic.partitions[tp].high_watermark):
                raise case.no(f"{lie}; of {tp} up to offset {end}, and it ends at {there}")
        if beyond.untold:
            where = "at or behind these offsets have no timestamp to tell whether they are of an older topic"
            raise case.no(f"{beyond.untold:,} rows {where}; delete them first")
        if odd := self.odd({tp: OffsetRange(tp, self.positions[tp], end) for tp, end in beyond.ends.items()}):
            others = f"{odd.rows:,} of them are not of the messages there ({odd})"
            instead = "a drain would put these in their place; delete them, or set timestamps null that are not Kafka's"
            raise case.no(f"{lie}; {others}, and {instead}")

    def odd(self, ranges: Mapping[TopicPartition, OffsetRange]) -> Odd | None:
        """Rows within the ranges whose message, as far as the topic holds it, is of another time."""
        from pyspark.sql import functions as F

        held = {tp: r for tp, r in map(self._held, ranges.values()) if r.offset_count}
        if not held:
            return None
        spark, stream = self.case.session(), self.case.stream
        messages = read_ranges(spark, stream.cluster, list(held.values()), headers=False).select(*MESSAGE)
        there = messages.withColumnRenamed("timestamp", "message")
        both = self._rows.where(inside(held)).join(there, ["partition", "offset"]).where("timestamp <> message")
        first = F.expr("min_by(struct(partition, offset, timestamp, message), struct(partition, offset))")
        times = (f"unix_micros(first.{of}) AS {of}" for of in ("timestamp", "message"))
        found = both.agg(F.count("*").alias("rows"), first.alias("first"))
        r = found.selectExpr("rows", "first.partition", "first.offset", *times).collect()[0]
        tp = TopicPartition(stream.topic, r["partition"] or 0)
        return Odd(r["rows"], tp, r["offset"], _at(r["timestamp"]), _at(r["message"])) if r["rows"] else None

    def _held(self, r: OffsetRange) -> tuple[TopicPartition, OffsetRange]:
        tp = r.topic_partition
        if (offsets := self.case.topic.partitions.get(tp)) is None:
            return tp, replace(r, end=r.start)
        start = max(r.start, offsets.earliest)
        return tp, replace(r, start=start, end=max(start, min(r.end, offsets.end)))

    @cached_property
    def _rows(self) -> DataFrame:
        log = self.case.log
        return rows_at(self.case.session(), self.case.stream, log.uri, version=log.version)


def _at(microseconds: int) -> datetime:
    return datetime.fromtimestamp(microseconds / 1_000_000, UTC)
