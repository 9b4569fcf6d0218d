"""Notices that another deployment drains the same tables: two Dagster instances on one lake do not know each other.

A run's id is in the ledger entry of each of its commits. A new commit by a run that this instance does not have was
made by another one. Commands (``kdi drain``) have no run, and are no deployment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kdi_assets.sensors.memory import Memory, OtherDrain
from kdi_assets.sensors.policy import join_limited
from kdi_assets.sensors.table_log import NewEntries
from kdi_assets.wording import duration

OVER_SECONDS = 3600.0
"""So long after its last commit another deployment counts as one that drains the stream."""
SAFE = (
    "Nothing is lost or twice: of two drains of the same offsets one commits. Set KDI_AUTOMATION=off in one of the two."
)


def with_other_drain(memory: Memory, new: NewEntries, has_run: Callable[[str], bool], *, now: float) -> Memory:
    """The memory of a stream after these entries.

    Args:
        has_run: Whether this Dagster instance has a run.
        now: Seconds since the epoch.
    """
    if memory.table_id != new.table_id or memory.watched_from < 0:
        return replace(memory, watched_from=new.newest, other=None)
    known = max(memory.watched_from, memory.other.version if memory.other else -1)
    for entry in reversed(new.entries):
        if entry.version <= known:
            break
        if entry.run_id and not has_run(entry.run_id):
            other = OtherDrain(entry.version, entry.run_id, entry.deployment, seen=int(now))
            return replace(memory, other=other)
    return memory


def forget_old(memory: Memory, *, now: float) -> Memory:
    """The memory without a commit of another deployment that was long ago."""
    is_old = memory.other is not None and now - memory.other.seen > OVER_SECONDS
    return replace(memory, other=None) if is_old else memory


def place(other: OtherDrain) -> str:
    """Host and folder of the other deployment."""
    return other.deployment or "an unknown host (its release is older)"


def lines(memories: Mapping[str, Memory], *, now: float) -> list[str]:
    """A line of the tick for each other deployment, with its newest commit.

    Args:
        memories: By stream.
        now: Seconds since the epoch.
    """
    by_place: dict[str, dict[str, OtherDrain]] = {}
    for stream, memory in sorted(memories.items()):
        if memory.other:
            by_place.setdefault(place(memory.other), {})[stream] = memory.other
    return [_line(where, drains, now) for where, drains in by_place.items()]


def _line(where: str, drains: Mapping[str, OtherDrain], now: float) -> str:
    stream, newest = max(drains.items(), key=lambda one: one[1].seen)
    ago = duration(max(0.0, now - newest.seen))
    return (
        f"another deployment, {where}, drains {join_limited(list(drains), separator=', ')} too. Its last commit: "
        f"v{newest.version} of {stream} by run {newest.run_id}, seen {ago} ago. {SAFE}"
    )
