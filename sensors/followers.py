"""Tables that are made of other tables, in one form for the sensor that starts their runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import dagster as dg

from kdi_assets.components.names import path_key, table_key
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.versions import LatestVersions, LogCache
from kdi_assets.documents.model.in_lake import InLake
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.served_table import ServedTableSpec
from kdi_assets.errors import KdiError, Transient
from kdi_assets.follow.refine.errors import UpstreamMissing
from kdi_assets.follow.serve.errors import SourceMissing
from kdi_assets.follow.serve.status import read_served_status
from kdi_assets.operate.monitoring.refined_status import RefinedStatus, read_refined_status
from kdi_assets.sensors.policy import Rests
from kdi_assets.settings import Settings

REFUSED = "refused: "
ASKED_AGAIN_SECONDS = 600.0
"""So long a database is taken to have what it said: someone may restore it, or drop a table."""


@dataclass(frozen=True, slots=True)
class FollowerStatus:
    """What is known of a follower at one moment.

    Attributes:
        is_behind: Something is new upstream.
        new: What is new, in words.
        progress: Changes if a run commits to the table, or if it is refused; then it begins with ``REFUSED``.
        refusal: Why the table cannot follow.
        versions: By URI, the versions of the Delta tables that this was read at; empty: it holds for this moment only.
    """

    is_behind: bool = False
    new: str = ""
    progress: str = ""
    refusal: KdiError | None = None
    versions: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def refused(cls, refusal: KdiError | None, uris: Sequence[str]) -> FollowerStatus:
        """The follower cannot follow; what someone must mend holds until the next commit to one of the tables."""
        versions = {} if isinstance(refusal, Transient) else _versions_of(uris)
        return cls(progress=f"{REFUSED}{type(refusal).__name__}", refusal=refusal, versions=versions)

    @property
    def rests(self) -> bool:
        """Whether it is read again only after a while: something does not answer. A missing table is looked for."""
        return isinstance(self.refusal, Transient) and not isinstance(self.refusal, UpstreamMissing | SourceMissing)


class Follower(Protocol):
    """A table that is made of other tables, and follows them."""

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> dg.AssetKey: ...

    @property
    def cron(self) -> str | None: ...

    @property
    def upstreams(self) -> Sequence[InLake]:
        """The tables that it is made of."""

    @property
    def holds_seconds(self) -> float:
        """How long a status holds if no table has a new commit."""

    def own_uri(self, lake: str) -> str:
        """The URI of the follower, if it is a Delta table; otherwise empty."""

    def read(self, lake: str) -> FollowerStatus:
        """Read the state of the follower, and what is new upstream since. No JVM."""


@dataclass(frozen=True)
class RefinedFollower:
    """A refined table."""

    table: RefinedTableSpec
    read_status: Callable[[RefinedTableSpec, str], RefinedStatus] = read_refined_status

    @property
    def name(self) -> str:
        return self.table.name

    @cached_property
    def key(self) -> dg.AssetKey:
        return table_key(self.table)

    @property
    def cron(self) -> str | None:
        return self.table.cron

    @property
    def upstreams(self) -> Sequence[InLake]:
        return self.table.upstreams

    @property
    def holds_seconds(self) -> float:
        return math.inf

    def own_uri(self, lake: str) -> str:
        return self.table.table_uri(lake)

    def read(self, lake: str) -> FollowerStatus:
        status, own = self.read_status(self.table, lake), self.own_uri(lake)
        plan = status.plan
        if plan is None:
            return FollowerStatus.refused(status.refusal, [own, *(u.table_uri(lake) for u in self.table.upstreams)])
        new = [f"{u.table} v{u.version}" for u in plan.upstreams if u.kind != "nothing"]
        return FollowerStatus(
            is_behind=status.is_behind,
            new=f"{plan.kind}: {plan.why or 'new rows'}" + (f" ({', '.join(new)})" if new else ""),
            # Not the newest version: OPTIMIZE and VACUUM commit too, and so does the creation of the table.
            progress=f"{plan.table_id} v{plan.committed}",
            versions={**{u.uri: u.version for u in plan.upstreams}, own: plan.version},
        )


@dataclass(frozen=True)
class ServedFollower:
    """A table that is served from a database."""

    served: ServedTableSpec

    @property
    def name(self) -> str:
        return self.served.name

    @cached_property
    def key(self) -> dg.AssetKey:
        return dg.AssetKey(self.served.into.path)

    @property
    def cron(self) -> str | None:
        return self.served.cron

    @property
    def upstreams(self) -> Sequence[InLake]:
        return (self.served,)

    @property
    def holds_seconds(self) -> float:
        return ASKED_AGAIN_SECONDS

    def own_uri(self, lake: str) -> str:
        return ""

    def read(self, lake: str) -> FollowerStatus:
        uri = self.served.table_uri(lake)
        status = read_served_status(self.served, lake=lake, home=Settings.from_environment().home)
        if status.refusal:
            return FollowerStatus.refused(status.refusal, [uri])
        return FollowerStatus(
            is_behind=status.is_behind,
            new=f"{status.why_behind} ({self.served.table} v{status.newest})",
            progress="no rows" if status.consumed is None else f"v{status.consumed}",
            versions={uri: status.newest} if status.newest is not None else {},
        )


def _versions_of(uris: Sequence[str]) -> Mapping[str, int]:
    """The newest versions of tables; empty if one of them is unknown."""
    found = {}
    for uri in uris:
        try:
            log = TableLog.open(uri)
        except KdiError:
            return {}
        if log is None:
            return {}
        found[uri] = log.version
    return found


class StatusReader:
    """Reads the status of followers: again only after a commit to one of the tables, or after a run.

    What a retry helps is read again after a while, which doubles with each failure.
    """

    def __init__(self, versions: LatestVersions, clock: Callable[[], float] = time.monotonic) -> None:
        self._versions: LogCache[int] = LogCache(versions)
        self._known: dict[str, FollowerStatus] = {}
        self._read_at: dict[str, float] = {}
        self._rests, self._clock = Rests(clock), clock

    def last(self, follower: Follower) -> FollowerStatus | None:
        """What was read last; a table may have newer commits."""
        return self._known.get(follower.name)

    def forget(self, follower: Follower) -> None:
        """Read it again: a run changes it."""
        self._known.pop(follower.name, None)

    def __call__(self, follower: Follower, lake: str) -> FollowerStatus:
        """The status now."""
        known = self.last(follower)
        if known and (self._holds(follower, known) or follower.name in self._rests):
            return known
        self._read_at[follower.name] = self._clock()
        status = self._known[follower.name] = follower.read(lake)
        for uri, version in status.versions.items():
            self._versions.keep(uri, version, version=version)
        if status.rests:
            self._rests.failed(follower.name)
        else:
            self._rests.succeeded(follower.name)
        return status

    def has_committed(self, follower: Follower, lake: str) -> bool:
        """Whether the follower may have a commit that is newer than what was read last."""
        known, own = self.last(follower), follower.own_uri(lake)
        if known is None:
            return True
        return bool(own) and not (own in known.versions and self._is_newest(own, known.versions[own]))

    def _holds(self, follower: Follower, known: FollowerStatus) -> bool:
        if self._clock() >= self._read_at[follower.name] + follower.holds_seconds:
            return False
        return bool(known.versions) and all(self._is_newest(*version) for version in known.versions.items())

    def _is_newest(self, uri: str, version: int) -> bool:
        return self._versions.current(uri) == version


class IdleTables:
    """Sets which tables nobody is expected to commit to: no run works on them, and none has since the last tick."""

    def __init__(self, versions: LatestVersions, tables: Iterable[InLake]) -> None:
        self._versions = versions
        self._tables = {path_key(table.table): table for table in tables}
        self._logged: Mapping[dg.AssetKey, int | None] = {}

    def update(self, instance: dg.DagsterInstance, in_flight: Collection[dg.AssetKey], lake: str) -> None:
        """Look at the events of this moment."""
        # In a folder, a look costs microseconds.
        uris = {key: uri for key, table in self._tables.items() if "://" in (uri := table.table_uri(lake))}
        if not uris:
            return
        records = instance.get_asset_records(list(uris))
        found = {r.asset_entry.asset_key: r.asset_entry.last_materialization_storage_id for r in records}
        logged = {key: found.get(key) for key in uris}
        for key, uri in uris.items():
            idle = key not in in_flight and key in self._logged and self._logged[key] == logged[key]
            self._versions.set_idle(uri, idle=idle)
        self._logged = logged
