"""Dagster's private modules: the only module that imports them.

Dagster may change them without notice. ``tests/unit/test_dagster_internals.py`` asks for every name that is used here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, WorkerStatus

if TYPE_CHECKING:
    from dagster._grpc.client import DagsterGrpcClient

__all__ = ["CheckRunHealthResult", "DefaultRunLauncher", "WorkerStatus"]
MODULES_OF_RUNS = ("dagster._cli.api", "dagster._grpc.server")
"""What Dagster imports in the process of a run of a code server."""


def serve_grpc(arguments: Sequence[str], *, program: str, processes: Callable[[], BaseContext]) -> None:
    """Serve until SIGTERM or SIGINT, like ``dagster api grpc``.

    Args:
        processes: Called when the server starts: what the processes of its runs are made from.
    """
    from dagster._cli.api import grpc_command
    from dagster._grpc import server

    class Server(server.DagsterApiServer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._mp_ctx = processes()  # type: ignore[assignment]

    server.DagsterApiServer = Server  # type: ignore[misc]
    grpc_command(list(arguments), prog_name=program)


def code_server_of(launcher: DefaultRunLauncher, run_id: str) -> DagsterGrpcClient | None:
    """The code server that started a run; ``None`` if the run has ended, or none started it."""
    found: DagsterGrpcClient | None = launcher._get_grpc_client_for_termination(run_id)  # type: ignore[no-untyped-call]
    return found


def runs_of(server: DagsterGrpcClient) -> list[str] | None:
    """The ids of the runs whose processes a code server has; ``None`` if it does not answer."""
    from dagster._grpc.types import GetCurrentRunsResult
    from dagster._serdes import deserialize_value

    try:
        return list(deserialize_value(server.get_current_runs(), GetCurrentRunsResult).current_runs)
    except DagsterUserCodeUnreachableError:
        return None


def latest_evaluations(
    instance: dg.DagsterInstance, keys: Sequence[dg.AssetCheckKey]
) -> dict[dg.AssetCheckKey, tuple[dg.AssetCheckEvaluation | None, float]]:
    """The latest execution of each check that has one, and when it was logged, in seconds since the epoch.

    The evaluation is ``None`` if a run was to make the check and has not made it, or ended before.
    """
    records = instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    found: dict[dg.AssetCheckKey, tuple[dg.AssetCheckEvaluation | None, float]] = {}
    for key, record in records.items():
        made: object = record.evaluation  # of a check that was not made, the event of the plan
        at = record.event.timestamp if record.event else record.create_timestamp
        found[key] = (made if isinstance(made, dg.AssetCheckEvaluation) else None, at)
    return found


def latest_evaluation_and_run(
    instance: dg.DagsterInstance, key: dg.AssetCheckKey
) -> tuple[dg.AssetCheckEvaluation, str] | None:
    """The latest evaluation of a check, and the id of the run that made it; ``None`` without one."""
    from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as Status

    ended = {Status.SUCCEEDED, Status.FAILED}
    for record in instance.event_log_storage.get_asset_check_execution_history(key, limit=1, status=ended):
        if made := record.evaluation:
            return made, record.run_id
    return None
