"""The run launcher of a deployment: Dagster's own, with a check that the process of a run still exists."""

from __future__ import annotations

from dagster import DagsterRun

from kdi_assets.resources.dagster_internals import (
    CheckRunHealthResult,
    DefaultRunLauncher,
    WorkerStatus,
    code_server_of,
    runs_of,
)


class WatchedRunLauncher(DefaultRunLauncher):
    """Starts runs as processes of their code server, and asks the code server whether they still exist.

    Nothing reports a run that was killed together with its code server. Dagster would count it as running until
    ``max_runtime_seconds``, and the lag sensor would request no run for its streams so long. The code server must be
    `dagster api grpc`: after a reload, `dagster code-server start` answers for its newest server only, and not for the
    replaced one that still carries out runs.
    """

    @property
    def supports_check_run_worker_health(self) -> bool:
        """True, so that run monitoring checks every run that has started."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Ask the code server that started the run whether the run's process exists."""
        server = code_server_of(self, run.run_id)
        if server is None:
            return CheckRunHealthResult(WorkerStatus.RUNNING, "no code server started it, as on the command line")
        known = runs_of(server)
        if known is None:
            # It answers once it is back. A run given up now may still work, and its retry would run beside it.
            return CheckRunHealthResult(WorkerStatus.RUNNING, "its code server does not answer")
        if run.run_id in known:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "its code server was restarted, and its process is gone")
