"""A stream as Dagster and the table show it: its runs, its dates, its backlog."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime

import dagster as dg

from kdi_assets.components.names import table_key
from kdi_assets.drain.snapshot import take_snapshot
from kdi_assets.stream.stream import Stream

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
        backlog: Offsets that are not drained yet.
    """

    runs: Mapping[str, dg.DagsterRunStatus]
    backlog: int

    @property
    def started(self) -> bool:
        """Whether a run has started."""
        return any(status not in BEGINNING for status in self.runs.values())

    @property
    def busy(self) -> bool:
        """Whether a run has not ended."""
        return any(status in UNFINISHED for status in self.runs.values())


class Watch:
    """Looks at one stream; closing it releases the instance's database."""

    def __init__(self, stream: Stream, *, lake: str) -> None:
        self._stream, self._lake = stream, lake
        self._instance = dg.DagsterInstance.get()
        self._began = datetime.now(UTC)

    def look(self) -> Seen:
        """Runs and backlog now."""
        since = dg.RunsFilter(created_after=self._began)
        records = reversed(self._instance.get_run_records(since))
        runs = {record.dagster_run.run_id: record.dagster_run.status for record in records}
        return Seen(runs, take_snapshot(self._stream, self._lake).backlog())

    def dates(self) -> Set[str]:
        """Dates that Dagster shows as materialized."""
        return self._instance.get_materialized_partitions(table_key(self._stream))

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
