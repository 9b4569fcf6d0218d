"""What a replay did, would do, or cannot do; and what became of dead letters that someone gave up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import NamedTuple

from kdi_assets.drain.report import Commit
from kdi_assets.errors import Terminal
from kdi_assets.replay.row_diff import Change, Example, Moved
from kdi_assets.stream.stream import TopicPartition


@dataclass(frozen=True, slots=True)
class Missing:
    """Messages that a topic no longer has.

    Attributes:
        messages: All of them.
        letters: Those among them that are dead letters.
        rows_by_date: The rows of the others.
    """

    messages: int = 0
    letters: int = 0
    rows_by_date: Mapping[date, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(self.rows_by_date.values())


class LetterChange(NamedTuple):
    """What becomes of dead letters with one reason.

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
    """What became of messages that were drained before, or what would.

    Attributes:
        outcomes: What they are now, one of ``verdict.VERDICTS``, to how many; or ``elsewhere``: another table's by now,
            left alone; or ``discarded``.
        first, last: The dates that were replayed, inclusive; ``None`` where dead letters were.
        rows_by_date: Rows made of them, by their date.
        removed_by_date: The rows that were there of them, by their date.
        changes: Rows, by what is different about them.
        missing: Messages that Kafka no longer holds; what became of them before stays.
        withheld: Open dead letters that do not hold all of their message; left alone.
        waiting: Open dead letters at or behind the positions, which the next drain reads; left alone.
        torn: Messages of which someone deleted some rows; left alone, or these would come back.
        unplaced: Rows of the dates that do not say where their message stood; left alone.
        commit: ``None`` if nothing is different, or nothing was to be done.
        examples, moved: Of a look at dates, which does nothing.
        letter_changes: Of a look at dead letters: by old and new reason, the most frequent first.
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
        """Those that something became of."""
        return sum(self.outcomes.values())


class MessagesNotInKafka(Terminal):
    """Dates cannot be replayed whole: retention, a deletion or compaction took messages that their rows came from.

    Attributes:
        flags: What else the replay was told, as the command line has it.
    """

    stream: str
    first: date
    last: date
    messages: int
    missing: Missing
    flags: str = ""

    def message_parts(self) -> tuple[str, str, str]:
        asked = f"--from {self.first} --to {self.last}"
        days = [f"{rows:,} of {day}" for day, rows in sorted(self.missing.rows_by_date.items())]
        shown = ", ".join(days[:5]) + (f", and those of {len(days) - 5:,} other dates" if len(days) > 5 else "")
        rows = f" {self.missing.rows:,} rows were made of them ({shown})." if days else ""
        letters = f" {self.missing.letters:,} of them are dead letters." if self.missing.letters else ""
        return (
            f"{self.stream}: Kafka no longer holds {self.missing.messages:,} of the {self.messages:,} messages of "
            f"{self.first} to {self.last}.{rows}{letters}",
            "nothing was written; rows and dead letters stay as they are.",
            f"kdi replay {self.stream} {asked} --leave-missing{self.flags}   (replays the others, leaves these as they "
            f"are), or kdi replay {self.stream} {asked} --into TABLE   (another table that compares, and nothing else)",
        )


@dataclass(frozen=True, slots=True)
class Tally:
    """How many letters, and ``bit_xor(xxhash64(partition, offset))`` of them: equal sets have equal ones."""

    count: int = 0
    digest: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.count + other.count, self.digest ^ other.digest)

    def __sub__(self, part: Tally) -> Tally:
        return Tally(self.count - part.count, self.digest ^ part.digest)
