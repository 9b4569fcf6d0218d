"""The code server loads the documents again in place, as for a pinned topic; the daemon reads what it loaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from dagster import DagsterInstance
from dagster._core.remote_representation.code_location import CodeLocation
from dagster._core.test_utils import create_test_daemon_workspace_context
from dagster._core.workspace.load_target import GrpcServerTarget
from dagster._grpc.client import DagsterGrpcClient

from kdi_assets.resources.dagster_internals import lasting_workspace
from kdi_assets.runtime.processes import Child
from kdi_assets.tools.local.broker import free_port
from tests.conftest import CHECKOUT
from tests.deployment.deployed import BIN
from tests.documents import CLUSTER, TOPIC_TABLES, refined, stream, written
from tests.faults.systems.dagster_site import listens
from tests.waiting import wait_until

SHOP = f"""{TOPIC_TABLES}
attributes: {{name: shop, topics: {{pattern: 's-(.*)'}}, table: 'shop/{{1}}', schema: id bigint, date: current_date()}}
"""


@contextmanager
def location_at(port: int, instance: DagsterInstance) -> Iterator[CodeLocation]:
    """The location as a daemon or a webserver that connects now loads it."""
    target = GrpcServerTarget(host="localhost", port=port, socket=None, location_name="shop")
    with create_test_daemon_workspace_context(target, instance) as workspace:
        yield workspace.create_request_context().get_code_location("shop")


@contextmanager
def code_server(
    folder: Path,
    instance: DagsterInstance,
    *,
    log: Path,
    module: str = "kdi_assets.definitions",
    project: Path = CHECKOUT,
) -> Iterator[tuple[int, Child]]:
    """The code server over the documents of a folder, or over a module of a project, listening, and its port."""
    port = free_port()
    environment = {"KDI_HOME": str(log.parent), "KDI_DEFS": str(folder), "PYTHONPATH": f"{CHECKOUT}:{project}"}
    environment |= {"DAGSTER_HOME": str(instance.root_directory), "KDI_KAFKA": ""}
    command: list[str | Path] = [BIN / "python", "-P", "-m", "kdi_assets.resources.code_server", "--module-name"]
    command += [module, "--location-name", "shop", "--host", "127.0.0.1", "--port", str(port)]
    server = Child(command, log=log, environment=environment)
    try:
        wait_until(lambda: listens(port) or server.exit_code() is not None, seconds=120)
        yield port, server
    finally:
        server.kill()


def tables(location: CodeLocation) -> set[str]:
    (repository,) = location.get_repositories().values()
    keys = {key.to_user_string() for key in repository.asset_graph.get_all_asset_keys()}
    return {key for key in keys if key.startswith("shop/") and not key.endswith("_dead_letters")}


def tick(
    location: CodeLocation, instance: DagsterInstance, name: str = "new_topics_main", *, after: float | None = None
) -> str:
    """What a sensor says, evaluated as the daemon does it; ``after`` is the time of the tick before."""
    (repository,) = location.get_repositories().values()
    data = location.get_sensor_execution_data(instance, repository.handle, name, after, None, None, None, None)
    return data.skip_message or ""


def test_a_pinned_topic_is_an_asset_after_a_tick_of_the_same_process_and_a_mistake_changes_nothing(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    """Procedure: a code server runs over a pattern with one topic; a second is added to its file, and the sensor ticks;
    then a third, beside a document with a mistake, and the sensor ticks again. The brokers do not exist.
    Pass: after the first tick the second topic has a table, in the same process; after the other one all is as it was.
    """
    folder = written(tmp_path / "documents", kafka=CLUSTER.replace("localhost:9092", "127.0.0.1:1"), shop=SHOP)
    pins = folder / "shop" / "shop.topics"
    pins.write_text("s-a\n")
    with code_server(folder, instance, log=tmp_path / "log") as (port, server):
        with location_at(port, instance) as before:
            assert tables(before) == {"shop/a"}
            pins.write_text("s-a\ns-b\n")
            assert "the code location was loaded again" in tick(before, instance)
        with location_at(port, instance) as after:
            assert tables(after) == {"shop/a", "shop/b"}
            pins.write_text("s-a\ns-b\ns-c\n")
            written(folder, other=SHOP.replace("name: shop", "name: other, tabel: x"))
            assert "the code location could not be loaded again" in tick(after, instance)
        with location_at(port, instance) as still:
            assert tables(still) == {"shop/a", "shop/b"}
        assert server.exit_code() is None


def test_reload_in_the_ui_reads_the_documents_again_and_says_what_is_wrong_in_them(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    """Procedure: a code server runs over a document; another is added, and the location is reloaded as the UI does it;
    then one with a mistake, and it is reloaded again.
    Pass: the same process has both tables; then the reload fails with the mistake's field, and the tables stay.
    """
    folder = written(tmp_path / "documents", kafka=CLUSTER, orders=stream("shop/orders"))
    with code_server(folder, instance, log=tmp_path / "log") as (port, server):
        target = GrpcServerTarget(host="localhost", port=port, socket=None, location_name="shop")
        with create_test_daemon_workspace_context(target, instance) as workspace:
            written(folder, clicks=stream("shop/clicks"))
            workspace.reload_code_location("shop")
            assert tables(workspace.create_request_context().get_code_location("shop")) == {
                "shop/orders",
                "shop/clicks",
            }

            written(folder, other=stream("shop/other").replace("table:", "tabel:"))
            with pytest.warns(UserWarning, match="tabel: no such field"):
                workspace.reload_code_location("shop")
            failed = workspace.create_request_context().get_code_location_error("shop")
            assert failed is not None and "tabel" in failed.to_string()
        with location_at(port, instance) as still:
            assert tables(still) == {"shop/orders", "shop/clicks"}
        assert server.exit_code() is None


def test_a_project_with_assets_of_its_own_has_a_new_document_after_a_reload(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    """A reload does not import modules again: it calls the function that makes the definitions."""
    ignored = shutil.ignore_patterns("__pycache__")
    project = shutil.copytree(CHECKOUT / "examples" / "one_location", tmp_path / "project", ignore=ignored)
    folder = project / "shop" / "defs"
    with code_server(folder, instance, log=tmp_path / "log", module="shop.definitions", project=project) as (port, _):
        written(folder, orders=stream("shop/orders"))
        DagsterGrpcClient(port=port).reload_code(timeout=60)

        with location_at(port, instance) as location:
            assert tables(location) == {"shop/orders"}


def test_a_reload_ends_a_tick_that_waits(tmp_path: Path, deployed: DagsterInstance) -> None:
    """Procedure: a tick of `follow` in a code server over a refined table that is due next year; while it waits, the
    location is reloaded.
    Pass: it waits until then, and ends with the reload, not after 25 s.
    """
    daily = refined("shop/daily", upstream="shop/orders", more=', cron: "0 0 1 1 *"')
    folder = written(tmp_path / "documents", kafka=CLUSTER, orders=stream("shop/orders"), daily=daily)
    with (
        code_server(folder, deployed, log=tmp_path / "log") as (port, _),
        location_at(port, deployed) as location,
        ThreadPoolExecutor(1) as daemon,
    ):
        waits = daemon.submit(tick, location, deployed, "follow", after=1.0)
        with pytest.raises(TimeoutError):
            waits.result(5)

        DagsterGrpcClient(port=port).reload_code(timeout=60)

        assert waits.result(5) == "every table is up to date"


def test_the_daemon_reads_the_definitions_again_if_they_were_loaded_again_or_the_code_server_is_gone_and_only_then(
    tmp_path: Path, instance: DagsterInstance
) -> None:
    """Procedure: the daemon's workspace is refreshed, as every minute; the same after a reload, and after the code
    server has ended.
    Pass: at first the location is the same object; then it has the new table; then it is an error, which the UI shows.
    """
    folder = written(tmp_path / "documents", kafka=CLUSTER, orders=stream("shop/orders"))
    with code_server(folder, instance, log=tmp_path / "log") as (port, server):
        target = GrpcServerTarget(host="localhost", port=port, socket=None, location_name="shop")
        with lasting_workspace()(instance, target) as workspace:

            def location() -> CodeLocation:
                return workspace.create_request_context().get_code_location("shop")

            first = location()

            workspace.refresh_workspace()
            assert location() is first

            written(folder, clicks=stream("shop/clicks"))
            DagsterGrpcClient(port=port).reload_code(timeout=60)
            workspace.refresh_workspace()
            assert tables(location()) == {"shop/orders", "shop/clicks"}

            server.kill()
            with pytest.warns(UserWarning, match="Error loading repository location shop"):
                workspace.refresh_workspace()
            assert workspace.create_request_context().has_code_location_error("shop")
