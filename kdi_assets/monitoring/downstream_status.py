"""How far refined and served tables are behind, in one form for metrics and alerts. No JVM."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from kdi_assets.errors import KdiError
from kdi_assets.monitoring.refined_status import first_new_commit, read_refined_status
from kdi_assets.serve.status import read_served_status
from kdi_assets.stream.refined_table import RefinedTableSpec
from kdi_assets.stream.served_table import Postgres, ServedTableSpec

DownstreamTable = RefinedTableSpec | ServedTableSpec


@dataclass(frozen=True, slots=True)
class DownstreamStatus:
    """The state of a refined or served table at one moment.

    Attributes:
        versions_behind: Versions of its upstream tables that are not consumed; 0 if none of them has other rows,
            ``None``: unknown.
        waiting_seconds: How long the oldest of these waits; 0 if nothing waits, ``None``: unknown.
        committed_at: When it was last refined or served; ``None``: never, or unknown.
        limit_seconds: ``freshness.fail`` of the document.
        refusal: Why something is unknown.
        late_share: Of a refined table, as ``RefinedStatus``.
    """

    table: str
    kind: Literal["refined", "served"]
    versions_behind: int | None = None
    waiting_seconds: float | None = None
    committed_at: datetime | None = None
    limit_seconds: float | None = None
    refusal: KdiError | None = None
    late_share: float | None = None


def watched_tables(
    refined: Iterable[RefinedTableSpec], served: Iterable[ServedTableSpec]
) -> tuple[DownstreamTable, ...]:
    """All but those in the embedded server: to look would start it."""
    return (*refined, *(s for s in served if not (isinstance(s.into, Postgres) and not s.into.url)))


def read_downstream_status(table: DownstreamTable, *, lake: str, home: Path, now: datetime) -> DownstreamStatus:
    """Read the state of a table; a refusal is part of it.

    Args:
        home: Folder of DuckDB files with relative paths.
    """
    if isinstance(table, RefinedTableSpec):
        return _refined(table, lake, now)
    return _served(table, lake, home, now)


def _refined(table: RefinedTableSpec, lake: str, now: datetime) -> DownstreamStatus:
    status = read_refined_status(table, lake)
    behind = None
    if status.plan:
        new = [u for u in status.plan.upstreams if u.kind != "nothing"] if status.is_behind else []
        behind = sum(u.version - (-1 if u.since is None else u.since) for u in new)
    return DownstreamStatus(
        table.name,
        "refined",
        behind,
        status.waiting_seconds(now),
        status.refined_at,
        _limit(table),
        status.refusal,
        status.late_share,
    )


def _served(table: ServedTableSpec, lake: str, home: Path, now: datetime) -> DownstreamStatus:
    status = read_served_status(table, lake=lake, home=home)
    behind, waits = None, None
    if status.changes:
        behind = 0 if status.changes.kind == "nothing" else status.behind
        since = first_new_commit(status.changes)
        waits = (now - since).total_seconds() if since else (None if behind else 0.0)
    return DownstreamStatus(table.name, "served", behind, waits, status.committed_at, _limit(table), status.refusal)


def _limit(table: DownstreamTable) -> float | None:
    return table.freshness.fail_seconds if table.freshness else None
