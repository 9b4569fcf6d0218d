"""Which refined tables are worth a run now, and what a run takes along. No clock, no I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import dagster as dg

from kdi_assets.components.names import table_key
from kdi_assets.components.refined_groups import RefinedGroup
from kdi_assets.errors import KdiError
from kdi_assets.monitoring.refined_status import RefinedStatus
from kdi_assets.stream.limits import last_time
from kdi_assets.stream.refined_table import RefinedTableSpec
from sensors.policy import backoff_seconds
from sensors.reconcile_refined import RefinedMemory


@dataclass(frozen=True, slots=True)
class Decision:
    """What a tick does about one table.

    Attributes:
        text: Why, for the log of the tick.
        due: It is worth a run now.
        suspect: Its last run committed nothing, so this one may not either.
        waits: It is due, and must not run now.
        looked: It was looked at, and the next time of its cron counts from here.
        settled: Its last run did what it was requested for.
        progress: Changes if a run commits to the table.
    """

    text: str
    due: bool = False
    suspect: bool = False
    waits: bool = False
    looked: bool = True
    settled: bool = False
    progress: str = ""


def is_time(table: RefinedTableSpec, memory: RefinedMemory, now: datetime) -> bool:
    """Whether the table is looked at: always without a cron; otherwise once after each of its times."""
    if table.cron is None:
        return True
    return last_time(table.cron, now).timestamp() > memory.looked_at


def between_times(decision: Decision) -> Decision:
    """What a tick does between two times of a table's cron: only what the run of the last one left undone."""
    undone = decision.suspect or not decision.looked
    return decision if undone else Decision("", looked=False, settled=True)


def wait_seconds(memory: RefinedMemory, now: datetime) -> float:
    """Seconds until a table whose last run committed nothing is requested again; negative: it may be."""
    return backoff_seconds(memory.futile) - (now.timestamp() - memory.requested_at)


def progress(status: RefinedStatus) -> str:
    """Changes if a run committed to the table: its version, or the refusal."""
    if status.plan:
        return f"{status.plan.table_id} v{status.plan.version}"
    return type(status.refusal).__name__


def why_due(status: RefinedStatus) -> str:
    """What is new upstream, in words."""
    plan = status.plan
    if plan is None:
        return ""
    new = [f"{u.table} v{u.version}" for u in plan.upstreams if u.kind != "nothing"]
    return f"{plan.kind}: {plan.why or 'new rows'}" + (f" ({', '.join(new)})" if new else "")


def what_happened(refusal: KdiError, table: RefinedTableSpec) -> str:
    """The refusal in one sentence, without the table's name."""
    return refusal.message_parts()[0].removeprefix(f"{table.name}: ")


def with_downstream(group: RefinedGroup, decisions: Mapping[str, Decision]) -> list[RefinedTableSpec]:
    """The due tables of a group, and those that are made of them and need not wait for their cron."""
    wanted: dict[str, RefinedTableSpec] = {}
    for table in group.tables:  # each after those that it is made of
        follows = table.cron is None and any(
            upstream.table in wanted and not decisions[upstream.table].suspect for upstream in table.upstreams
        )
        if decisions[table.name].due or (follows and not decisions[table.name].waits):
            wanted[table.name] = table
    return list(wanted.values())


def remembered(
    table: RefinedTableSpec,
    decision: Decision,
    memory: RefinedMemory,
    requested: Collection[dg.AssetKey],
    now: datetime,
) -> RefinedMemory:
    """The hints for the next tick.

    Args:
        requested: The assets of the runs that the tick requests.
    """
    at = round(now.timestamp(), 1)
    if decision.looked and table.cron:
        memory = replace(memory, looked_at=at)
    if decision.settled:
        memory = replace(memory, progress="")
    if not decision.due or table_key(table) not in requested:
        return memory
    futile = memory.futile + 1 if decision.suspect else 0
    return replace(memory, progress=decision.progress, requested_at=at, futile=futile)
