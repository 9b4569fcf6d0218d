"""Which dead letters a command is about, and how many there are of each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from kdi_assets.drain.spark_errors import spark_failures
from kdi_assets.formats.rules import literal
from kdi_assets.ledger.coordinates import bounds_sql
from kdi_assets.ledger.history import live_history
from kdi_assets.ledger.letters import DeadLetterState, dead_letters_with_state
from kdi_assets.stream.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which dead letters are meant; by default all.

    Attributes:
        first, last: Dates of the messages' own timestamps, both inclusive, UTC.
        offsets: Of one topic partition.
    """

    first: date | None = None
    last: date | None = None
    reason: str = ""
    field: str = ""
    offsets: OffsetRange | None = None

    def sql(self) -> str:
        """Spark SQL over what ``dead_letters_with_state`` gives."""
        asked = [f"date >= DATE'{self.first}'"] if self.first else []
        asked += [f"date <= DATE'{self.last}'"] if self.last else []
        asked += [f"reason = {literal(self.reason)}"] if self.reason else []
        asked += [f"field = {literal(self.field)}"] if self.field else []
        asked += [bounds_sql({self.offsets.topic_partition: self.offsets})] if self.offsets else []
        return " AND ".join(f"({condition})" for condition in asked) or "true"

    def options(self) -> str:
        """The same in the words of `kdi dead-letters`, with a blank before each."""
        only = self.offsets
        said = {
            "--from": self.first,
            "--to": self.last,
            "--reason": self.reason,
            "--field": self.field,
            "--topic-partition": only and only.topic_partition,
            "--offset": only.start if only and only.offset_count == 1 else None,
        }
        return "".join(f" {option} {quote(str(value))}" for option, value in said.items() if value not in (None, ""))


ALL = DeadLetterFilter()


class DeadLetterGroup(NamedTuple):
    """Letters of one state and reason.

    Attributes:
        letters: How many.
        first, last: Dates of their messages.
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
    """Letters by state and reason: open ones first, then the most frequent.

    Args:
        letters: As ``dead_letters_with_state`` gives them.
        by: Other columns that tell groups apart.
    """
    from pyspark.sql import functions as F

    by_reason = letters.groupBy("state", "reason", "field", *by).agg(
        F.count("*").alias("letters"),
        F.min("date").alias("first"),
        F.max("date").alias("last"),
        F.min(F.struct("partition", "offset")).alias("example"),
    )
    order = F.expr("array_position(array('open', 'resolved', 'discarded'), state)")
    return tuple(
        DeadLetterGroup(
            r["state"],
            r["reason"] or "",
            r["field"] or "",
            r["letters"],
            r["first"],
            r["last"],
            (TopicPartition(topic, r["example"]["partition"]), r["example"]["offset"]),
        )
        for r in by_reason.orderBy(order, F.desc("letters"), "reason", "field").collect()
    )


@dataclass(frozen=True, slots=True)
class Standing:
    """Dead letters at one version of the stream's table.

    Attributes:
        version: −1: there is no table.
        by_date: By the date (UTC) of their messages' own timestamps, as ``groups`` gives them.
    """

    version: int = -1
    by_date: Mapping[date, tuple[DeadLetterGroup, ...]] = field(default_factory=dict)


def standing_by_date(
    session: Callable[[], SparkSession], stream: Stream, lake: str, chosen: DeadLetterFilter
) -> Standing:
    """Count the letters that are meant, by date, state and reason."""
    history = live_history(stream.table_uri(lake), stream.app_id, archive_uri=stream.archive_uri(lake))
    if history is None:
        return Standing()
    letters = dead_letters_with_state(session(), stream, lake, history, with_messages=False).where(chosen.sql())
    with spark_failures(stream, "counting dead letters"):
        found = groups(letters, stream.topic, "date")
    days = sorted({group.first for group in found})
    return Standing(history.version, {day: tuple(g for g in found if g.first == day) for day in days})
