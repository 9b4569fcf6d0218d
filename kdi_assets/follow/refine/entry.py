"""What a refinement writes into its commit's user metadata, for history, audit and Dagster's events."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Literal

from kdi_assets.delta.log import metadata_with
from kdi_assets.follow.refine.errors import RefinedByNewerRelease

RefineKind = Literal["nothing", "changes", "dates", "rebuild", "expire"]
"""What was computed: nothing was new; only what is new; whole dates; or the whole table. ``expire`` computed nothing:
it removed the rows of dates that the table keeps no longer."""


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The versions of an upstream table that a refinement consumed.

    Attributes:
        table: Path of the upstream table below the lake's root.
        table_id: Delta's id of that table.
        since: The version consumed before, exclusive; ``None``: the first time, or everything again.
        version: The version up to which it is consumed now, inclusive.
    """

    table: str
    table_id: str
    since: int | None
    version: int

    @property
    def versions(self) -> str:
        """The versions in words."""
        return f"up to {self.version}" if self.since is None else f"({self.since}, {self.version}]"


FORMAT, FORMAT_OF_KEPT_DATES = 1, 2
"""Of entries and bookmarks. A new field needs no new format if older releases can ignore it; any other change does. A
release that does not know of dates that are kept no longer would remove frozen rows, or bring removed ones back."""


BY_DATE = {"rows_by_date", "removed_by_date"}


@dataclass(frozen=True, slots=True)
class RefineEntry:
    """One commit of a refined table.

    Attributes:
        consumer: The refined table's path.
        attempt_id: Of the plan.
        run_id: Dagster's run, if there is one.
        kind: What was computed.
        why: For ``dates`` and ``rebuild``: why.
        upstreams: What was consumed.
        dates: Dates whose rows changed, ascending; empty for a table without date partitions.
        rows_added, rows_removed: Rows of the files that the commit added and removed; a changed row counts in both.
        rows_by_date, removed_by_date: The same, by date. Entries of earlier releases lack the second.
        unmet: By expectation, how many new rows do not meet it.
        cpu_seconds: From the beginning of the run to the commit, as ``CpuClock`` counts them; ``None`` if an earlier
            release did not record them.
        bytes_added, files_added: Size and number of the data files that the commit added. Entries of earlier releases
            lack them.
        changes, late_changes, unknown_values: As ``ChangeCounts``.
        rows_passed_over: Rows that came upstream on dates that are kept no longer.
        kept_from: Of ``expire``: the first date that the table keeps.
        version: The commit's version; known by the log, not written.
    """

    consumer: str
    attempt_id: str
    kind: RefineKind
    upstreams: tuple[VersionRange, ...] = ()
    run_id: str = ""
    why: str = ""
    dates: tuple[date, ...] = ()
    rows_added: int = 0
    rows_removed: int = 0
    rows_by_date: Mapping[date, int] = field(default_factory=dict)
    removed_by_date: Mapping[date, int] = field(default_factory=dict)
    unmet: Mapping[str, int] = field(default_factory=dict)
    cpu_seconds: float | None = None
    bytes_added: int = 0
    files_added: int = 0
    changes: int = 0
    late_changes: int = 0
    unknown_values: int = 0
    rows_passed_over: int = 0
    kept_from: date | None = None
    version: int = -1


def refine_entry_to_json(entry: RefineEntry) -> str:
    """The form in the log."""
    written = {name: value for name, value in asdict(entry).items() if value and name != "version"}
    written["dates"] = [day.isoformat() for day in entry.dates]
    if entry.kept_from:
        written["kept_from"] = entry.kept_from.isoformat()
    for name in BY_DATE & written.keys():
        written[name] = {day.isoformat(): rows for day, rows in written[name].items()}
    written_as = FORMAT_OF_KEPT_DATES if entry.kind == "expire" else FORMAT
    return json.dumps({"kdi_refine": written_as, **written}, separators=(",", ":"))


def metadata_of(entry: RefineEntry) -> Callable[[int], str]:
    """The user metadata of the entry's commit, as a ``CommitRequest`` takes it: the same at every version."""
    return lambda version: refine_entry_to_json(entry)


def parse_refine_entry(user_metadata: str, version: int) -> RefineEntry | None:
    """The entry in a commit's user metadata; ``None`` if the commit is not a refinement.

    Raises:
        RefinedByNewerRelease: This release does not know the entry's format.
    """
    written = metadata_with("kdi_refine", user_metadata)
    if written is None:
        return None
    if written["kdi_refine"] not in (FORMAT, FORMAT_OF_KEPT_DATES):
        raise RefinedByNewerRelease(table=str(written.get("consumer")), found=written["kdi_refine"])
    known = {name: written[name] for name in RefineEntry.__dataclass_fields__ if name in written}
    known["upstreams"] = tuple(VersionRange(**of_table) for of_table in written.get("upstreams", ()))
    known["dates"] = tuple(date.fromisoformat(day) for day in written.get("dates", ()))
    if "kept_from" in written:
        known["kept_from"] = date.fromisoformat(written["kept_from"])
    for name in BY_DATE & written.keys():
        known[name] = {date.fromisoformat(day): rows for day, rows in written[name].items()}
    return RefineEntry(**{**known, "version": version})
