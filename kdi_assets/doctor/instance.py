"""Dagster's part: does the instance open, and is its daemon alive? Only where ``DAGSTER_HOME`` is set."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from kdi_assets.doctor.finding import Finding, fine, wrong
from kdi_assets.errors import KdiError, Terminal, Transient
from kdi_assets.wording import counted, duration

if TYPE_CHECKING:
    from dagster import DagsterInstance


class InstanceClosed(Terminal):
    """Dagster's instance does not open."""

    home: str
    detail: str

    def parts(self) -> tuple[str, str, str]:
        return (
            f"Dagster's instance of DAGSTER_HOME={self.home} does not open: {self.detail}",
            "tables and positions are not in it; kdi drain works without it.",
            f"dagster instance info    (and correct {self.home}/dagster.yaml, or the storage that it names)",
        )


class InstanceUnanswered(Transient):
    """The database of Dagster's instance does not answer."""

    home: str
    detail: str

    def parts(self) -> tuple[str, str, str]:
        return (
            f"the database of Dagster's instance of DAGSTER_HOME={self.home} does not answer: {self.detail}",
            "tables and positions are not in it; kdi drain works without it.",
            "kdi doctor    (once more; if it repeats, look at the database, its address and its password)",
        )


class DaemonSilent(Terminal):
    """Parts of Dagster's daemon have not been heard of for too long."""

    home: str
    silent: tuple[str, ...]
    heard_at: datetime | None

    def parts(self) -> tuple[str, str, str]:
        heard = f"last heard of at {self.heard_at:%Y-%m-%dT%H:%M:%SZ}" if self.heard_at else "never heard of"
        return (
            f"Dagster's daemon of DAGSTER_HOME={self.home} is silent: {', '.join(self.silent)}; {heard}.",
            "nothing is lost; no sensor starts a run until it is back, and what waits goes on waiting.",
            "dagster-daemon run    (in the deployment: start its daemon again)",
        )


def dagster(home: str) -> Iterator[Finding]:
    """Whether the instance opens, and all that its daemon must do is being done."""
    try:
        yield _examined(home)
    except Exception as failure:  # noqa: BLE001 - a storage is anybody's code: whatever it raises, so it does not open
        yield wrong("dagster", home, _refusal(home, failure))


def _examined(home: str) -> Finding:
    from dagster import DagsterInstance

    if not Path(home).is_dir():
        return wrong("dagster", home, InstanceClosed(home=home, detail="there is no such folder"))
    with DagsterInstance.from_config(home) as instance:
        return daemon(instance, home)


def _refusal(home: str, failure: BaseException) -> KdiError:
    from sqlalchemy.exc import OperationalError

    detail = (str(failure).strip() or type(failure).__name__).splitlines()[0]
    cause: BaseException | None = failure
    while cause is not None:
        if isinstance(cause, OperationalError):
            return InstanceUnanswered(home=home, detail=str(cause.orig).strip().splitlines()[0])
        cause = cause.__cause__ or cause.__context__
    return InstanceClosed(home=home, detail=detail)


def daemon(instance: DagsterInstance, home: str) -> Finding:
    """The heartbeats, as Dagster's own UI judges them."""
    statuses = instance.get_daemon_statuses()
    beats = [s.last_heartbeat.timestamp for s in statuses.values() if s.last_heartbeat]
    silent = tuple(sorted(kind for kind, status in statuses.items() if status.required and not status.healthy))
    if silent:
        heard = datetime.fromtimestamp(max(beats), UTC) if beats else None
        return wrong("dagster", home, DaemonSilent(home=home, silent=silent, heard_at=heard))
    age = time() - min(beats) if beats else 0.0
    found = f"the instance opens, {counted(len(beats), 'daemon')} heard of within {duration(age)}"
    return fine("dagster", home, found, daemons=sorted(statuses), oldest_heartbeat_seconds=age)
