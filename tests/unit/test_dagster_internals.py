"""Every private name of Dagster that its adapter uses is there: an upgrade names the one that is not."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Lock
from typing import Any

import dagster
import pytest

from kdi_assets.resources import reload
from kdi_assets.resources.dagster_internals import CALLS_AT_ONCE, FRESHNESS_INTERVAL, MODULES_OF_RUNS, serve_grpc

ADAPTER = "resources/dagster_internals.py"
_LAUNCHER = "dagster._core.launcher"
_CHECKS = "dagster._core.storage.asset_check_execution_record"
_PARTS = {
    "_run_storage": "PostgresRunStorage",
    "_event_log_storage": "PostgresEventLogStorage",
    "_schedule_storage": "PostgresScheduleStorage",
}
_LOOKS_OF_RUNS = (
    "has_run_stats_index_cols",
    "has_backfill_id_column",
    "has_backfill_tags_table",
    "has_bulk_actions_selector_cols",
    "has_bulk_action_job_name_column",
)
USED: Mapping[str, Sequence[str]] = {
    "serve_grpc": [
        "dagster._cli.api.grpc_command",
        "dagster._grpc.server.DagsterApiServer",
        "dagster._grpc.server.DagsterApiServer._mp_ctx",
        "dagster._grpc.server.DagsterApiServer._loadable_target_origin",
        "dagster._grpc.server.DagsterApiServer._entry_point",
        "dagster._grpc.server.DagsterApiServer._container_image",
        "dagster._grpc.server.DagsterApiServer._container_context",
        "dagster._grpc.server.DagsterApiServer._defs_state_info",
        "dagster._grpc.server.DagsterApiServer._loaded_repositories",
        "dagster._grpc.server.DagsterApiServer._reload_lock",
        "dagster._grpc.server.DagsterApiServer._serializable_load_error",
        "dagster._grpc.server.DagsterApiServer._server_id",
        "dagster._grpc.server.DagsterApiServer._get_serialized_external_repository_data",
        "dagster._grpc.server.LoadedRepositories",
        "dagster._grpc.server.DagsterApiServer.ReloadCode",
        "dagster._grpc.server.DagsterApiServer.cleanup",
        "dagster._grpc.__generated__.dagster_api_pb2.ReloadCodeReply",
    ],
    "run_daemon": [
        "dagster._daemon.cli.cli",
        "dagster._daemon.controller.WorkspaceProcessContext",
    ],
    "run_webserver": ["dagster_webserver.cli.cli"],
    "watch_seldom": [
        "dagster._grpc.server_watcher.WATCH_INTERVAL",
        "dagster._grpc.server_watcher.MAX_RECONNECT_ATTEMPTS",
    ],
    "lasting_workspace": [
        "dagster._core.workspace.context.WorkspaceProcessContext.refresh_workspace",
        "dagster._core.workspace.context.WorkspaceProcessContext._current_workspace",
        "dagster._core.workspace.context.WorkspaceProcessContext._origins",
        "dagster._core.workspace.workspace.CodeLocationEntry.code_location",
        "dagster._core.workspace.workspace.CodeLocationEntry.origin",
        "dagster._core.remote_representation.code_location.GrpcServerCodeLocation.client",
        "dagster._core.remote_representation.code_location.GrpcServerCodeLocation.grpc_server_registry",
        "dagster._core.remote_representation.code_location.GrpcServerCodeLocation.server_id",
        "dagster._grpc.client.DagsterGrpcClient.get_server_id",
    ],
    "code_server_of": [f"{_LAUNCHER}.DefaultRunLauncher._get_grpc_client_for_termination"],
    "runs_of": [
        "dagster._core.errors.DagsterUserCodeUnreachableError",
        "dagster._grpc.client.DagsterGrpcClient.get_current_runs",
        "dagster._grpc.types.GetCurrentRunsResult.current_runs",
        "dagster._serdes.deserialize_value",
    ],
    "newest_evaluations": [
        f"{_CHECKS}.AssetCheckExecutionRecordStatus.SUCCEEDED",
        f"{_CHECKS}.AssetCheckExecutionRecordStatus.FAILED",
        f"{_CHECKS}.AssetCheckExecutionRecord.evaluation",
        f"{_CHECKS}.AssetCheckExecutionRecord.run_id",
        "dagster._core.storage.event_log.base.EventLogStorage.get_asset_check_execution_history",
    ],
    "latest_evaluations": [
        f"{_CHECKS}.AssetCheckExecutionRecord.create_timestamp",
        f"{_CHECKS}.AssetCheckExecutionRecord.event",
        "dagster._core.storage.event_log.base.EventLogStorage.get_latest_asset_check_execution_by_key",
    ],
    "log_as_newest": [
        "dagster._core.definitions.asset_checks.asset_check_evaluation.AssetCheckEvaluationTargetMaterializationData",
        "dagster._record.replace",
    ],
    "MODULES_OF_RUNS": MODULES_OF_RUNS,
    "kdi_assets.resources.run_launcher": [
        f"{_LAUNCHER}.CheckRunHealthResult",
        f"{_LAUNCHER}.DefaultRunLauncher.supports_check_run_worker_health",
        f"{_LAUNCHER}.DefaultRunLauncher.check_run_worker_health",
        f"{_LAUNCHER}.WorkerStatus.NOT_FOUND",
        f"{_LAUNCHER}.WorkerStatus.RUNNING",
    ],
    "kdi_assets.resources.pooled_storage": [
        "dagster_postgres.utils.create_pg_engine",
        "dagster_postgres.utils.get_token_provider_from_config",
        "dagster_postgres.utils.pg_url_from_config",
        "dagster_postgres.DagsterPostgresStorage._inst_data",
        *(f"dagster_postgres.DagsterPostgresStorage.{part}" for part in _PARTS),
        *(f"dagster_postgres.{storage}._engine" for storage in _PARTS.values()),
        *(f"dagster_postgres.PostgresRunStorage.{look}" for look in _LOOKS_OF_RUNS),
        "dagster_postgres.PostgresEventLogStorage.has_table",
        "dagster_postgres.PostgresEventLogStorage._has_asset_key_col_on_connection",
        "dagster_postgres.PostgresScheduleStorage.has_instigators_table",
        "dagster_postgres.PostgresScheduleStorage._has_instigators_table",
        "dagster_postgres.PostgresScheduleStorage.has_built_index",
    ],
    "deploy/dagster.yaml": ["dagster._core.storage.noop_compute_log_manager.NoOpComputeLogManager"],
}


@pytest.mark.parametrize(("user", "symbol"), [(user, symbol) for user, symbols in USED.items() for symbol in symbols])
def test_dagster_has_what_its_adapter_uses(user: str, symbol: str) -> None:
    assert gone(symbol, user) == ""


def test_dagster_looks_up_its_server_when_it_serves() -> None:
    api = import_module("dagster._cli.api")

    assert not hasattr(api, "DagsterApiServer"), "an import at its start: a replaced server is not seen (serve_grpc)"


def test_dagster_looks_up_the_workspace_and_the_pauses_of_its_watch_when_it_uses_them() -> None:
    controller, watcher = import_module("dagster._daemon.controller"), import_module("dagster._grpc.server_watcher")

    assert "WorkspaceProcessContext" in controller.daemon_controller_from_instance.__wrapped__.__code__.co_names
    assert {"WATCH_INTERVAL", "MAX_RECONNECT_ATTEMPTS"} <= {*watcher.watch_grpc_server_thread.__code__.co_names}


def test_dagster_reads_the_interval_of_its_freshness_daemon_from_the_variable_that_is_set() -> None:
    source = Path(str(import_module("dagster._daemon.freshness").__file__)).read_text()

    assert f'environ.get("{FRESHNESS_INTERVAL}"' in source


@pytest.mark.parametrize(("of_user", "used"), [(None, "16"), ("7", "7")])
def test_a_code_server_answers_other_calls_while_ticks_wait(
    of_user: str | None, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, server = import_module("dagster._cli.api"), import_module("dagster._grpc.server")
    monkeypatch.setattr(server, "DagsterApiServer", server.DagsterApiServer)
    monkeypatch.setenv(CALLS_AT_ONCE, of_user or "")
    if of_user is None:
        monkeypatch.delenv(CALLS_AT_ONCE)
    (threads,) = (option for option in api.grpc_command.params if option.name == "max_workers")
    given = list[object]()
    monkeypatch.setattr(api, "grpc_command", lambda *_, **__: given.append(threads.resolve_envvar_value(None)))

    serve_grpc([], program="test", processes=lambda: get_context("spawn"))

    assert given == [used]


def test_a_test_of_a_sensor_in_the_ui_is_a_tick_without_one_before() -> None:
    source = Path(str(import_module("dagster_graphql.schema.instigation").__file__)).read_text()

    assert "last_tick_completion_time=None" in source, "a test of a sensor would wait as a tick does (waiting.py)"


def test_the_server_that_is_served_makes_its_runs_from_the_context_given(monkeypatch: pytest.MonkeyPatch) -> None:
    server, made, context = import_module("dagster._grpc.server"), [], get_context("forkserver")
    monkeypatch.setattr(server, "DagsterApiServer", server.DagsterApiServer)  # put back afterwards
    monkeypatch.setattr(server.DagsterApiServer, "__init__", lambda self: None)
    monkeypatch.setattr("dagster._cli.api.grpc_command", lambda *_, **__: made.append(server.DagsterApiServer()))

    serve_grpc([], program="test", processes=lambda: context)

    assert [served._mp_ctx for served in made] == [context]


def test_no_tick_waits_once_the_server_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    server, said = import_module("dagster._grpc.server"), list[object]()
    monkeypatch.setattr(server, "DagsterApiServer", server.DagsterApiServer)
    monkeypatch.setattr(server.DagsterApiServer, "__init__", lambda self: None)
    monkeypatch.setattr(server.DagsterApiServer, "cleanup", lambda self: said.append(reload.ticks_end().is_set()))
    monkeypatch.setattr("dagster._cli.api.grpc_command", lambda *_, **__: server.DagsterApiServer().cleanup())
    monkeypatch.setattr(reload, "_TICKS_END", [Event()])

    serve_grpc([], program="test", processes=lambda: get_context("spawn"))

    assert said == [True], "before Dagster waits for the runs, in which time it answers"


def test_a_reload_swaps_the_definitions_and_shows_itself_by_a_new_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, said = import_module("dagster._grpc.server"), []
    loads: Iterator[object] = iter(["second", dagster.DagsterInvariantViolationError("tabel: no such field")])

    def load(*_: object, **__: object) -> object:
        said.append("load")
        if isinstance(loaded := next(loads), Exception):
            raise loaded
        return loaded

    def start(self: Any, **_: object) -> None:
        self.__dict__ |= {"_reload_lock": Lock(), "_loaded_repositories": "first", "_server_id": "1"}
        self.__dict__ |= dict.fromkeys(("_loadable_target_origin", "_entry_point", "_container_image"))
        self.__dict__ |= dict.fromkeys(("_container_context", "_defs_state_info"))

    made: list[Any] = []
    monkeypatch.setattr(server, "DagsterApiServer", server.DagsterApiServer)
    monkeypatch.setattr(server.DagsterApiServer, "__init__", start)
    monkeypatch.setattr(server, "LoadedRepositories", load)
    monkeypatch.setattr(reload, "_RELOADS", [])
    monkeypatch.setattr("dagster._cli.api.grpc_command", lambda *_, **__: made.append(server.DagsterApiServer()))
    assert reload.reload_location() is False

    serve_grpc([], program="test", processes=lambda: get_context("spawn"))

    assert reload.reload_location() is True
    assert (said, made[0]._loaded_repositories) == (["load"], "second")
    after = made[0]._server_id
    assert after != "1"
    with pytest.raises(reload.ReloadFailed, match="tabel: no such field"):
        reload.reload_location()
    assert (made[0]._loaded_repositories, made[0]._server_id) == ("second", after)


@pytest.mark.parametrize(
    "symbol", ["dagster._nothing.Server", "dagster._serdes.nothing", "dagster._grpc.server.DagsterApiServer._nothing"]
)
def test_what_is_gone_is_named_with_its_version_and_its_user(symbol: str) -> None:
    assert gone(symbol, "here") == f"{symbol} is gone (Dagster {dagster.__version__}): used by here"


def test_every_private_module_that_the_adapter_imports_is_asked_for() -> None:
    module = ast.parse((Path(__file__).parents[2] / ADAPTER).read_text())
    imported = {
        f"{node.module}.{alias.name}"
        for node in ast.walk(module)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dagster._")
        for alias in node.names
    }

    asked = [symbol for symbols in USED.values() for symbol in symbols]
    assert {name for name in imported if not any(f"{symbol}.".startswith(f"{name}.") for symbol in asked)} == set()


def gone(symbol: str, user: str) -> str:
    """What to say of a name that is not there; empty if it is."""
    said = f"{symbol} is gone (Dagster {dagster.__version__}): used by {user}"
    first, *steps = symbol.split(".")
    found: Any = import_module(first)
    for step in steps:
        if hasattr(found, step):
            found = getattr(found, step)
        elif isinstance(found, type):
            # An attribute of instances: set by __init__, or a field of a record.
            made = vars(found).get("__init__")
            set_there = made.__code__.co_names if made else ()
            return "" if step in (*set_there, *vars(found).get("__annotations__", ())) else said
        else:
            try:
                found = import_module(f"{found.__name__}.{step}")
            except ModuleNotFoundError:
                return said
    return ""
