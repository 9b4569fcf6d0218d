"""Which followers are worth a run now, and what a run takes along. No clock, no I/O."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import dagster as dg

from kdi_assets.components.refined_groups import RefinedGroup
from kdi_assets.documents.model.limits import time_has_come
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.errors import KdiError, Transient
from kdi_assets.follow.refine.errors import UpstreamMissing
from kdi_assets.sensors.followers import REFUSED, Follower, FollowerStatus
from kdi_assets.sensors.memory import FollowerMemory
from kdi_assets.sensors.policy import backoff_seconds, seconds_since
from kdi_assets.wording import duration


@dataclass(frozen=True, slots=True)
class FollowDecision:
    """What a tick does about one follower.

    Attributes:
        text: Why, for the log of the tick.
        due: It is worth a run now.
        suspect: Its last run committed nothing, so this one may not either.
        waits: It is due, and must not run now.
        looked: It was looked at, and the next time of its cron counts from here.
        settled: Its last run did what it was requested for.
        progress: Changes if a run commits to the table.
        lacks: The upstream table that does not exist; a run that makes it may take this one along.
    """

    text: str
    due: bool = False
    suspect: bool = False
    waits: bool = False
    looked: bool = True
    settled: bool = False
    progress: str = ""
    lacks: str = ""


def cron_has_come(follower: Follower, memory: FollowerMemory, now: datetime) -> bool:
    """Whether a follower is looked at: always without a cron; otherwise once after each of its times."""
    return follower.cron is None or time_has_come(follower.cron, since=memory.looked_at, now=now.timestamp())


def held(by: str) -> FollowDecision:
    """A blocking check of an upstream table failed. A time of the cron counts once it passes."""
    return FollowDecision(f"held: a blocking check of {by} failed", waits=True, looked=False)


def rests(left: float) -> FollowDecision:
    """The last run committed nothing, a moment ago. A time of the cron counts after the wait."""
    return FollowDecision(f"the last run committed nothing; the next one in {duration(left)}", waits=True, looked=False)


def decide(follower: Follower, status: FollowerStatus, memory: FollowerMemory, now: datetime) -> FollowDecision:
    """What to do about a follower that nothing holds."""
    if isinstance(status.refusal, Transient):
        # A time of its cron counts once the table could be read.
        lacks = status.refusal.upstream if isinstance(status.refusal, UpstreamMissing) else ""
        return FollowDecision(what_happened(status.refusal, follower.name), waits=not lacks, looked=False, lacks=lacks)
    if not status.refusal and not status.is_behind:
        return FollowDecision("")
    suspect = memory.requested_at > 0 and memory.progress == status.progress
    if suspect and (left := wait_seconds(memory, now)) > 0:
        return rests(left)
    # A refusal that a retry cannot help makes a run too: it fails, and the UI shows why.
    text = what_happened(status.refusal, follower.name) if status.refusal else status.new
    return FollowDecision(text, due=True, suspect=suspect, progress=status.progress)


def outside_cron(decision: FollowDecision, memory: FollowerMemory) -> FollowDecision:
    """What a tick does between two times of a follower's cron: only what the run of the last one left undone."""
    # A run that met a refusal committed nothing, whatever the table's state is now.
    refused = decision.due and any(p.startswith(REFUSED) for p in (memory.progress, decision.progress))
    undone = decision.suspect or refused or not decision.looked
    return decision if undone else FollowDecision("", looked=False, settled=True)


def wait_seconds(memory: FollowerMemory, now: datetime) -> float:
    """Seconds until a follower whose last run committed nothing is requested again; negative: it may be."""
    return backoff_seconds(memory.runs_in_vain) - seconds_since(memory.requested_at, now.timestamp())


def what_happened(refusal: KdiError, name: str) -> str:
    """The refusal in one sentence, without the table's name."""
    return refusal.message_parts()[0].removeprefix(f"{name}: ")


def with_downstream(group: RefinedGroup, decisions: Mapping[str, FollowDecision]) -> list[RefinedTableSpec]:
    """The due tables of a group, and those that are made of them and need not wait for their cron."""
    wanted: dict[str, RefinedTableSpec] = {}
    for table in group.tables:  # each after those that it is made of
        follows = table.cron is None and any(
            upstream.table in wanted and not decisions[upstream.table].suspect for upstream in table.upstreams
        )
        decision = decisions[table.name]
        ready = not decision.waits and (not decision.lacks or decision.lacks in wanted)
        if decision.due or (follows and ready):
            wanted[table.name] = table
    return list(wanted.values())


def packs(ordered: Iterable[RefinedTableSpec], groups: Mapping[str, RefinedGroup]) -> list[list[RefinedTableSpec]]:
    """Which wanted tables share a run: all, unless one is made of another one in another op.

    Dagster skips the steps after a step that has no result, and a refinement has none.

    Args:
        ordered: Each after those that it is made of.
        groups: By name, those of the wanted tables; other tables are left out.
    """
    levels: dict[str, int] = {}
    runs: defaultdict[int, list[RefinedTableSpec]] = defaultdict(list)
    for table in ordered:
        if table.name in groups:
            upstream = [u.table for u in table.upstreams if u.table in levels]
            levels[table.name] = max((levels[u] + (groups[u] is not groups[table.name]) for u in upstream), default=0)
            runs[levels[table.name]].append(table)
    return [runs[level] for level in sorted(runs)]


def remembered(
    follower: Follower,
    decision: FollowDecision,
    memory: FollowerMemory,
    requested: Collection[dg.AssetKey],
    now: datetime,
) -> FollowerMemory:
    """The hints for the next tick.

    Args:
        requested: The assets of the runs that the tick requests.
    """
    at = round(now.timestamp(), 1)
    if decision.looked and follower.cron:
        memory = replace(memory, looked_at=at)
    if decision.settled:
        memory = replace(memory, progress="")
    if not decision.due or follower.key not in requested:
        return memory
    runs_in_vain = memory.runs_in_vain + 1 if decision.suspect else 0
    return replace(memory, progress=decision.progress, requested_at=at, runs_in_vain=runs_in_vain)
