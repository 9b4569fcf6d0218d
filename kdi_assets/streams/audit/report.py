"""The audit's report: counts of offsets, what is missing or there twice, and which commits did it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition

SHOWN = 20
"""Most ranges that a report lists."""
SHOWN_IN_LINE = 3
OMITTED_IF_ZERO = ("filtered", "deleted", "erased", "kept_no_longer")
"""Counts that ``AuditReport.line`` omits if they are 0."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets that a ledger commit covered and that are missing.

    Attributes:
        version: The ledger commit.
        taken_by: The commit that removed them, if it is known.
        operation: Delta's name for its operation.
    """

    range: OffsetRange
    version: int
    taken_by: int | None = None
    operation: str = ""

    def __str__(self) -> str:
        taken = f", removed by v{self.taken_by} {self.operation}" if self.taken_by is not None else ""
        return f"{self.range} of v{self.version}{taken}"

    def fields(self) -> Mapping[str, object]:
        """The form in JSON."""
        taken = {"taken_by_version": self.taken_by, "taken_by_operation": self.operation or None}
        return {**_fields(self.range), "version": self.version, **taken}


@dataclass(frozen=True, slots=True)
class Double:
    """Offsets that are there more often than ledger commits cover them.

    Attributes:
        versions: The commits that added them; empty if unknown.
    """

    range: OffsetRange
    versions: tuple[int, ...] = ()

    def __str__(self) -> str:
        added = f", added by {' and '.join(f'v{v}' for v in self.versions)}" if self.versions else ""
        return f"{self.range}{added}"

    def fields(self) -> Mapping[str, object]:
        """The form in JSON."""
        return {**_fields(self.range), "versions": list(self.versions)}


@dataclass(frozen=True, slots=True)
class Deletion:
    """Offsets that someone removed on purpose.

    Attributes:
        version: The commit, of the table or of its dead letters.
        what: ``rows`` or ``dead letters``.
        predicate: Of the commit's statement.
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
        """The form in JSON."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class AuditReport:
    """The counts of all offsets: ``offsets + twice`` is the sum of the others.

    Attributes:
        complete: Every offset from the first position to the current one is accounted for, and none is there twice.
        version: The table's newest ledger commit.
        offsets: Offsets that the live ledger entries cover, without those over which a decision set positions back.
        became_rows: Messages that are rows, each with all its rows.
        rows: Their rows.
        dead_letters: Dead letters that count.
        filtered: Messages that the stream's filter left out, or that its route left to another table.
        deleted: Offsets whose row or dead letter someone removed on purpose.
        erased: Messages that `kdi erase` removed.
        kept_no_longer: Messages that left because their dates are kept no longer.
        missing: Covered offsets that are in none of these counts.
        twice: How many times offsets are there more often than entries cover them.
        orphaned_dead_letters: Orphaned dead letters, of attempts that never committed; they do not count.
        holes: The first ranges of missing offsets; rowless messages among them cannot be told apart.
        doubles: The first ranges of offsets that are there too often.
        deletions: The commits that deleted.
        notes: What limits the audit: a takeover, a cleaned log, bounds, commits with unreadable changes.
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
    erased: int = 0
    kept_no_longer: int = 0
    missing: int = 0
    twice: int = 0
    orphaned_dead_letters: int = 0
    holes: tuple[Hole, ...] = ()
    doubles: tuple[Double, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    notes: tuple[str, ...] = ()

    def line(self) -> str:
        """The report in one line."""
        parts = ["dead_letters", "tombstones", "filtered", "gaps", "declared_losses"]
        parts += ["deleted", "erased", "kept_no_longer"]
        parts = [p for p in parts if p not in OMITTED_IF_ZERO or getattr(self, p)]
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

    def commands(self) -> tuple[str, ...]:
        """What makes the table complete again, as far as the source has the messages; empty if nothing is to do."""
        first: dict[TopicPartition, int] = {}
        for hole in self.holes:
            first.setdefault(hole.range.topic_partition, hole.range.start)  # the holes are in order
        rewind = f"kdi resolve {self.stream} rewind --topic-partition"
        found = [f"{rewind} {tp} --to {start}; then kdi drain {self.stream}" for tp, start in first.items()]
        if self.doubles:
            replay = f"kdi replay {self.stream} --from DATE --to DATE --yes"
            found.append(f"{replay}   (the dates of the rows that are there twice)")
        return tuple(found)

    def fields(self) -> dict[str, object]:
        """The form in JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "version"}
        lists = {name: [each.fields() for each in values[name]] for name in ("holes", "doubles", "deletions")}
        return {**values, **lists, "table_version": self.version, "line": self.line()}


def _first(ranges: tuple[Hole, ...] | tuple[Double, ...]) -> str:
    more = ", …" if len(ranges) > SHOWN_IN_LINE else ""
    return ", ".join(map(str, ranges[:SHOWN_IN_LINE])) + more


def _fields(r: OffsetRange) -> dict[str, object]:
    return {"topic_partition": str(r.topic_partition), "start": r.start, "end": r.end}
