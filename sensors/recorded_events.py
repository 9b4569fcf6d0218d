"""Dagster's events of an asset, read back to a version of its table; each names its commit by the attempt id."""

from __future__ import annotations

from dataclasses import dataclass, field

import dagster as dg
from dagster import DagsterInstance

from kdi_assets.components.materializations import ATTEMPT_TAG, DATA_VERSION_TAG

EVENTS_PER_PAGE = 200
LOGGED_BY = "logged_by"
"""Metadata of an event that a sensor logged, because the run had not."""
_LOGGED_BY_NAMES = {LOGGED_BY, "told_by"}  # the second: of earlier releases


@dataclass(slots=True)
class RecordedEvents:
    """Pairs of attempt and date with an event, and the newest table version of each date; ``""`` without a date."""

    attempts: set[tuple[str, str]] = field(default_factory=set)
    versions: dict[str, int] = field(default_factory=dict)


def recorded_events(
    instance: DagsterInstance, records: dg.AssetKey | dg.AssetRecordsFilter, *, since: int
) -> RecordedEvents:
    """Read the materializations of an asset, newest first, back to the version before ``since``."""
    recorded = RecordedEvents()
    cursor: str | None = None
    while True:
        page = instance.fetch_materializations(records, limit=EVENTS_PER_PAGE, cursor=cursor)
        for event in filter(None, (record.asset_materialization for record in page.records)):
            tags, day = event.tags or {}, event.partition or ""
            if ATTEMPT_TAG not in tags:
                continue  # not ours, e.g. "Report materialization" in the UI
            version = int(tags[DATA_VERSION_TAG])
            recorded.attempts.add((tags[ATTEMPT_TAG], day))
            recorded.versions[day] = max(recorded.versions.get(day, -1), version)
            # A run logs a commit's events before any later event of the table, so all events before this one are of
            # older versions. An event that a sensor logged late says nothing about those before it.
            if _LOGGED_BY_NAMES.isdisjoint(event.metadata) and version < since:
                return recorded
        if not page.has_more:
            return recorded
        cursor = page.cursor
