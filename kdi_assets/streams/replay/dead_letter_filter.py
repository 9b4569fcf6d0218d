"""A filter of dead letters, and the counts of the letters that match it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.messages.coordinates import ranges_sql
from kdi_assets.messages.formats.rules import literal
from kdi_assets.streams.ledger.history import history_of
from kdi_assets.streams.ledger.letters import DeadLetterState, dead_letters_with_state
from kdi_assets.streams.spark_errors import spark_failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Selects dead letters; by default all.

    Attributes:
        first, last: Dates of the messages' own timestamps, both inclusive, UTC.
        offsets: Offsets of one topic partition.
    """

    first: date | None = None
    last: date | None = None
    reason: str = ""
    field: str = ""
    offsets: OffsetRange | None = None

    def sql(self) -> str:
        """Spark SQL over the columns of ``dead_letters_with_state``."""
        conditions = [f"date >= DATE'{self.first}'"] if self.first else []
        conditions += [f"date <= DATE'{self.last}'"] if self.last else []
        conditions += [f"reason = {literal(self.reason)}"] if self.reason else []
        conditions += [f"field = {literal(self.field)}"] if self.field else []
        conditions += [ranges_sql([self.offsets])] if self.offsets else []
        return " AND ".join(f"({condition})" for condition in conditions) or "true"

    def options(self) -> str:
        """The options of `kdi dead-letters` for this filter, each after a blank."""
        only = self.offsets
        options = {
            "--from": self.first,
            "--to": self.last,
            "--reason": self.reason,
            "--field": self.field,
            "--topic-partition": only and only.topic_partition,
            "--offset": only.start if only and only.offset_count == 1 else None,
        }
        return "".join(f" {option} {quote(str(value))}" for option, value in options.items() if value not in (None, ""))


ALL = DeadLetterFilter()
_LAST_DAY = "DATE'9999-12-31'"


class DeadLetterGroup(NamedTuple):
    """Dead letters of one state and reason.

    Attributes:
        letters: How many.
        first, last: Dates of their messages, at most 9999-12-31: Kafka keeps any timestamp, Python not.
        example: Topic partition and offset of one of them.
    """

    state: DeadLetterState
    reason: str
    field: str
    letters: int
    first: date
    last: date
    example: tuple[TopicPartition, int]


def groups(letters: DataFrame, topic: str, *by: str) -> tuple[DeadLetterGroup, ...]:
    """Count letters by state and reason: open ones first, then the most frequent.

    Args:
        letters: As ``dead_letters_with_state`` gives them.
        by: More columns to group by.
    """
    from pyspark.sql import functions as F

    by_reason = letters.groupBy("state", "reason", "field", *by).agg(
        F.count("*").alias("letters"),
        F.expr(f"least(min(date), {_LAST_DAY})").alias("first"),
        F.expr(f"least(max(date), {_LAST_DAY})").alias("last"),
        F.min(F.struct("partition", "offset")).alias("example"),
    )
    order = F.expr("array_position(array('open', 'resolved', 'discarded'), state)")
    found = by_reason.orderBy(order, F.desc("letters"), "reason", "field").collect()
    places = [(TopicPartition(topic, r["example"]["partition"]), r["example"]["offset"]) for r in found]
    return tuple(
        DeadLetterGroup(r["state"], r["reason"] or "", r["field"] or "", r["letters"], r["first"], r["last"], place)
        for r, place in zip(found, places, strict=True)
    )


@dataclass(frozen=True, slots=True)
class DeadLetterCounts:
    """Dead letters at one version of the stream's table.

    Attributes:
        version: −1: there is no table.
        by_date: ``groups`` by the date (UTC) of the messages' own timestamps.
    """

    version: int = -1
    by_date: Mapping[date, tuple[DeadLetterGroup, ...]] = field(default_factory=dict)


def count_dead_letters(
    session: Callable[[], SparkSession], stream: Stream, lake: str, letter_filter: DeadLetterFilter
) -> DeadLetterCounts:
    """Count the letters that match the filter, by date, state and reason."""
    history = history_of(stream, lake)
    if history is None:
        return DeadLetterCounts()
    letters = dead_letters_with_state(session(), stream, lake, history).where(letter_filter.sql())
    with spark_failures(stream, "counting dead letters"):
        found = groups(letters, stream.topic, "date")
    days = sorted({group.first for group in found})
    return DeadLetterCounts(history.version, {day: tuple(g for g in found if g.first == day) for day in days})
