"""What an audit found: where every offset went, what is missing or twice, and which commits did it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from kdi_assets.stream.stream import OffsetRange

SHOWN = 20
"""Ranges named at most; the report says how many offsets there are in all."""
IN_LINE = 3
"""Ranges named in the one line."""
SELDOM = ("filtered", "deleted")
"""Named in the one line where there are any."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets that a ledger commit covered and that are nowhere now.

    Attributes:
        version: The ledger commit.
        taken_by: The commit that took them away, if that is known.
        operation: Delta's word for it.
    """

    range: OffsetRange
    version: int
    taken_by: int | None = None
    operation: str = ""

    def __str__(self) -> str:
        taken = f", taken away by v{self.taken_by} {self.operation}" if self.taken_by is not None else ""
        return f"{self.range} of v{self.version}{taken}"

    def fields(self) -> Mapping[str, object]:
        """As programs read it."""
        taken = {"taken_by_version": self.taken_by, "taken_by_operation": self.operation or None}
        return {**_fields(self.range), "version": self.version, **taken}


@dataclass(frozen=True, slots=True)
class Double:
    """Offsets that are there more often than ledger commits cover them.

    Attributes:
        versions: The commits that added them; empty if none of those that can be read did.
    """

    range: OffsetRange
    versions: tuple[int, ...] = ()

    def __str__(self) -> str:
        added = f", added by {' and '.join(f'v{v}' for v in self.versions)}" if self.versions else ""
        return f"{self.range}{added}"

    def fields(self) -> Mapping[str, object]:
        """As programs read it."""
        return {**_fields(self.range), "versions": list(self.versions)}


@dataclass(frozen=True, slots=True)
class Deletion:
    """Offsets that someone removed on purpose.

    Attributes:
        version: The commit, of the table or of its dead letters.
        what: ``rows`` or ``dead letters``.
        predicate: Which ones, as the commit says it.
    """

    version: int
    operation: str
    predicate: str
    offsets: int
    what: str = "rows"

    def __str__(self) -> str:
        where = f" ({self.predicate})" if self.predicate else ""
        letters = " of the dead letters" if self.what != "rows" else ""
        return f"v{self.version} {self.operation}{where}{letters}: {self.offsets:,} offsets"

    def fields(self) -> Mapping[str, object]:
        """As programs read it."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Where every offset went: ``offsets + twice`` is the sum of all that is there and all that is not.

    Attributes:
        complete: Every offset from the first position to the current one is accounted for, and none is there twice.
        version: The table's newest ledger commit.
        offsets: Offsets that the live ledger entries cover, less those that a decision set positions back over.
        became_rows: Messages that are there as rows, each with all that it became.
        rows: These rows.
        dead_letters: Letters that count.
        filtered: Messages that the stream's filter left out, or its route left to another table.
        deleted: Offsets whose row or letter someone removed on purpose.
        missing: Offsets covered by an entry that are nothing of all this.
        twice: How often offsets are there beyond what entries cover.
        ghosts: Letters of tries that never committed; they are in the table and count for nothing.
        holes: Where offsets are missing; the first ranges. What leaves no trace cannot be told from them.
        doubles: Where offsets are there too often; the first ranges.
        deletions: Who deleted.
        notes: What limits the audit: takeover, cleaned log, a bound, commits that took rows which nobody can name.
    """

    complete: bool
    stream: str = ""
    version: int = -1
    offsets: int = 0
    became_rows: int = 0
    rows: int = 0
    dead_letters: int = 0
    tombstones: int = 0
    filtered: int = 0
    gaps: int = 0
    declared_losses: int = 0
    deleted: int = 0
    missing: int = 0
    twice: int = 0
    ghosts: int = 0
    holes: tuple[Hole, ...] = ()
    doubles: tuple[Double, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    notes: tuple[str, ...] = ()

    def line(self) -> str:
        """The report in one line."""
        parts = ["dead_letters", "tombstones", "filtered", "gaps", "declared_losses", "deleted"]
        parts = [p for p in parts if p not in SELDOM or getattr(self, p)]
        rows = f"{self.became_rows:,} messages in {self.rows:,} rows"
        rows = f"{self.rows:,} rows" if self.rows == self.became_rows else rows
        sums = " + ".join([rows, *(f"{getattr(self, p):,} {p.replace('_', ' ')}" for p in parts)])
        verdict = "none missing, none twice" if self.complete else self._faults()
        notes = "".join(f"; {note}" for note in self.notes)
        return f"audit of {self.stream} at v{self.version}: {self.offsets:,} offsets = {sums}; {verdict}{notes}"

    def _faults(self) -> str:
        faults = [f"{self.missing:,} missing: {_first(self.holes)}"] if self.missing else []
        faults += [f"{self.twice:,} twice: {_first(self.doubles)}"] if self.twice else []
        return "NOT COMPLETE: " + ("; ".join(faults) or "the ledger and the rows disagree")

    def fields(self) -> dict[str, object]:
        """As programs read it."""
        told = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "version"}
        lists = {name: [each.fields() for each in told[name]] for name in ("holes", "doubles", "deletions")}
        return {**told, **lists, "table_version": self.version, "line": self.line()}


def _first(ranges: tuple[Hole, ...] | tuple[Double, ...]) -> str:
    more = ", …" if len(ranges) > IN_LINE else ""
    return ", ".join(map(str, ranges[:IN_LINE])) + more


def _fields(r: OffsetRange) -> dict[str, object]:
    return {"topic_partition": str(r.topic_partition), "start": r.start, "end": r.end}
