"""What drains did: one plan that became a version, several of them added up, and a drain as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import date

from kdi_assets.ledger.entry import FieldCounts, LedgerEntry
from kdi_assets.stream.stream import TopicPartition


@dataclass(frozen=True, slots=True)
class Commit(LedgerEntry):
    """A ledger entry that landed: a plan that became a version of the table.

    Attributes:
        took_seconds: From the plan to the commit; ``None`` where nobody was there.
    """

    took_seconds: float | None = None

    @classmethod
    def of(cls, entry: LedgerEntry, *, took_seconds: float | None = None) -> Commit:
        """The entry of a commit that landed."""
        return cls(**{f.name: getattr(entry, f.name) for f in fields(entry)}, took_seconds=took_seconds)

    @property
    def touched(self) -> list[date]:
        """The dates that lost or got rows."""
        rows, removed = self.rows_by_date, self.removed_by_date
        return sorted(day for day in {*rows, *removed} if rows.get(day) or removed.get(day))

    @property
    def offset_count(self) -> int:
        return sum(r.range.offset_count for r in self.ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """Commits of one stream, added up.

    Attributes:
        commits: In their order.
    """

    commits: tuple[Commit, ...] = ()

    @property
    def version(self) -> int | None:
        """The newest table version among them."""
        return self.commits[-1].version if self.commits else None

    @property
    def rows_added(self) -> int:
        return sum(c.rows for c in self.commits)

    @property
    def rows_by_date(self) -> dict[date, int]:
        rows: Counter[date] = Counter()
        for commit in self.commits:
            rows.update(commit.rows_by_date)
        return dict(sorted(rows.items()))

    @property
    def dead_letters(self) -> int:
        return sum(c.dead_letters for c in self.commits)

    @property
    def tombstones(self) -> int:
        return sum(c.tombstones for c in self.commits)

    @property
    def filtered(self) -> int:
        return sum(c.filtered for c in self.commits)

    @property
    def gaps(self) -> int:
        """Offsets without a message."""
        return sum(c.gap_offsets for c in self.commits)

    @property
    def bytes(self) -> int:
        """Size of the files."""
        return sum(c.bytes for c in self.commits)

    @property
    def unmet(self) -> dict[str, int]:
        """By expectation, the messages that did not meet it."""
        unmet: Counter[str] = Counter()
        for commit in self.commits:
            unmet.update(commit.unmet)
        return dict(unmet)

    @property
    def unknown(self) -> FieldCounts:
        """Fields that messages had and the record had not."""
        return sum((commit.unknown for commit in self.commits), FieldCounts())

    @property
    def misfits(self) -> FieldCounts:
        """Fields that were left out because their values did not suit the type."""
        return sum((commit.misfits for commit in self.commits), FieldCounts())


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainReport(Commits):
    """What one drain did: a commit for each plan that was carried out, none if nothing was waiting.

    Attributes:
        settled: Why positions were committed before reading, if they were.
        positions: Next offset of every topic partition at the end.
        backlog_before: Offsets that waited at the first look.
        backlog_after: Offsets that waited at the end: what came meanwhile.
        lag_seconds: Age of the oldest message that waited at the first look; ``None`` if none did.
        cpu_seconds: Of this process and the driver's JVM together; on a shared driver others' work is in it.
    """

    stream: str
    positions: Mapping[TopicPartition, int]
    backlog_before: int
    backlog_after: int
    settled: tuple[str, ...] = ()
    lag_seconds: float | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0
