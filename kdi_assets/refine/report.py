"""What a refinement did, for logs, Dagster's events and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date

from kdi_assets.refine.entry import Consumed, RefineEntry, RefineKind


@dataclass(frozen=True, slots=True)
class RefineReport:
    """One refinement of a table.

    Attributes:
        table: The refined table's path.
        kind: What was computed.
        why: For ``dates`` and ``rebuild``: why the changes alone were not enough; part of a sentence in a log.
        version: The table version of the commit; ``None``: nothing was committed.
        upstreams: What was consumed.
        dates: Dates whose rows changed; empty for a table without date partitions.
        rows_added, rows_removed: Rows by the files' statistics; a changed row counts in both.
        rows_by_date: Rows added, by date.
        unmet: By expectation, how many new rows do not meet it.
        changes, late_changes, unknown_values: As ``ChangeCounts``.
        seconds: Wall seconds.
        entry: What the commit's log says of it; ``None``: nothing was committed.
    """

    table: str
    kind: RefineKind
    why: str = ""
    version: int | None = None
    upstreams: tuple[Consumed, ...] = ()
    dates: tuple[date, ...] = ()
    rows_added: int = 0
    rows_removed: int = 0
    rows_by_date: Mapping[date, int] = field(default_factory=dict)
    unmet: Mapping[str, int] = field(default_factory=dict)
    changes: int = 0
    late_changes: int = 0
    unknown_values: int = 0
    seconds: float = 0.0
    entry: RefineEntry | None = None
