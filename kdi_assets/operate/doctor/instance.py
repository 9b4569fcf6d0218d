"""Dagster: whether the instance opens and its daemon runs; only if ``DAGSTER_HOME`` is set."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from kdi_assets.operate.doctor.finding import Finding, Trouble, Unanswered, fine, wrong
from kdi_assets.settings import Settings
from kdi_assets.wording import counted, duration, first_line

if TYPE_CHECKING:
    from dagster import DagsterInstance


def dagster(home: str) -> Iterator[Finding]:
    """Whether the instance opens, and all required parts of its daemon run."""
    try:
        yield _examined(home)
    except Exception as failure:  # noqa: BLE001 - any storage's code runs here, and any error means that it does not open
        yield wrong("dagster", home, _refusal(home, failure))


def _examined(home: str) -> Finding:
    from dagster import DagsterInstance

    if not Path(home).is_dir():
        return wrong("dagster", home, _closed(home, "there is no such folder"))
    with DagsterInstance.from_config(home) as instance:
        return daemon(instance, home)


def _closed(home: str, detail: str) -> Trouble:
    return Trouble(
        kind="instance closed",
        happened=f"Dagster's instance of DAGSTER_HOME={home} does not open: {detail}",
        safe="tables and positions are not in it; kdi drain works without it.",
        run=f"dagster instance info    (and correct {home}/dagster.yaml, or the storage that it names)",
    )


def _refusal(home: str, failure: BaseException) -> Trouble | Unanswered:
    from sqlalchemy.exc import OperationalError

    cause: BaseException | None = failure
    while cause is not None and not isinstance(cause, OperationalError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return _closed(home, first_line(failure))
    detail = first_line(cause.orig)
    return Unanswered(
        kind="instance unanswered",
        happened=f"the database of Dagster's instance of DAGSTER_HOME={home} does not answer: {detail}",
        safe="tables and positions are not in it; kdi drain works without it.",
        run="kdi doctor    (once more; if it repeats, look at the database, its address and its password)",
    )


def daemon(instance: DagsterInstance, home: str) -> Finding:
    """The heartbeats, by the rules of Dagster's own UI."""
    statuses = instance.get_daemon_statuses()
    beats = [s.last_heartbeat.timestamp for s in statuses.values() if s.last_heartbeat]
    silent = sorted(kind for kind, status in statuses.items() if status.required and not status.healthy)
    if silent:
        last = f"{datetime.fromtimestamp(max(beats), UTC):%Y-%m-%dT%H:%M:%SZ}" if beats else "never"
        trouble = Trouble(
            kind="daemon silent",
            happened=f"Dagster's daemon of DAGSTER_HOME={home} is silent: {', '.join(silent)}; last heartbeat: {last}.",
            safe="nothing is lost; no sensor starts a run until the daemon is back, and backlogs grow.",
            run="dagster-daemon run    (in the deployment: start its daemon again)",
        )
        return wrong("dagster", home, trouble, silent=silent)
    age = time() - min(beats) if beats else 0.0
    on = Settings.from_environment().automation
    found = f"the instance opens, {counted(len(beats), 'daemon')} with heartbeats of the last {duration(age)}"
    found += "" if on else "; KDI_AUTOMATION is off here, so no sensor and no schedule is on by itself"
    return fine("dagster", home, found, daemons=sorted(statuses), oldest_heartbeat_seconds=age, automation=on)
