"""Expectations: conditions on what is to be a row; who does not meet them is counted in the pass that judges.

All of it is Spark SQL over the frame that ``judge`` has judged by everything else: a verdict that is still *row*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kdi_assets.drain.rules.errors import ExpectationNotMet
from kdi_assets.drain.rules.records import DEAD_LETTER, ROW, VERDICT, result
from kdi_assets.formats.rules import Rule, any_of, name
from kdi_assets.stream.stream import Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


UNMET = "_kdi_unmet"


@dataclass(frozen=True, slots=True)
class Unmet:
    """Messages that do not meet an expectation: how many, and number and offset of one of them; ``None`` of none."""

    count: int
    example: tuple[int, int] | None = None


def expectation_rules(stream: Stream) -> list[Rule]:
    """What condemns a message that would be a row otherwise."""
    asked = [f"expectations.{expected}" for expected, e in stream.expectations.items() if e.then == "dead_letter"]
    return [Rule("expectation_not_met", _unmet(field), field) for field in asked]


def with_unmet(judged: DataFrame, stream: Stream) -> DataFrame:
    """Add which expectations a message does not meet that would be a row, and let its verdict follow from them.

    Args:
        judged: With what ``shape.evaluate`` gives and the verdict, which no expectation has a part in yet.

    Returns:
        ``judged`` with ``_kdi_unmet: array<string>``, the numbers of the expectations; null where the verdict was
        another one.
    """
    from pyspark.sql import functions as F

    if not stream.expectations:
        return judged.withColumn(UNMET, F.lit(None).cast("array<string>"))
    numbers = ", ".join(f"CASE WHEN {_unmet(f)} THEN '{n}' END" for n, f in enumerate(_fields(stream)))
    unmet = f"CASE WHEN {VERDICT} = {ROW} THEN array_compact(array({numbers})) END"
    dead = any_of(expectation_rules(stream))
    then = f"CASE WHEN {VERDICT} = {ROW} AND ({dead}) THEN {DEAD_LETTER} ELSE {VERDICT} END"
    return judged.withColumns({UNMET: F.expr(unmet), VERDICT: F.expr(then)})


def unmet_counted(stream: Stream, seen: Mapping[str, Sequence[int]]) -> dict[str, Unmet]:
    """Read them from the tally: by number, the messages, with number and offset of the first."""
    found = {}
    for n, expected in enumerate(stream.expectations):
        count, *at = seen.get(str(n), (0,))
        found[expected] = Unmet(count, (at[0], at[1]) if at else None)
    return found


def refuse_unmet(stream: Stream, unmet: Mapping[str, Unmet], *, of: int) -> None:
    """Refuse if an expectation that stops the drain is not met.

    Args:
        of: So many messages that would become rows.

    Raises:
        ExpectationNotMet: With the first of those that are not.
    """
    for expected, expectation in stream.expectations.items():
        if expectation.then == "fail" and unmet[expected].count:
            partition, offset = unmet[expected].example or (0, 0)
            raise ExpectationNotMet(
                stream=stream.name,
                expectation=expected,
                sql=expectation.sql,
                count=unmet[expected].count,
                messages=of,
                topic_partition=TopicPartition(stream.topic, partition),
                offset=offset,
            )


def _fields(stream: Stream) -> list[str]:
    return [f"expectations.{expected}" for expected in stream.expectations]


def _unmet(field: str) -> str:
    """Not true: false, null, or raised."""
    return f"NOT coalesce({name(result(field))}.v, false)"
