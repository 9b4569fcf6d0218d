"""The runs that a tick asks Dagster for: as few as it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import dagster as dg

from kdi_assets.components.asset_checks import made_with_every_drain
from kdi_assets.components.names import dates, table_key
from kdi_assets.components.table_run import REQUESTED_TAG
from kdi_assets.stream.stream import Stream
from sensors.policy import Due

LANES = 2
"""Runs that a tick asks for at once; Dagster takes two more beside, for checks, replays and what is built on tables."""
ONE_RUN_SECONDS = 5.0
"""What is expected to take no longer is one run: the start of a second one would cost more than it saves."""
TAG_CHARACTERS = 1000


def run_requests(due: Sequence[Due], streams: Mapping[str, Stream], *, now: datetime) -> list[dg.RunRequest]:
    """The streams that are due, packed into few runs.

    A run holds streams of one date window, since Dagster wants the same partitions in a run. A stream whose dates do
    not include today's is left out, because Dagster would refuse the whole tick for it (``without_today`` names them).
    """
    today = now.date().isoformat()
    windows: dict[dg.DailyPartitionsDefinition, list[Due]] = {}
    for one in due:
        partitions = dates(streams[one.backlog.stream])
        if partitions.has_partition_key(today):
            windows.setdefault(partitions, []).append(one)
    return [_request(pack, streams, now=now) for together in windows.values() for pack in packs(together)]


def packs(due: Sequence[Due]) -> list[list[Due]]:
    """Which streams share a run: all, or as many to each lane as makes the lanes end at the same time.

    Streams whose last run moved no position are apart: what keeps failing, or takes its time to, must not hold the
    others back.
    """
    healthy, suspects = [d for d in due if not d.suspect], [d for d in due if d.suspect]
    lanes = [healthy] if _expected_seconds(healthy) <= ONE_RUN_SECONDS else _lanes(healthy)
    return [pack for pack in (*lanes, suspects) if pack]


def _lanes(due: Sequence[Due]) -> list[list[Due]]:
    """The longest first, each to the lane that is free the soonest; those of a route group share one."""
    lanes: list[list[Due]] = [[] for _ in range(LANES)]
    together: dict[object, list[Due]] = {}
    for one in due:
        together.setdefault(one.group or one.backlog.stream, []).append(one)
    for some in sorted(together.values(), key=_expected_seconds, reverse=True):
        min(lanes, key=_expected_seconds).extend(some)
    return lanes


def _expected_seconds(due: Sequence[Due]) -> float:
    return sum(d.backlog.pace.seconds_for(d.backlog.offsets) for d in due)


def _request(due: Sequence[Due], streams: Mapping[str, Stream], *, now: datetime) -> dg.RunRequest:
    # No run key: Dagster remembers keys for ever and would drop the second request after a failed run.
    backlogs = [d.backlog for d in due]
    return dg.RunRequest(
        asset_selection=[table_key(streams[b.stream]) for b in backlogs],
        # None would select every check, and some read the whole table.
        asset_check_keys=[key for b in backlogs for key in made_with_every_drain(streams[b.stream])],
        partition_key=now.date().isoformat(),
        tags={
            REQUESTED_TAG: now.isoformat(),
            "kdi/streams": _tag([b.stream for b in backlogs]),
            "kdi/why": _tag([f"{d.backlog.stream}: {d.reason}" for d in due]),
            "kdi/backlog": str(sum(b.offsets for b in backlogs)),
            "kdi/lag_seconds": str(round(max(b.lag_seconds or 0.0 for b in backlogs))),
        },
    )


def _tag(things: Sequence[str]) -> str:
    """As much of a list as a tag may hold: PostgreSQL has them in an index, and refuses what is longer than 2,700."""
    told, left = "", len(things)
    for thing in things:
        if len(told) + len(thing) > TAG_CHARACTERS:
            return f"{told}, and {left:,} more".removeprefix(", ")
        told, left = f"{told},{thing}" if told else thing, left - 1
    return told


def without_today(due: Iterable[Due], streams: Mapping[str, Stream], *, now: datetime) -> list[str]:
    """A line for each stream that cannot be requested because its date window has not begun."""
    today = now.date().isoformat()
    early = [streams[d.backlog.stream] for d in due if not dates(streams[d.backlog.stream]).has_partition_key(today)]
    return [f"{s.name}: its date window begins on {s.date_window.start}; no run before that" for s in early]
