"""Limits: how much of a plan may go wrong before its drain stops and asks, ahead of dead letters and commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kdi_assets.drain.failures import spark_failures
from kdi_assets.drain.refusals import RunAgain
from kdi_assets.errors import Terminal
from kdi_assets.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN = 5
"""Reasons named in a refusal, the most frequent ones."""


class Reason(NamedTuple):
    """Why messages become dead letters, and how many of them."""

    reason: str
    field: str
    letters: int

    def __str__(self) -> str:
        return f"{self.letters:,} {self.reason}{f' in {self.field}' if self.field else ''}"


@dataclass(eq=False, kw_only=True)
class TooManyDeadLetters(RunAgain, Terminal):
    """More messages of one plan would become dead letters than the stream allows: the document may be what is wrong."""

    dead_letters: int
    messages: int
    limit: str
    reasons: tuple[Reason, ...]

    def parts(self) -> tuple[str, str, str]:
        share, named = self.dead_letters / self.messages, sum(r.letters for r in self.reasons)
        others = f", {self.dead_letters - named:,} others" if named < self.dead_letters else ""
        return (
            f"{self.stream}: {self.dead_letters:,} of {self.messages:,} messages that should become rows would be dead "
            f"letters ({share:.1%}): {', '.join(map(str, self.reasons))}{others}. The limit is {self.limit}.",
            "no dead letter was written and nothing was committed; positions stay as they are, and the messages lie in "
            "the topic until retention deletes them.",
            f"kdi peek {self.stream} shows what becomes of messages: correct the document (or its `dead_letter_limit`) "
            f"and run `kdi check`; or take them for what they are, this once: "
            f"{self.command} --accept-dead-letters",
        )


def refuse_too_many_letters(stream: Stream, dead_letters: int, letters: Callable[[], DataFrame], *, of: int) -> None:
    """Refuse where more messages would be dead letters than the stream's limit allows.

    Args:
        of: The messages that should become rows, these among them.
        letters: Gives what ``judge.condemned`` does; called and read only to name the reasons.

    Raises:
        TooManyDeadLetters: There are more.
    """
    if not stream.dead_letter_limit.is_passed_by(dead_letters, of=of):
        return
    with spark_failures(stream, "counting the reasons of dead letters"):
        reasons = _reasons(letters())
    raise TooManyDeadLetters(
        stream=stream.name, dead_letters=dead_letters, messages=of, limit=str(stream.dead_letter_limit), reasons=reasons
    )


def _reasons(letters: DataFrame) -> tuple[Reason, ...]:
    from pyspark.sql import functions as F

    by_reason = letters.groupBy("reason", "field").agg(F.count("*").alias("letters"))
    most = by_reason.orderBy(F.desc("letters"), "reason", "field").limit(SHOWN).collect()
    return tuple(Reason(r["reason"], r["field"] or "", r["letters"]) for r in most)
