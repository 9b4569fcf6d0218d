"""The report of a replay or of a discard, and the refusal of a replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.errors import Terminal
from kdi_assets.streams.drain.report import Commit
from kdi_assets.streams.replay.row_diff import Change, Example, Moved


@dataclass(frozen=True, slots=True)
class Missing:
    """Messages that a topic no longer has.

    Attributes:
        messages: All of them.
        letters: How many of them are dead letters.
        rows_by_date: The rows of the others.
    """

    messages: int = 0
    letters: int = 0
    rows_by_date: Mapping[date, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(self.rows_by_date.values())


class LetterChange(NamedTuple):
    """The outcome of dead letters with one reason.

    Attributes:
        outcome: One of ``verdict.VERDICTS``, or ``elsewhere``.
        example: Topic partition and offset of one of them.
    """

    reason: str
    field: str
    outcome: str
    new_reason: str
    new_field: str
    letters: int
    example: tuple[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The outcomes of messages that were drained before, or those that a replay would have.

    Attributes:
        outcomes: How many messages have each outcome: one of ``verdict.VERDICTS``; ``elsewhere``, which belong to
            another table by now and stay unchanged; or ``discarded``.
        first, last: The replayed dates, inclusive; ``None`` in a replay of dead letters.
        rows_by_date: New rows, by their date.
        removed_by_date: Old rows, by their date.
        changes: How many rows changed, by the kind of change.
        missing: Messages that the source no longer gives; their rows and letters stay.
        withheld: Open dead letters that do not hold their whole message; they stay.
        waiting: Open dead letters at or after the positions, which the next drain reads; they stay.
        torn: Messages that lack some of their rows, because someone deleted these; they stay as they are.
        unplaced: Rows of the dates that do not show which message they came from; they stay.
        commit: ``None`` if nothing changed.
        examples, moved: Only of a dry run over dates.
        letter_changes: Only of a dry run over dead letters: by old and new reason, the most frequent first.
    """

    stream: str
    outcomes: Mapping[str, int] = field(default_factory=dict)
    first: date | None = None
    last: date | None = None
    rows_by_date: Mapping[date, int] = field(default_factory=dict)
    removed_by_date: Mapping[date, int] = field(default_factory=dict)
    changes: Mapping[Change, int] = field(default_factory=dict)
    missing: Missing = Missing()
    withheld: int = 0
    waiting: int = 0
    torn: int = 0
    unplaced: int = 0
    commit: Commit | None = None
    examples: tuple[Example, ...] = ()
    moved: tuple[Moved, ...] = ()
    letter_changes: tuple[LetterChange, ...] = ()

    @property
    def messages(self) -> int:
        """How many messages have an outcome."""
        return sum(self.outcomes.values())


class MessagesGone(Terminal):
    """The source no longer gives all messages of the dates: retention, a deletion or compaction removed some.

    Attributes:
        system: The kind of the source. Of Kinesis, records are read again only with the first one of their span.
        flags: Further options of the command line.
    """

    stream: str
    first: date
    last: date
    messages: int
    missing: Missing
    system: str = "kafka"
    flags: str = ""

    def message_parts(self) -> tuple[str, str, str]:
        command = f"kdi replay {self.stream} --from {self.first} --to {self.last}"
        days = [f"{rows:,} of {day}" for day, rows in sorted(self.missing.rows_by_date.items())]
        shown = ", ".join(days[:5]) + (f", and {len(days) - 5:,} other dates" if len(days) > 5 else "")
        rows = f" {self.missing.rows:,} rows came from them ({shown})." if days else ""
        letters = f" {self.missing.letters:,} of them are dead letters." if self.missing.letters else ""
        kinesis = "Kinesis no longer holds the spans, or their first records, of"
        holds = "Kafka no longer holds" if self.system == "kafka" else kinesis
        return (
            f"{self.stream}: {holds} {self.missing.messages:,} of the {self.messages:,} messages of "
            f"{self.first} to {self.last}.{rows}{letters}",
            "nothing was written; rows and dead letters stay as they are.",
            f"{command} --leave-missing{self.flags} --yes   (replays the others and leaves these as they are); or "
            f"{command} --into TABLE   (only writes a table that compares old and new rows)",
        )


@dataclass(frozen=True, slots=True)
class Tally:
    """A count of messages, and ``bit_xor(xxhash64(partition, offset))`` over them: equal sets have equal digests."""

    count: int = 0
    digest: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.count + other.count, self.digest ^ other.digest)

    def __sub__(self, part: Tally) -> Tally:
        return Tally(self.count - part.count, self.digest ^ part.digest)
