"""The runs that a tick requests: as few as possible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

import dagster as dg

from kdi_assets.components.asset_checks import checks_of_each_drain
from kdi_assets.components.names import dates, table_key
from kdi_assets.components.table_run import REQUESTED_TAG
from kdi_assets.documents.model.stream import Stream
from kdi_assets.sensors.policy import Due

PARTITION_TAG = "dagster/partition"
LANES = 2
"""Runs that a tick requests at once for each driver; Dagster runs two more beside them, for checks, replays and
downstream assets."""
ONE_RUN_SECONDS = 5.0
"""Streams that are expected to take no longer share one run: a second one would cost more to start than it saves."""
TAG_CHARACTERS = 1000


def run_requests(
    due: Sequence[Due],
    streams: Mapping[str, Stream],
    *,
    now: datetime,
    first_checks: Mapping[str, Sequence[dg.AssetCheckKey]] = MappingProxyType({}),
    drivers: int = 1,
) -> list[dg.RunRequest]:
    """Pack the due streams into few runs.

    A stream whose window does not include today is left out: Dagster would refuse the tick. ``before_window`` names it.

    Args:
        first_checks: By stream, checks that its run makes besides those of each drain (``checks_of_first_drain``).
        drivers: Warm drivers that share the work.
    """
    today = now.date().isoformat()
    begun = [one for one in due if dates(streams[one.backlog.stream]).has_partition_key(today)]
    return [_request(pack, streams, first_checks, now=now) for pack in packs(begun, drivers=drivers)]


def requested_assets(requests: Iterable[dg.RunRequest]) -> set[dg.AssetKey]:
    """The assets that the requested runs will materialize."""
    return {key for request in requests for key in request.asset_selection or ()}


def packs(due: Sequence[Due], *, drivers: int = 1) -> list[list[Due]]:
    """Which streams share a run: all, or as many per lane as makes the lanes end at the same time.

    Streams whose last run moved no position have a run of their own: a failing or slow one must not delay the others.
    """
    healthy, suspects = [d for d in due if not d.suspect], [d for d in due if d.suspect]
    lanes = [healthy] if _expected_seconds(healthy) <= ONE_RUN_SECONDS else _lanes(healthy, LANES * drivers)
    return [pack for pack in (*lanes, suspects) if pack]


def _lanes(due: Sequence[Due], number: int) -> list[list[Due]]:
    """The longest first, each to the lane with the least work; streams of a route group share a lane."""
    lanes: list[list[Due]] = [[] for _ in range(number)]
    groups: dict[object, list[Due]] = {}
    for one in due:
        groups.setdefault(one.group or one.backlog.stream, []).append(one)
    for group in sorted(groups.values(), key=_expected_seconds, reverse=True):
        min(lanes, key=_expected_seconds).extend(group)
    return lanes


def _expected_seconds(due: Sequence[Due]) -> float:
    return sum(d.backlog.pace.seconds_for(d.backlog.offsets) for d in due)


def _request(
    due: Sequence[Due],
    streams: Mapping[str, Stream],
    first_checks: Mapping[str, Sequence[dg.AssetCheckKey]],
    *,
    now: datetime,
) -> dg.RunRequest:
    # No run key: Dagster never forgets a key, and would drop the second request after a failed run.
    backlogs = [d.backlog for d in due]
    return dg.RunRequest(
        asset_selection=[table_key(streams[b.stream]) for b in backlogs],
        # None would select every check, and some read the whole table.
        asset_check_keys=[
            key for b in backlogs for key in (*checks_of_each_drain(streams[b.stream]), *first_checks.get(b.stream, ()))
        ],
        partition_key=now.date().isoformat(),
        tags={
            REQUESTED_TAG: now.isoformat(),
            # Dagster refuses a request for assets with different partitions, unless its partition is resolved already.
            PARTITION_TAG: now.date().isoformat(),
            "kdi/streams": _tag([b.stream for b in backlogs]),
            "kdi/why": _tag([f"{d.backlog.stream}: {d.reason}" for d in due]),
            "kdi/backlog": str(sum(b.offsets for b in backlogs)),
            "kdi/lag_seconds": str(round(max(b.lag_seconds or 0.0 for b in backlogs))),
        },
    )


def _tag(items: Sequence[str]) -> str:
    """The items that fit into a tag: PostgreSQL indexes tags, and refuses more than 2,700 characters."""
    text, left = "", len(items)
    for item in items:
        if len(text) + len(item) > TAG_CHARACTERS:
            return f"{text}, and {left:,} more".removeprefix(", ")
        text, left = f"{text},{item}" if text else item, left - 1
    return text


def before_window(due: Iterable[Due], streams: Mapping[str, Stream], *, now: datetime) -> list[str]:
    """A line for each stream that cannot be requested because its date window has not begun."""
    today = now.date().isoformat()
    early = [streams[d.backlog.stream] for d in due if not dates(streams[d.backlog.stream]).has_partition_key(today)]
    return [f"{s.name}: its date window begins on {s.date_window.first}; no run before that" for s in early]
