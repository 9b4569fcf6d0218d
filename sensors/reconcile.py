"""Dagster's events against the table's log: what a crash left untold is told. The table is the truth.

A run tells of a commit right after it. One that dies in between leaves a version in the table that no event names; so
does a commit without Dagster (``kdi drain``). Both are found here, by attempt and date, and told with what the ledger
entry says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import pairwise
from typing import Any

import dagster as dg
from dagster import DagsterInstance

from kdi_assets.components import materializations
from kdi_assets.components.materializations import ATTEMPT_TAG, DATA_VERSION_TAG
from kdi_assets.components.names import letters_key, table_key
from kdi_assets.drain.report import Commit
from kdi_assets.errors import KdiError
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.errors import CommitUnreadable
from kdi_assets.ledger.letters import remove_orphaned_dead_letters
from kdi_assets.stream.stream import Stream
from sensors.in_flight import assets_in_flight, run_of
from sensors.memory import Memory
from sensors.table_log import NewEntries, read_piece

EVENTS_PER_PAGE = 200
TOLD_BY = "told_by"


def reconcile_all(
    streams: Iterable[Stream],
    *,
    lake: str,
    instance: DagsterInstance,
    memories: Mapping[str, Memory],
    read: Callable[..., NewEntries | None] = read_piece,
) -> tuple[list[dg.AssetMaterialization], dict[str, Memory]]:
    """Compare every stream's log with Dagster's events; what is missing, and how far each comparison came.

    A stream with a run in flight, or whose log cannot be read, is compared at a later tick.
    """
    missing: list[dg.AssetMaterialization] = []
    after = dict(memories)
    for stream in streams:
        known = memories[stream.name]
        piece = read(stream.table_uri(lake), stream.app_id, table_id=known.table_id, since=known.reconciled)
        # In flight is asked after the log was read and before the events are: a run that has not finished by now may be
        # about to tell of what we read, and would tell it twice; one that has, has told what it could, and we see it.
        if piece is None or (piece.entries and run_of(stream, assets_in_flight(instance))):
            continue
        missing += untold(stream, piece.entries, instance, lake=lake)
        letters = sweep(stream, lake, piece.entries, known=known.letters)
        after[stream.name] = replace(known, table_id=piece.table_id, reconciled=piece.through, letters=letters)
    return missing, after


def untold(
    stream: Stream, entries: Sequence[LedgerEntry], instance: DagsterInstance, *, lake: str
) -> list[dg.AssetMaterialization]:
    """The events of these entries that Dagster does not have: of the table, and of its dead letters, oldest first."""
    found = []
    commits = [Commit.of(entry) for entry in entries]
    for key, dates_of, event_of in (
        (table_key(stream), materializations.touched_dates, materializations.materialization),
        (letters_key(stream), materializations.letters_dates, materializations.letters_materialization),
    ):
        touched = [(commit, day) for commit in commits for day in dates_of(stream, commit)]
        if not touched:
            continue
        told = _told(instance, key, sorted({day for _, day in touched}), since=entries[0].version)
        for commit, day in touched:
            if (commit.attempt_id, day.isoformat()) not in told.pairs:
                letters = materializations.where_letters_are(stream, [commit], lake=lake)
                metadata = {**letters, **_origin(commit, instance)}
                found.append(event_of(stream, commit, day, metadata=metadata, data_version=told.newest(day)))
    return found


@dataclass(slots=True)
class KnownVersions:
    """What Dagster's events say of some dates: which attempts they name, and each date's newest table version."""

    pairs: set[tuple[str, str]] = field(default_factory=set)
    versions: dict[str, int] = field(default_factory=dict)

    def newest(self, day: date) -> int:
        """The date's newest version, −1 without one; an event told late must not take the date back behind it."""
        return self.versions.get(day.isoformat(), -1)


def _told(instance: DagsterInstance, key: dg.AssetKey, days: Sequence[date], *, since: int) -> KnownVersions:
    """Read an asset's events of dates, newest first, as far back as they can speak of a version from ``since`` on."""
    told = KnownVersions()
    of_days = dg.AssetRecordsFilter(asset_key=key, asset_partitions=[day.isoformat() for day in days])
    cursor: str | None = None
    while True:
        page = instance.fetch_materializations(of_days, limit=EVENTS_PER_PAGE, cursor=cursor)
        for event in filter(None, (record.asset_materialization for record in page.records)):
            tags, day = event.tags or {}, event.partition or ""
            if ATTEMPT_TAG not in tags:
                continue  # someone else's, e.g. "Report materialization" in the UI
            version = int(tags[DATA_VERSION_TAG])
            told.pairs.add((tags[ATTEMPT_TAG], day))
            told.versions[day] = max(told.versions.get(day, -1), version)
            # A run tells of a commit before anything else of the stream is told, so all before this is older still.
            # What was told late, by us, says nothing of that kind.
            if TOLD_BY not in event.metadata and version < since:
                return told
        if not page.has_more:
            return told
        cursor = page.cursor


def _origin(entry: LedgerEntry, instance: DagsterInstance) -> Mapping[str, Any]:
    if entry.run_id and instance.has_run(entry.run_id):
        return {TOLD_BY: "reconcile", "drained_by": dg.MetadataValue.dagster_run(entry.run_id)}
    return {TOLD_BY: "reconcile", "drained_by": entry.run_id or f"a {entry.kind} without Dagster"}


def _letters_version(entries: Sequence[LedgerEntry], known: int) -> int:
    """The version of the dead letters that the newest entry counts on; ``known`` if none does."""
    newest = entries[-1].dead_letters_at if entries else None
    return newest.version if newest else known


def suspects_ghosts(entries: Sequence[LedgerEntry], *, known: int) -> bool:
    """Whether the dead-letter table moved further than these entries moved it.

    A drain with dead letters, and a replay, append one version and name it; who appended others did not commit. Looking
    for them reads the whole ledger, so it is not done at every tick.

    Args:
        known: The version that the entry before these counted on; -1 if unknown.
    """
    versions = [known, *(_letters_version([e], known) for e in entries)]
    steps = (after - before for before, after in pairwise(versions))
    return any(step > (e.dead_letters > 0 or bool(e.outcomes)) for step, e in zip(steps, entries, strict=True))


def sweep(stream: Stream, lake: str, entries: Sequence[LedgerEntry], *, known: int) -> int:
    """Remove ghosts if there may be any; the version of the dead letters to remember, ``known`` to try once more."""
    from deltalake.exceptions import DeltaError

    if suspects_ghosts(entries, known=known):
        try:
            remove_orphaned_dead_letters(stream, lake)
        except (KdiError, CommitUnreadable, DeltaError, OSError):
            return known  # they count for nothing, so a tick must not fail for them
    return _letters_version(entries, known)
