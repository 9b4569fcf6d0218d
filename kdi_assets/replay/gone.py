"""What a replay of dates needs and Kafka does not hold any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from kdi_assets.errors import Terminal


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

    def parts(self) -> tuple[str, str, str]:
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
