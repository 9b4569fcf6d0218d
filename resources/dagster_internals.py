"""Dagster's private modules: the only module that imports them.

Dagster may change them without notice. ``tests/unit/test_dagster_internals.py`` asks for every name that is used here.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from multiprocessing.context import BaseContext
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import dagster as dg
from dagster._core.errors import DagsterUserCodeUnreachableError
from dagster._core.launcher import CheckRunHealthResult, DefaultRunLauncher, WorkerStatus

from kdi_assets.resources.reload import ReloadFailed, end_ticks, set_reload
from kdi_assets.runtime.threads import start_in_thread
from kdi_assets.wording import first_line

if TYPE_CHECKING:
    from dagster._core.workspace.context import WorkspaceProcessContext
    from dagster._core.workspace.workspace import CodeLocationEntry
    from dagster._grpc.client import DagsterGrpcClient
    from dagster._grpc.server import DagsterApiServer

log = logging.getLogger(__name__)

__all__ = ["CheckRunHealthResult", "DefaultRunLauncher", "WorkerStatus"]
MODULES_OF_RUNS = ("dagster._cli.api", "dagster._grpc.server")
"""What Dagster imports in the process of a run of a code server."""
WATCH_SECONDS, RECONNECTS = 5, 4
"""How often daemon and webserver ask a code server for its id, and after how many failures the UI shows it as gone.
Dagster's own ask every second, each time by a new connection, and give up after ten."""
CALLS_AT_ONCE, THREADS_FOR_CALLS = "DAGSTER_GRPC_MAX_WORKERS", "16"
"""Dagster's variable: how many calls a code server answers at once. Its own default is five on one core; ticks wait."""
FRESHNESS_INTERVAL, FRESHNESS_SECONDS = "FRESHNESS_DAEMON_INTERVAL_SECONDS", "120"
"""Dagster's variable: how often the daemon reads the state of freshness of every asset. Its own default is 30 s."""


def serve_grpc(
    arguments: Sequence[str],
    *,
    program: str,
    processes: Callable[[], BaseContext],
) -> None:
    """Serve until SIGTERM or SIGINT, like ``dagster api grpc``; ``reload_location`` loads the definitions again.

    Args:
        processes: Called when the server starts: what the processes of its runs are made from.
    """
    from dagster._cli.api import grpc_command
    from dagster._grpc import server

    os.environ.setdefault(CALLS_AT_ONCE, THREADS_FOR_CALLS)
    server.DagsterApiServer = _reloading_server(processes)  # type: ignore[misc]
    grpc_command(list(arguments), prog_name=program)


def _reloading_server(processes: Callable[[], BaseContext]) -> type[DagsterApiServer]:
    """Dagster's server, with processes of runs and a reload of our own; arguments as of ``serve_grpc``."""
    from dagster._grpc import server
    from dagster._grpc.__generated__.dagster_api_pb2 import ReloadCodeReply

    class Server(server.DagsterApiServer):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._mp_ctx = processes()  # type: ignore[assignment]
            self._location_name = kwargs.get("location_name")
            self._snapshots: dict[bytes, str] = {}
            set_reload(self._load_again)

        def ReloadCode(self, request: Any, context: Any) -> Any:
            """Reload in the UI, which Dagster's own server only logs; the UI shows a failure for some seconds."""
            try:
                self._load_again()
            except Exception:
                log.exception("the documents could not be loaded again; those from before stay")
                raise
            return ReloadCodeReply()

        def _get_serialized_external_repository_data(self, request: Any) -> str:
            """The definitions as text, 11 kB a stream, written once a load: Dagster's own daemon asks every minute."""
            snapshots, asked = self._snapshots, request.SerializeToString()  # a reload begins others
            if asked not in snapshots:
                snapshots[asked] = super()._get_serialized_external_repository_data(request)
            return snapshots[asked]

        def _load_again(self) -> None:
            with self._reload_lock:
                # In a thread of its own: Dagster keeps the context of a load in the thread, and this may be a tick's.
                loading = start_in_thread(self._loaded, name="reload")
                try:
                    self._loaded_repositories = loading.result()  # as Dagster does it in `ReloadCodeWithState`
                except dg.DagsterError as failed:
                    raise ReloadFailed(first_line(failed.__cause__ or failed)) from failed
                self._serializable_load_error = None
                self._snapshots = {}  # before the id: who sees the new id gets the new definitions
                self._server_id = str(uuid4())  # daemon and webserver ask for it every WATCH_SECONDS
                end_ticks()

        def cleanup(self) -> None:
            """The end of the process, which waits for its runs, answers meanwhile, and waits for its ticks."""
            end_ticks(for_good=True)
            super().cleanup()

        def _loaded(self) -> server.LoadedRepositories:
            return server.LoadedRepositories(
                self._loadable_target_origin,
                entry_point=self._entry_point,
                container_image=self._container_image,
                container_context=self._container_context,
                defs_state_info=self._defs_state_info,
                code_location_name=self._location_name,
            )

    return Server


