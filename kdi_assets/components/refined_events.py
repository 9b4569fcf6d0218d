"""Dagster's events of refinements: one materialization for each touched date, and an observation of each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

import dagster as dg

from kdi_assets.components.materializations import Metadata, date_event, known
from kdi_assets.components.names import table_key
from kdi_assets.refine.entry import Consumed, RefineEntry
from kdi_assets.refine.report import RefineReport
from kdi_assets.stream.refined_table import RefinedTableSpec


def touched_partitions(entry: RefineEntry, partitions: dg.DailyPartitionsDefinition | None) -> list[date | None]:
    """The dates that got or lost rows, if Dagster's partitions have them; ``None`` for a table without dates.

    Empty if the commit changed no row: it only moved bookmarks.
    """
    if partitions is None:
        return [None] if entry.rows_added or entry.rows_removed else []
    return [day for day in sorted(entry.dates) if partitions.has_partition_key(day.isoformat())]


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
    # Counts of the whole commit are one JSON value: as numbers, the UI would plot them once per date.
    commit = {"rows_added": entry.rows_added, "rows_removed": entry.rows_removed, "dates": len(entry.dates)}
    event = {
        "rows_added": entry.rows_added if day is None else entry.rows_by_date.get(day, 0),
        "rows_removed": entry.rows_removed if day is None else None,
        **metadata,
        "commit": dg.MetadataValue.json(commit),
        "delta_version": entry.version,
        "attempt_id": entry.attempt_id,
        "refined": entry.kind,
        "why": entry.why or None,
        "upstream_versions": _stretches(entry.upstreams),
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
    days = {day.isoformat(): rows for day, rows in sorted(report.rows_by_date.items())}
    found = {
        "refinement": report.kind,
        "refinement_why": report.why or None,
        "refined_rows": report.rows_added,
        "refined_rows_removed": report.rows_removed,
        "refined_dates": len(report.dates),
        "refined_changes": report.changes or None,
        "refined_late_changes": report.late_changes if report.changes else None,
        "refined_unknown_values": report.unknown_values or None,
        "refined_rows_by_date": dg.MetadataValue.json(days) if days else None,
        "refined_upstream_versions": _stretches(report.upstreams),
        "seconds": round(report.seconds, 2),
        "refined_version": report.version,
    }
    return known(found)


def refinement_summary(report: RefineReport) -> str:
    """The refinement as a line of the run's log."""
    if report.version is None:
        return f"{report.table}: nothing is new upstream"
    rows = f"{report.rows_added:,} rows added, {report.rows_removed:,} removed"
    on = f" on {len(report.dates):,} dates" if report.dates else ""
    because = f" ({report.kind}: {report.why})" if report.why else ""
    return f"{report.table}: v{report.version}, {rows}{on} in {report.seconds:.1f} s{because}"


def _stretches(upstreams: Sequence[Consumed]) -> dg.JsonMetadataValue:
    """By upstream table, the versions that were consumed."""
    return dg.MetadataValue.json({consumed.table: consumed.versions for consumed in upstreams})
