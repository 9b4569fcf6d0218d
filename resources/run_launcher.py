"""How a deployment starts runs: as Dagster does, and noticing when the process of one is gone."""

from __future__ import annotations

from dagster import DagsterRun
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, WorkerStatus
from dagster._grpc.client import DagsterGrpcClient
from dagster._grpc.types import GetCurrentRunsResult
from dagster._serdes import deserialize_value


class WatchedRunLauncher(DefaultRunLauncher):
    """Starts runs as processes of their code server, and asks it whether they still are.

    Nobody reports a run that was killed together with its code server. Dagster would count it as running until
    ``max_runtime_seconds``, and the lag sensor would leave its streams alone as long. The code server must be `dagster
    api grpc`: `dagster code-server start` answers for the newest of the servers behind it alone, not for the one that
    a reload replaced and that still works on its runs.
    """

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Run monitoring then asks about every run that has started."""
        return True

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Whether the code server that started the run still has its process."""
        server = self._get_grpc_client_for_termination(run.run_id)  # type: ignore[no-untyped-call]
        if server is None:
            return CheckRunHealthResult(WorkerStatus.RUNNING, "no code server started it, as on the command line")
        try:
            known = _runs_of(server)
        except DagsterUserCodeUnreachableError:
            # Once it is back it will say; to give the run up now would start its retry beside it.
            return CheckRunHealthResult(WorkerStatus.RUNNING, "its code server does not answer")
        if run.run_id in known:
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, "its code server was started anew, and its process is gone")


def _runs_of(server: DagsterGrpcClient) -> list[str]:
    answer = deserialize_value(server.get_current_runs(), GetCurrentRunsResult)
    return list(answer.current_runs)