def run_daemon(arguments: Sequence[str], *, program: str) -> None:
    """Work until SIGTERM or SIGINT, like ``dagster-daemon``; reads definitions only from code servers that changed."""
    os.environ.setdefault(FRESHNESS_INTERVAL, FRESHNESS_SECONDS)  # Dagster reads it at its import
    from dagster._daemon import controller
    from dagster._daemon.cli import cli

    watch_seldom()
    vars(controller)["WorkspaceProcessContext"] = lasting_workspace()
    cli(list(arguments), prog_name=program)


def run_webserver(arguments: Sequence[str], *, program: str) -> None:
    """Serve until SIGTERM or SIGINT, like ``dagster-webserver``."""
    from dagster_webserver.cli import cli

    watch_seldom()
    cli(list(arguments), prog_name=program, auto_envvar_prefix="DAGSTER_WEBSERVER")


def watch_seldom() -> None:
    """Let this process ask its code servers less often whether they changed."""
    from dagster._grpc import server_watcher

    server_watcher.WATCH_INTERVAL, server_watcher.MAX_RECONNECT_ATTEMPTS = WATCH_SECONDS, RECONNECTS


def lasting_workspace() -> type[WorkspaceProcessContext]:
    """Dagster's workspace, which the daemon reads again every minute: all definitions, 11 kB a stream."""
    from dagster._core.workspace.context import WorkspaceProcessContext

    class Workspace(WorkspaceProcessContext):
        def refresh_workspace(self) -> None:
            """Read all definitions, unless each code server is the one that was read, or loaded nothing since."""
            known = self._current_workspace.code_location_entries
            same_places = {o.location_name: o for o in self._origins} == {n: e.origin for n, e in known.items()}
            if not (same_places and all(map(_is_current, known.values()))):
                super().refresh_workspace()

    return Workspace


def _is_current(entry: CodeLocationEntry) -> bool:
    """Whether the code server still has the definitions that were read from it."""
    from dagster._core.remote_representation.code_location import GrpcServerCodeLocation

    read = entry.code_location
    if not isinstance(read, GrpcServerCodeLocation) or read.grpc_server_registry:
        return False  # it could not be read, or is a server that this process starts
    try:
        return bool(read.client.get_server_id() == read.server_id)
    except DagsterUserCodeUnreachableError:
        return False


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


def newest_evaluations(
    instance: dg.DagsterInstance, key: dg.AssetCheckKey, *, limit: int
) -> list[tuple[dg.AssetCheckEvaluation, str, float]]:
    """The newest evaluations of a check, the latest first, with run and time of each, in seconds since the epoch."""
    from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus as Status

    ended = {Status.SUCCEEDED, Status.FAILED}
    records = instance.event_log_storage.get_asset_check_execution_history(key, limit=limit, status=ended)
    times = [r.event.timestamp if r.event else r.create_timestamp for r in records]
    return [(made, r.run_id, at) for r, at in zip(records, times, strict=True) if (made := r.evaluation)]


def log_as_newest(instance: dg.DagsterInstance, evaluation: dg.AssetCheckEvaluation) -> None:
    """Log an evaluation without a run: as the newest one of its check, and of the latest materialization.

    An evaluation of a run takes the place of the run's earlier one, or of its plan, below what others logged since.
    """
    from dagster._core.definitions.asset_checks.asset_check_evaluation import (
        AssetCheckEvaluationTargetMaterializationData as Target,
    )
    from dagster._record import replace

    latest = instance.fetch_materializations(evaluation.asset_key, limit=1).records
    targets = [Target(run_id=r.run_id, storage_id=r.storage_id, timestamp=r.timestamp) for r in latest]
    target = targets[0] if targets else None
    instance.report_runless_asset_event(replace(evaluation, target_materialization_data=target))


def is_of_newest_run(instance: dg.DagsterInstance, key: dg.AssetCheckKey, run_id: str) -> bool:
    """Whether nobody else logged a result of the check, or planned one, after this run had planned its own."""
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
    return record is not None and record.run_id == run_id
