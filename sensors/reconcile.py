"""Dagster's events against the table's log: what a crash left untold is told. The table is the truth.

A run tells of a commit right after it. One that dies in between leaves a version in the table that no event names; so
does a commit without Dagster (``kdi drain``). Both are found here, by attempt and date, and told with what the ledger
entry says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import dagster as dg
from dagster import DagsterInstance

from kdi_assets.components.events import ATTEMPT_TAG, DATA_VERSION_TAG, DATE_TAG, materialization, touched_dates
from kdi_assets.components.names import table_key
from kdi_assets.errors import KdiError
from kdi_assets.stream import Stream
from sensors.in_flight import tables_in_flight
from sensors.memory import Memory

if TYPE_CHECKING:
    from kdi_assets.ledger.history import LedgerEntry

ENTRIES_PER_TICK = 50
"""Entries of one stream compared in one tick: without a cursor the whole log is compared, a piece at a time."""


class History(Protocol):
    """``kdi_assets.ledger.history.entries``."""

    def __call__(self, uri: str, app_id: str, since_version: int) -> Sequence[LedgerEntry]: ...


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What one stream's comparison found: the events that are missing, and the version up to which it looked."""

    missing: tuple[dg.AssetMaterialization, ...]
    version: int


def reconcile_all(
    streams: Sequence[Stream],
    *,
    lake: str,
    instance: DagsterInstance,
    memories: Mapping[str, Memory],
    look: History,
) -> tuple[list[dg.AssetMaterialization], dict[str, Memory]]:
    """Compare every stream; the missing events, and the memories with how far each comparison came.

    A stream whose log cannot be read keeps its memory: what is wrong with the table, the look at its backlog says.
    """
    missing: list[dg.AssetMaterialization] = []
    after = dict(memories)
    for stream in streams:
        memory = memories[stream.name]
        try:
            entries = look(stream.table_uri(lake), stream.app_id, memory.reconciled)
        except KdiError:
            continue
        in_flight = partial(_is_in_flight, instance, stream)
        found = reconcile(stream, entries, instance=instance, since=memory.reconciled, in_flight=in_flight)
        missing += found.missing
        after[stream.name] = replace(memory, reconciled=found.version)
    return missing, after


def _is_in_flight(instance: DagsterInstance, stream: Stream) -> bool:
    return table_key(stream) in tables_in_flight(instance)


def reconcile(
    stream: Stream,
    entries: Sequence[LedgerEntry],
    *,
    instance: DagsterInstance,
    since: int,
    in_flight: Callable[[], bool],
) -> Reconciled:
    """The materializations that the table's log has and Dagster has not.

    Args:
        entries: Ledger entries with versions above ``since``, oldest first.
        in_flight: Whether an unfinished run drains the stream now.
    """
    piece = entries[:ENTRIES_PER_TICK]
    # Asked after the log was read and before the events are: a run that had not finished by now may be about to tell
    # of what we read, and would tell it twice; one that had finished has told what it could, and we see it below.
    if not piece or in_flight():
        return Reconciled((), since)
    missing = tuple(event for entry in piece for event in _untold(stream, entry, instance))
    return Reconciled(missing, piece[-1].version)


def _untold(stream: Stream, entry: LedgerEntry, instance: DagsterInstance) -> Iterator[dg.AssetMaterialization]:
    touched = touched_dates(stream, entry)
    if not touched:
        return
    tags = instance.get_event_tags_for_asset(table_key(stream), filter_tags={ATTEMPT_TAG: entry.attempt_id})
    told = {tag.get(DATE_TAG) for tag in tags}
    for day in touched:
        if day.isoformat() not in told:
            version = max(entry.version, newest_version(instance, stream, day))
            yield materialization(stream, entry, day, metadata=_origin(entry, instance), data_version=version)


def newest_version(instance: DagsterInstance, stream: Stream, day: date) -> int:
    """The table version of the date's newest event, −1 without one.

    An event told late must not take the date's data version back behind a drain that told its own in the meantime.
    """
    of_date = dg.AssetRecordsFilter(asset_key=table_key(stream), asset_partitions=[day.isoformat()])
    records = instance.fetch_materializations(of_date, limit=1).records
    event = records[0].asset_materialization if records else None
    version = (event.tags or {}).get(DATA_VERSION_TAG, "") if event else ""
    return int(version) if version.isdigit() else -1


def _origin(entry: LedgerEntry, instance: DagsterInstance) -> Mapping[str, Any]:
    if entry.run_id and instance.has_run(entry.run_id):
        return {"told_by": "reconcile", "drained_by": dg.MetadataValue.dagster_run(entry.run_id)}
    return {"told_by": "reconcile", "drained_by": entry.run_id or "a drain without Dagster"}
