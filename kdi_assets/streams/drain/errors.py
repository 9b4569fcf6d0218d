"""Errors of a drain that has a plan: each says what is safe, and the command that decides it or tries again.

What refuses to make a plan is in ``plan_errors``.
"""

from __future__ import annotations

from typing import NamedTuple

from kdi_assets.documents.model.stream import OffsetRange
from kdi_assets.errors import KdiError, Terminal, Transient
from kdi_assets.streams.spark_errors import RunAgain


class DeadLettersReplaced(Terminal):
    """The dead-letter table was restored, replaced or dropped: letters that count may be gone."""

    stream: str
    uri: str
    recorded_id: str
    recorded_version: int
    change: str

    what_happened = (
        "{stream}: the dead letters in {uri} were {change}; the ledger counts on table {recorded_id} at version "
        "{recorded_version} or later."
    )
    what_is_safe = "the rows of the stream's own table; positions stay as they are."
    what_to_run = (
        "kdi resolve {stream} adopt-dead-letters   (accepts what is there; to bring letters back, first move them here "
        "if the stream's table was moved alone; or, if it is the same table, first kdi sql 'RESTORE TABLE delta."
        "`{uri}` TO VERSION AS OF {recorded_version}')"
    )


class DeadLettersGone(RunAgain, Transient):
    """Dead letters that this attempt wrote, or counts on, were removed before its commit."""

    uri: str
    change: str

    what_happened = "{stream}: the dead letters in {uri} were {change} before the commit."
    what_is_safe = "this attempt committed nothing; positions stay as they are."
    what_to_run = "{command}   (it names the decision, if one is needed)"


class AccountingMismatch(RunAgain, Terminal):
    """Messages planned, read and written do not add up."""

    detail: str
    ranges: tuple[OffsetRange, ...]

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"{self.stream}: {self.detail} (planned: {', '.join(map(str, self.ranges))}).",
            "nothing was committed; positions stay as they are.",
            f"{self.command}   (once more; if it fails again, keep the topic's messages and report it)",
        )


class AnotherDrainActive(RunAgain, Transient):
    """Other commits came first too often in a row."""

    detail: str

    what_happened = "{stream}: another drain or replay of this stream is active ({detail})."
    what_is_safe = "what the other one committed; since then, this one committed nothing."
    what_to_run = "{command}   (when the other one has ended)"


def another_active(stream: str, race: KdiError) -> AnotherDrainActive:
    """The error for the last race that an attempt lost."""
    return AnotherDrainActive(stream=stream, detail=race.message_parts()[0])


class RoutesChanged(Terminal):
    """The documents have other route conditions than the table's ledger, or a change of them was not finished."""

    stream: str
    why: str

    what_happened = "{stream}: {why}."
    what_is_safe = "nothing was read; positions stay as they are."
    what_to_run = "kdi resolve {stream} accept-routes --because WHY   (for all tables of its group; shown first)"


class NotDrainedYet(Terminal):
    """The table has positions of another writer, and no drain has taken them over: a replay must not touch its rows."""

    stream: str
    uri: str

    what_happened = "{stream}: {uri} has positions of another writer, and no drain has taken them over yet."
    what_is_safe = "nothing was read and nothing was written."
    what_to_run = "kdi drain {stream}   (it takes over the positions; then the same command again)"


class NothingDrained(Terminal):
    """No drain has made the table, so it has no date to replay."""

    stream: str

    what_happened = "{stream}: nothing was drained yet, so there are no rows of older dates to replay."
    what_is_safe = "nothing was read and nothing was written."
    what_to_run = "kdi drain {stream}   (in Dagster, materialize the newest date; it fills older dates too)"


class Undrainable(Terminal):
    """Offsets that no drain can read or explain; a drain first drains all else that it can, then raises this.

    Attributes:
        offsets: The first such offsets of each topic partition that has any; at least one range.
        happened: Why, in words; set by the subclass, and no field.
    """

    stream: str
    offsets: tuple[OffsetRange, ...]
    happened = ""

    def message_parts(self) -> tuple[str, str, str]:
        first, others = self.offsets[0], len(self.offsets) - 1
        besides = f" The same in {others} more topic partitions." if others else ""
        return (
            f"{self.stream}: {first}: {self.happened}.{besides}",
            "all offsets before these, and the other topic partitions, are drained; positions stay there.",
            f"kdi resolve {self.stream} accept-loss --topic-partition {first.topic_partition} --from {first.start} "
            f"--until {first.end}   (gives up exactly these; look at the brokers first)",
        )


class UnexplainedGap(Undrainable):
    """Offsets without a message, on a topic where every offset has one."""

    happened = "no message is there, and the topic is neither compacted nor written by transactions"


class TimestampTooLarge(Undrainable):
    """Messages with a timestamp that Spark cannot read, such as nanoseconds in place of milliseconds."""

    happened = "the message has a timestamp beyond the year 294,247, which Spark cannot read (nanoseconds?)"


SHOWN = 5
"""So many of the most frequent reasons are named in a refusal."""


class ReasonCount(NamedTuple):
    """A reason of dead letters, and how many have it."""

    reason: str
    field: str
    letters: int

    def __str__(self) -> str:
        return f"{self.letters:,} {self.reason}{f' in {self.field}' if self.field else ''}"


class TooManyDeadLetters(RunAgain, Terminal):
    """More messages of a plan would become dead letters than the stream allows: the document may be wrong."""

    dead_letters: int
    messages: int
    limit: str
    reasons: tuple[ReasonCount, ...]

    def message_parts(self) -> tuple[str, str, str]:
        share, named = self.dead_letters / self.messages, sum(r.letters for r in self.reasons)
        others = f", {self.dead_letters - named:,} others" if named < self.dead_letters else ""
        return (
            f"{self.stream}: {self.dead_letters:,} of {self.messages:,} messages that should become rows would be dead "
            f"letters ({share:.1%}): {', '.join(map(str, self.reasons))}{others}. The limit is {self.limit}.",
            "no dead letter was written and nothing was committed; positions stay as they are, and the topic keeps the "
            "messages until retention deletes them.",
            f"kdi peek {self.stream}; then kdi check   (first correct the document, or its `dead_letter_limit`); or "
            f"{self.command} --accept-dead-letters   (this once)",
        )
