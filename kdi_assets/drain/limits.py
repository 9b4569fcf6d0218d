"""Limits: how much of a plan may go wrong before its drain stops and asks, ahead of dead letters and commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kdi_assets.drain.failures import spark_failures
from kdi_assets.drain.judge import Counts
from kdi_assets.drain.refusals import Reason, TooManyDeadLetters
from kdi_assets.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN = 5
"""Reasons named in a refusal, the most frequent ones."""


def refuse_too_many_letters(stream: Stream, counts: Counts, letters: Callable[[], DataFrame]) -> None:
    """Refuse a plan that has more dead letters than the stream's limit allows.

    Args:
        counts: From the pass that judged.
        letters: Gives what ``judge.condemned`` does; called and read only to name the reasons.

    Raises:
        TooManyDeadLetters: There are more.
    """
    found, judged = counts.dead_letters, counts.rows + counts.dead_letters
    if not stream.dead_letter_limit.is_passed_by(found, of=judged):
        return
    with spark_failures(stream, "counting the reasons of dead letters"):
        reasons = _reasons(letters())
    raise TooManyDeadLetters(
        stream=stream.name, dead_letters=found, messages=judged, limit=str(stream.dead_letter_limit), reasons=reasons
    )


def _reasons(letters: DataFrame) -> tuple[Reason, ...]:
    from pyspark.sql import functions as F

    by_reason = letters.groupBy("reason", "field").agg(F.count("*").alias("letters"))
    most = by_reason.orderBy(F.desc("letters"), "reason", "field").limit(SHOWN).collect()
    return tuple(Reason(r["reason"], r["field"] or "", r["letters"]) for r in most)
