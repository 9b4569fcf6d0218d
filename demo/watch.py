"""The demo's tables as Dagster, their logs and the database show them: runs, dates, backlog, tables that are behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg

from kdi_assets.documents.loading.loader import LoadedFolder
from kdi_assets.follow.serve.status import read_served_status
from kdi_assets.operate.monitoring.refined_status import read_refined_status
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.snapshot import take_snapshot

BEGINNING = (dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING)
UNFINISHED = (*BEGINNING, dg.DagsterRunStatus.STARTED)


def cancel_orphans() -> None:
    """Report unfinished runs as ended to Dagster; call it before its daemon starts.

    A run's process ends with demo and dev, killed if necessary, and then nothing reports its end: Dagster would count
    it as running for ever, and the lag sensor would wait for it.
    """
    with dg.DagsterInstance.get() as instance:
        for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
            instance.report_run_canceled(run, message="ended with the processes that were stopped around it")


@dataclass(frozen=True, slots=True)
class Seen:
    """One look.

    Attributes:
        runs: Status of each run since the watch began, by run id, the oldest first.
        does: By run id, the tables of the run.
        backlog: Offsets that are not drained yet.
        behind: Refined and served tables that lack something of their upstream tables; of the served tables nothing is
            known while others are behind.
    """

    runs: Mapping[str, dg.DagsterRunStatus]
    backlog: int
    does: Mapping[str, str]
    behind: tuple[str, ...] = ()

    @property
    def started(self) -> bool:
        """Whether a run has started."""
        return any(status not in BEGINNING for status in self.runs.values())

    @property
    def running(self) -> str:
        """The tables of the runs that have not ended; empty if all have."""
        return "; ".join(self.does[run] for run, status in self.runs.items() if status in UNFINISHED)


class Watch:
    """Looks at all tables of a folder's documents; closing it releases the instance's database."""

    def __init__(self, tables: LoadedFolder) -> None:
        self._tables, self._settings = tables, Settings.from_environment()
        self._instance = dg.DagsterInstance.get()
        self._began = datetime.now(UTC)

    def look(self) -> Seen:
        """Runs and backlog now, and which tables are behind."""
        since = dg.RunsFilter(created_after=self._began)
        runs = [record.dagster_run for record in reversed(self._instance.get_run_records(since))]
        backlog = sum(take_snapshot(s, self._settings.lake).backlog() for s in self._tables.streams.values())
        does = {run.run_id: _tables_of(run) for run in runs}
        return Seen({run.run_id: run.status for run in runs}, backlog, does, tuple(self._behind()))

    def _behind(self) -> Iterator[str]:
        lake, home = self._settings.lake, self._settings.home
        refined = {name: read_refined_status(table, lake) for name, table in self._tables.refined.items()}
        if waiting := [name for name, status in refined.items() if status.plan is None or status.is_behind]:
            yield from waiting
            return
        yield from (
            n for n, t in self._tables.served.items() if read_served_status(t, lake=lake, home=home).behind != 0
        )

    def dates(self, table: str) -> Set[str]:
        """Dates of a table that Dagster shows as materialized."""
        return self._instance.get_materialized_partitions(dg.AssetKey(table.split("/")))

    def last_failure(self) -> str:
        """Why the newest failed run failed; empty if none did."""
        failed = dg.RunsFilter(created_after=self._began, statuses=[dg.DagsterRunStatus.FAILURE])
        for run in self._instance.get_runs(failed, limit=1):
            events = self._instance.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
            return "\n".join(entry.message for entry in events) or f"run {run.run_id} failed"
        return ""

    def sensor_says(self) -> str:
        """The lag sensor's last message."""
        for state in self._instance.all_instigator_state():
            for tick in self._instance.get_ticks(state.instigator_origin_id, state.selector_id, limit=1):
                return tick.skip_reason or (str(tick.error.message) if tick.error else tick.status.value)
        return "nothing yet"

    def close(self) -> None:
        """Release the instance's database."""
        self._instance.dispose()


def _tables_of(run: dg.DagsterRun) -> str:
    """The tables of a run; the job's name if it is not about tables."""
    return ", ".join(sorted(key.to_user_string() for key in run.asset_selection or ())) or run.job_name
