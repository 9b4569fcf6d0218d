"""Compares Dagster's events with the table's log, which is the truth, and returns the events that are missing.

A run logs its events right after a commit. A crash in between, or a commit without Dagster (``kdi drain``), leaves a
version without events. They are found by attempt and date, and made from the ledger entry.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import cache
from itertools import pairwise
from typing import Any

import dagster as dg
from dagster import DagsterInstance

from kdi_assets.components import materializations
from kdi_assets.components.column_facts import column_facts
from kdi_assets.components.names import letters_key, table_key
from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.sensors.in_flight import assets_in_flight, run_in_flight
from kdi_assets.sensors.memory import Memory
from kdi_assets.sensors.other_deployments import with_other_drain
from kdi_assets.sensors.recorded_events import LOGGED_BY, recorded_events
from kdi_assets.sensors.table_log import NewEntries, read_new_entries
from kdi_assets.streams.drain.report import Commit
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.letters import remove_orphaned_dead_letters


def reconcile_all(
    streams: Iterable[Stream],
    *,
    lake: str,
    instance: DagsterInstance,
    memories: Mapping[str, Memory],
    read: Callable[..., NewEntries | None] = read_new_entries,
) -> tuple[list[dg.AssetMaterialization], dict[str, Memory]]:
    """Compare every stream's log with Dagster's events; return the missing events and the new memories.

    A stream with a run in flight, or whose log cannot be read, is compared at a later tick.
    """
    missing: list[dg.AssetMaterialization] = []
    after, has_run, now = dict(memories), cache(instance.has_run), time.time()
    for stream in streams:
        known = memories[stream.name]
        new = read(stream.table_uri(lake), stream.app_id, table_id=known.table_id, since=known.reconciled)
        if new is not None and _is_known(new, known):
            continue
        if new is not None:
            # Also while a run of ours is in flight: two deployments drain at the same moments.
            after[stream.name] = known = with_other_drain(known, new, has_run, now=now)
        # Runs are read after the log and before the events: an unfinished run may be about to log events of these
        # entries, which would then be logged twice; a finished run has logged all it will, and we see that below.
        if new is None or (new.entries and run_in_flight(stream, assets_in_flight(instance))):
            continue
        missing += _missing_events(stream, new.entries, instance, lake=lake)
        letters = remove_orphans(stream, lake, new.entries, known=known.letters)
        after[stream.name] = replace(known, table_id=new.table_id, reconciled=new.through, letters=letters)
    return missing, after


def _is_known(new: NewEntries, known: Memory) -> bool:
    """Whether the log is where it was compared up to."""
    up_to = (known.table_id, known.reconciled)
    return not new.entries and (new.table_id, new.through) == up_to and known.watched_from >= 0


def _missing_events(
    stream: Stream, entries: Sequence[LedgerEntry], instance: DagsterInstance, *, lake: str
) -> list[dg.AssetMaterialization]:
    """The events of these entries that Dagster lacks: of the table, then of its dead letters, each oldest first."""
    missing = []
    # A date that is kept no longer stays as it is in Dagster: an event would make what is built on it out of date.
    commits = [Commit.of(entry) for entry in entries if entry.kind != "expire"]
    for key, dates_of, event_of in (
        (table_key(stream), materializations.touched_dates, materializations.materialization),
        (letters_key(stream), materializations.letters_dates, materializations.letters_materialization),
    ):
        touched = [(commit, day) for commit in commits for day in dates_of(stream, commit)]
        if not touched:
            continue
        days = sorted({day.isoformat() for _, day in touched})
        of_days = dg.AssetRecordsFilter(asset_key=key, asset_partitions=days)
        recorded = recorded_events(instance, of_days, since=entries[0].version)
        unrecorded = [
            (commit, day) for commit, day in touched if (commit.attempt_id, str(day)) not in recorded.attempts
        ]
        facts = _facts(stream, lake, unrecorded) if unrecorded and key == table_key(stream) else {}
        for commit, day in unrecorded:
            letters = materializations.dead_letters_metadata(stream, [commit], lake=lake)
            metadata = {**facts.get((commit.version, day), {}), **letters, **_origin(commit, instance)}
            version = recorded.versions.get(day.isoformat(), -1)  # a late event must not set the date back
            missing.append(event_of(stream, commit, day, metadata=metadata, data_version=version))
    return missing


def _facts(
    stream: Stream, lake: str, touched: Sequence[tuple[Commit, date]]
) -> dict[tuple[int, date], Mapping[str, Any]]:
    """Columns for each event; files and rows, which are those of the newest commit, for the newest event of a date."""
    newest = {day: commit.version for commit, day in touched}
    facts = column_facts(stream, lake, version=touched[-1][0].version, days=newest)
    return {
        (commit.version, day): {
            **facts.of_table,
            **(facts.by_date.get(day, {}) if newest[day] == commit.version else {}),
        }
        for commit, day in touched
    }


def _origin(entry: LedgerEntry, instance: DagsterInstance) -> Mapping[str, Any]:
    if entry.run_id and instance.has_run(entry.run_id):
        return {LOGGED_BY: "reconcile", "drained_by": dg.MetadataValue.dagster_run(entry.run_id)}
    return {LOGGED_BY: "reconcile", "drained_by": entry.run_id or f"a {entry.kind} without Dagster"}


def _letters_version(entries: Sequence[LedgerEntry], known: int) -> int:
    """The version of the dead-letter table that the newest entry names; ``known`` if it names none."""
    newest = entries[-1].dead_letters_at if entries else None
    return newest.version if newest else known


def may_have_orphans(entries: Sequence[LedgerEntry], *, known: int) -> bool:
    """Whether the dead-letter table has more new versions than these entries account for.

    A drain with dead letters, or a replay, appends one version and names it in its entry; a try without an entry
    appended the others. To look for its letters reads the whole ledger, so not every tick does that.

    Args:
        known: The version that the entry before these named; -1 if unknown.
    """
    versions = [known, *(_letters_version([e], known) for e in entries)]
    steps = (after - before for before, after in pairwise(versions))
    return any(step > (e.dead_letters > 0 or bool(e.outcomes)) for step, e in zip(steps, entries, strict=True))


def remove_orphans(stream: Stream, lake: str, entries: Sequence[LedgerEntry], *, known: int) -> int:
    """Remove orphaned dead letters if there may be any.

    Returns:
        The version of the dead letters for the memory; ``known`` if the removal failed, so that it is tried again.
    """
    from deltalake.exceptions import DeltaError

    if may_have_orphans(entries, known=known):
        try:
            remove_orphaned_dead_letters(stream, lake)
        except (KdiError, CommitUnreadable, DeltaError, OSError):
            return known  # no reader counts orphans, so they must not fail the tick
    return _letters_version(entries, known)
