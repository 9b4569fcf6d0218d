"""The state of tables that follow others: refined, served and announced ones. No JVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from kdi_assets.documents.model.capabilities import TableKind
from kdi_assets.documents.model.limits import FreshnessLimits
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.served_table import Postgres, ServedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError, Transient
from kdi_assets.follow.refine.errors import UpstreamMissing
from kdi_assets.follow.serve.errors import SourceMissing
from kdi_assets.follow.serve.postgres.embedded import FOLDER, postgres_runs
from kdi_assets.follow.serve.status import read_served_status
from kdi_assets.operate.monitoring.refined_status import first_new_commit, read_refined_status
from kdi_assets.operate.monitoring.status_row import command_after
from kdi_assets.streams.announce.status import LOOK_SECONDS, AnnouncedStatus, read_announced_statuses

FollowedTable = RefinedTableSpec | ServedTableSpec | Stream
"""What a document describes; of a stream, its announcements."""


@dataclass(frozen=True, slots=True)
class FollowerRow:
    """A ``StatusRow``: its versions behind are those of its upstream tables, OPTIMIZE included; 0 if none of them
    has new rows or files.

    Attributes:
        new: What is new, in words; empty: nothing.
        version: Of the refined table; of the Delta table whose rows the database has, or up to which files are
            announced. ``None``: none, or unknown.
        late_share: Of a refined table, as ``RefinedStatus``.
        has_begun: Whether the tables that it is made of exist; otherwise nothing is wrong with it.
        server_runs: Whether its database can be asked; a look does not start the embedded server.
    """

    name: str
    kind: TableKind
    behind: int | None = None
    waiting_seconds: float | None = None
    committed_at: datetime | None = None
    limits: FreshnessLimits | None = None
    refusal: KdiError | None = None
    new: str = ""
    version: int | None = None
    late_share: float | None = None
    facts: Mapping[str, object] = field(default_factory=dict)
    has_begun: bool = True
    server_runs: bool = True

    @property
    def state(self) -> str:
        if not self.server_runs:
            return "not running"
        if self.has_not_begun:
            return "not begun"
        if self.refusal:
            return "unreachable" if isinstance(self.refusal, Transient) else "refused"
        return "behind" if self.new else "OK"

    @property
    def has_not_begun(self) -> bool:
        """Whether a table that it is made of does not exist yet, so that nothing is wrong with it."""
        return not self.has_begun or isinstance(self.refusal, UpstreamMissing | SourceMissing)

    @property
    def next_command(self) -> str:
        verb = {TableKind.REFINED: "refine", TableKind.SERVED: "serve"}.get(self.kind, "drain")
        run = f"kdi {verb} {self.name}"
        if self.has_not_begun:
            return ""  # first comes whatever makes the table that it is made of, and may be no command of ours
        if self.refusal:
            return command_after(self.refusal, run=run)
        return run if self.new or not self.server_runs else ""


def watched_tables(
    refined: Iterable[RefinedTableSpec], served: Iterable[ServedTableSpec], streams: Iterable[Stream]
) -> tuple[FollowedTable, ...]:
    """Tables that programs look at all the time: all but those in the embedded server, which may not run."""
    return (*refined, *(s for s in served if not _in_embedded_server(s)), *announced_streams(streams))


def _in_embedded_server(served: ServedTableSpec) -> bool:
    return isinstance(served.into, Postgres) and not served.into.url


def announced_streams(streams: Iterable[Stream]) -> list[Stream]:
    """The streams whose tables are announced."""
    return [stream for stream in streams if stream.announce and stream.status != "retired"]


def kind_of(table: FollowedTable) -> TableKind:
    """The kind of the table's row."""
    if isinstance(table, RefinedTableSpec):
        return TableKind.REFINED
    return TableKind.SERVED if isinstance(table, ServedTableSpec) else TableKind.ANNOUNCED


