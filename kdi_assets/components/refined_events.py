"""Dagster's events of refinements: one materialization for each touched date, and an observation of each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import dagster as dg

from kdi_assets.components.materializations import Metadata, date_event, rows_by_date, without_unknown
from kdi_assets.components.names import shown_dates, table_key
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.entry import RefineEntry, VersionRange
from kdi_assets.follow.refine.report import RefineReport
from kdi_assets.wording import counted


def touched_partitions(
    table: RefinedTableSpec, entry: RefineEntry, partitions: dg.DailyPartitionsDefinition | None
) -> list[date | None]:
    """The dates that got or lost rows and that the UI shows; ``None`` for a table without dates.

    Empty if the commit changed no row: it only moved bookmarks.
    """
    if partitions is None:
        return [None] if entry.rows_added or entry.rows_removed else []
    return [*shown_dates(entry.dates, partitions, first=table.start)]


def refined_materialization(
    table: RefinedTableSpec,
    entry: RefineEntry,
    day: date | None,
    *,
    metadata: Mapping[str, Any],
    data_version: int = -1,
) -> dg.AssetMaterialization:
    """The event of one touched date, from the commit's entry.

    Args:
        day: ``None``: the table has no date partitions.
        data_version: The date's newest version in Dagster; replaces the commit's version if it is higher.
    """
    # Counts of the whole commit are text: as numbers, the UI would plot them once per date.
    commit = [f"{counted(entry.rows_added, 'row')} added", f"{entry.rows_removed:,} removed"]
    commit += [f"on {counted(len(entry.dates), 'date')}"] if day else []
    event = {
        "rows_added": entry.rows_added if day is None else entry.rows_by_date.get(day, 0),
        "rows_removed": _rows_removed(entry, day),
        **metadata,
        "commit": ", ".join(commit),
        "delta_version": entry.version,
        "refined": entry.kind,
        "why": _why(entry),
        "upstream_versions": _version_ranges(entry.upstreams),
        "expectations_not_met": dg.MetadataValue.json(dict(entry.unmet)) if entry.unmet else None,
        "late_changes": entry.late_changes or None,
        "unknown_values": entry.unknown_values or None,
    }
    version = max(entry.version, data_version)
    return date_event(table_key(table), day, metadata=event, version=version, attempt_id=entry.attempt_id)


def refinement_metadata(report: RefineReport) -> Metadata:
    """The numbers of a run.

    The names differ from a date's: the UI plots each name, and shows a later run's beside those of an older date.
    """
    did = report.entry
    found = {
        "refinement": did.kind,
        "refinement_why": _why(did) if report.committed else None,
        "refined_rows": did.rows_added,
        "refined_rows_removed": did.rows_removed,
        "refined_dates": len(did.dates),
        "refined_changes": did.changes or None,
        "refined_late_changes": did.late_changes if did.changes else None,
        "refined_unknown_values": did.unknown_values or None,
        "refined_rows_passed_over": did.rows_passed_over or None,
        "refined_rows_by_date": rows_by_date(did.rows_by_date) if did.rows_by_date else None,
        "refined_rows_removed_by_date": rows_by_date(did.removed_by_date) if did.removed_by_date else None,
        "refined_upstream_versions": _version_ranges(did.upstreams),
        "seconds": round(report.seconds, 2),
        "refined_version": did.version if report.committed else None,
    }
    return without_unknown(found)


def refinement_summary(report: RefineReport) -> str:
    """The refinement as a line of the run's log."""
    did = report.entry
    if report.committed is None:
        return f"{did.consumer}: nothing is new upstream"
    rows = f"{did.rows_added:,} rows added, {did.rows_removed:,} removed"
    on = f" on {len(did.dates):,} dates" if did.dates else ""
    because = f" ({did.kind}: {did.why})" if did.why else ""
    return f"{did.consumer}: v{did.version}, {rows}{on} in {report.seconds:.1f} s{because}"


def _rows_removed(entry: RefineEntry, day: date | None) -> int | None:
    """Of one date, or of all; ``None``: an earlier release did not record it by date."""
    if day is None:
        return entry.rows_removed
    return entry.removed_by_date.get(day, 0) if entry.removed_by_date or not entry.rows_removed else None


def _why(entry: RefineEntry) -> str:
    """Why it was computed; what only adds new rows has no reason of its own in the entry."""
    return entry.why or f"new rows in {', '.join(consumed.table for consumed in entry.upstreams)}"


def _version_ranges(upstreams: Sequence[VersionRange]) -> dg.JsonMetadataValue:
    """By upstream table, the versions that were consumed."""
    return dg.MetadataValue.json({consumed.table: consumed.versions for consumed in upstreams})
