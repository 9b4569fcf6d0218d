"""Compares Dagster's events with the log of a refined table, and returns the events that are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import dagster as dg
from dagster import DagsterInstance

from kdi_assets.components.column_facts import refined_facts
from kdi_assets.components.names import table_key
from kdi_assets.components.refined_events import refined_materialization, touched_partitions
from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.entry import RefineEntry, parse_refine_entry
from kdi_assets.sensors.memory import FollowerMemory
from kdi_assets.sensors.recorded_events import LOGGED_BY, recorded_events
from kdi_assets.sensors.table_log import COMMITS_PER_TICK


def missing_refined_events(
    table: RefinedTableSpec,
    lake: str,
    instance: DagsterInstance,
    memory: FollowerMemory,
    *,
    partitions: dg.DailyPartitionsDefinition | None,
) -> tuple[list[dg.AssetMaterialization], FollowerMemory]:
    """The events of commits that Dagster lacks, oldest first, and the memory once they are logged."""
    from deltalake.exceptions import DeltaError

    try:
        log = TableLog.open(table.table_uri(lake))
        if log is None:
            return [], memory
        known = memory.reconciled if log.table_id == memory.table_id else -1
        if log.version == known:
            return [], memory
        entries, through = _new_entries(log, known)
    except (KdiError, DeltaError, OSError):
        return [], memory  # the status of the table has the refusal
    events = _missing(table, lake, entries, instance, partitions)
    return events, replace(memory, table_id=log.table_id, reconciled=through)


def _new_entries(log: TableLog, after: int) -> tuple[list[RefineEntry], int]:
    entries: list[RefineEntry] = []
    through = min(log.version, after + COMMITS_PER_TICK)
    for version in range(after + 1, through + 1):
        try:
            entry = parse_refine_entry(log.commit(version).user_metadata, version)
        except CommitUnreadable as unreadable:
            if not unreadable.gone:
                return entries, version - 1  # torn or empty for a moment: the next tick reads it again
            continue  # cleaned up, and with it the entry
        if entry is not None and entry.kind != "nothing":
            entries.append(entry)
    return entries, through


def _missing(
    table: RefinedTableSpec,
    lake: str,
    entries: Sequence[RefineEntry],
    instance: DagsterInstance,
    partitions: dg.DailyPartitionsDefinition | None,
) -> list[dg.AssetMaterialization]:
    if not entries:
        return []
    recorded = recorded_events(instance, table_key(table), since=entries[0].version)
    missing = []
    newest = {day: entry.version for entry in entries for day in entry.dates}
    facts = refined_facts(table, lake, version=entries[-1].version, days=newest)
    for entry in entries:
        by = dg.MetadataValue.dagster_run(entry.run_id) if entry.run_id and instance.has_run(entry.run_id) else None
        origin: dict[str, Any] = {LOGGED_BY: "reconcile", "refined_by": by or entry.run_id or "kdi refine"}
        for day in touched_partitions(table, entry, partitions):
            key = day.isoformat() if day else ""
            if (entry.attempt_id, key) not in recorded.attempts:
                # A late event must not set the date's data version back.
                version = recorded.versions.get(key, -1)
                # The counts are those of the newest version, so only the newest event of a date has them.
                counts = facts.by_date.get(day, {}) if day and newest.get(day) == entry.version else {}
                metadata = {**facts.of_table, **counts, **origin}
                missing.append(refined_materialization(table, entry, day, metadata=metadata, data_version=version))
    return missing