def read_follower_rows(
    tables: Sequence[FollowedTable],
    *,
    lake: str,
    home: Path,
    now: datetime,
    known: Iterable[tuple[str, KdiError]] = (),
    seconds: float = LOOK_SECONDS,
) -> list[FollowerRow]:
    """Read the state of tables; a refusal is part of it, and is of one row alone. Starts no server.

    Args:
        home: Folder of the embedded server, and of DuckDB files with relative paths.
        known: Names of clusters, each with what refused one of its streams just now; brokers that did not answer are
            not asked again.
        seconds: Time limit of the look at announced tables.
    """
    streams = [table for table in tables if isinstance(table, Stream)]
    announced = read_announced_statuses(streams, lake, known=known, seconds=seconds)
    return [_row(table, lake, home, now, announced) for table in tables]


def _row(
    table: FollowedTable, lake: str, home: Path, now: datetime, announced: Mapping[str, AnnouncedStatus | KdiError]
) -> FollowerRow:
    if isinstance(table, Stream):
        return _announced(table, announced[table.name], now)
    try:
        return _refined(table, lake, now) if isinstance(table, RefinedTableSpec) else _served(table, lake, home, now)
    except KdiError as refusal:
        return FollowerRow(table.name, kind_of(table), limits=table.freshness, refusal=refusal)


def _refined(table: RefinedTableSpec, lake: str, now: datetime) -> FollowerRow:
    status = read_refined_status(table, lake)
    plan, behind, new, version = status.plan, None, "", None
    if plan:
        changed = [u for u in plan.upstreams if u.kind != "nothing"] if status.is_behind else []
        behind = sum(max(0, u.version - (-1 if u.since is None else u.since)) for u in changed)
        new = plan.kind if status.is_behind else ""
        version = plan.version if plan.version >= 0 else None
    return FollowerRow(
        table.name,
        TableKind.REFINED,
        behind,
        status.waiting_seconds(now),
        status.refined_at,
        table.freshness,
        status.refusal,
        new,
        version,
        status.late_share,
        facts={
            "table": table.name,
            "refined": plan.kind if plan else None,
            "why": plan.why if plan else None,
            "table_version": version,
            "upstreams": plan and [{"table": u.table, "since": u.since, "version": u.version} for u in plan.upstreams],
            "refined_at": status.refined_at,
        },
    )


def _served(table: ServedTableSpec, lake: str, home: Path, now: datetime) -> FollowerRow:
    if _in_embedded_server(table) and not postgres_runs(home / FOLDER):
        named: dict[str, object] = {"served": table.name, "table": table.table}
        return FollowerRow(table.name, TableKind.SERVED, limits=table.freshness, server_runs=False, facts=named)
    status = read_served_status(table, lake=lake, home=home)
    behind, waits = None, None
    if status.changes:
        behind = 0 if status.changes.kind == "nothing" else status.behind
        since = first_new_commit(status.changes) or status.served_until
        waits = (now - since).total_seconds() if since else (None if status.why_behind else 0.0)
    return FollowerRow(
        table.name,
        TableKind.SERVED,
        behind,
        waits,
        status.committed_at,
        table.freshness,
        status.refusal,
        status.why_behind,
        status.consumed,
        facts={
            "served": table.name,
            "table": table.table,
            "consumed_version": status.consumed,
            "newest_version": status.newest,
            "versions_behind": status.behind,
            "served_at": status.committed_at,
        },
    )


def _announced(stream: Stream, status: AnnouncedStatus | KdiError, now: datetime) -> FollowerRow:
    facts: dict[str, object] = {"announced": stream.name, "topic": stream.announce.topic if stream.announce else None}
    row = FollowerRow(stream.name, TableKind.ANNOUNCED, limits=stream.freshness, facts=facts)
    if isinstance(status, KdiError):
        return replace(row, refusal=status)
    if status.newest is None:
        return replace(row, has_begun=False)
    waits = (now - status.waiting_since).total_seconds() if status.waiting_since else None
    return replace(
        row,
        behind=status.behind,
        waiting_seconds=waits if status.behind else 0.0,
        new=(status.why or "new files") if status.behind else "",
        version=status.through,
        facts={**facts, "announced_version": status.through, "newest_version": status.newest},
    )
