"""A deployment's files, its processes from an installed copy, and what its launcher says about a run's process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, TextIO, cast

import boto3
import dagster as dg
import pytest
import yaml
from dagster import DagsterInstance
from dagster._core.launcher import WorkerStatus
from dagster._core.storage.compute_log_manager import ComputeIOType
from dagster._core.storage.tags import GRPC_INFO_TAG

from demo.parts import DEPLOYED_PORT, code_server_command
from kdi_assets.resources.pooled_storage import MAX_CONNECTIONS
from kdi_assets.resources.run_launcher import WatchedRunLauncher
from kdi_assets.tools.local.broker import free_port
from tests.conftest import CHECKOUT
from tests.deployment.deployed import BIN, DEPLOY, INSTALLED_BIN, Unit, unit_names
from tests.deployment.installed import install

OF_A_DEPLOYMENT = {"storage", "run_launcher", "compute_logs", "python_logs", "sensors"}
DOCUMENTS = """
type: kdi_assets.components.KafkaCluster
attributes: {name: main, bootstrap_servers: "127.0.0.1:9092"}
---
type: kdi_assets.components.TopicTable
attributes: {topic: t, table: bronze/t, schema: id bigint, date: current_date()}
"""


def compose() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return services


def test_the_deployments_instance_differs_from_the_checkouts_only_where_it_must() -> None:
    own, checkouts = (yaml.safe_load((folder / "dagster.yaml").read_text()) for folder in (DEPLOY, CHECKOUT))

    assert own.keys() ^ checkouts.keys() == OF_A_DEPLOYMENT
    assert {name for name in checkouts if own[name] != checkouts[name]} == {"retention", "run_coordinator"}
    assert own["run_coordinator"]["config"].items() >= checkouts["run_coordinator"]["config"].items()
    (storage,) = own["storage"].values()
    assert storage["config"] == {"postgres_url": "postgresql+psycopg2://", "max_connections": MAX_CONNECTIONS}


def test_both_workspaces_give_the_location_the_same_name_and_the_code_server_takes_it() -> None:
    (server,) = yaml.safe_load((DEPLOY / "workspace.yaml").read_text())["load_from"]
    (module,) = yaml.safe_load((CHECKOUT / "workspace.yaml").read_text())["load_from"]
    command = Unit.read("code-server").command

    assert server["grpc_server"]["location_name"] == module["python_module"]["location_name"]
    given = {"location-name": "location_name", "host": "host", "port": "port"}
    for option, field in given.items():
        assert command[command.index(f"--{option}") + 1] == str(server["grpc_server"][field])


def test_dev_forks_its_runs_from_the_code_server_of_a_deployment() -> None:
    deployed, here = Unit.read("code-server").command, code_server_command(int(DEPLOYED_PORT))

    assert deployed == [str(INSTALLED_BIN / here[0]), *here[1:], "--log-format", "json"]


@pytest.mark.parametrize("name", unit_names())
def test_a_unit_and_its_container_run_one_command_end_alike_and_start_again_by_themselves(name: str) -> None:
    unit, service = Unit.read(name), compose()[name]

    assert service["command"] == unit.command
    assert service["stop_grace_period"] == f"{unit.stop_seconds:.0f}s"
    assert service["mem_limit"].upper() == unit.section["MemoryMax"]
    assert service["healthcheck"]["test"][0] == "CMD"
    assert (unit.section["Restart"], unit.section["KillMode"]) == ("always", "mixed")
    assert f"kdi-{name}.service" in (DEPLOY / "systemd" / "kdi.target").read_text()


@pytest.mark.parametrize("jars", ["none", "a folder of an older installation", "a link"])
def test_the_containers_use_the_jars_of_the_image_whatever_the_home_has(jars: str, tmp_path: Path) -> None:
    home, image = tmp_path / "home", tmp_path / "image"
    home.mkdir()
    image.mkdir()
    if jars.startswith("a folder"):
        (home / "jars").mkdir()
        (home / "jars" / "older.jar").touch()
    elif jars == "a link":
        (home / "jars").symlink_to(image)
    (image / "dagster").write_text('#!/bin/sh\necho "$@"\n')
    (image / "dagster").chmod(0o755)

    *shell, script = compose()["prepare"]["command"]
    script = script.replace("/var/lib/kdi", str(home)).replace("/opt/kdi/home/jars", str(image))
    environment = {"PATH": f"{image}:{os.environ['PATH']}"}
    said = subprocess.check_output([*shell, script], env=environment, text=True)

    assert said == "instance migrate\n"
    assert (home / "jars").readlink() == image
    assert (image / "dagster").exists(), "nothing of the image is removed"
    assert not list(image.glob("*.jar"))


def test_what_writes_to_dagsters_database_starts_after_it_and_is_stopped_before_it() -> None:
    units = [Unit.read(name) for name in unit_names()]

    writers = {unit.name: unit.order.get("After", "") for unit in units if not unit.command[0].endswith("/kdi")}

    assert writers == dict.fromkeys(("code-server", "daemon", "webserver"), "postgresql.service")


def test_the_locked_packages_of_a_deployment_are_those_that_were_tested() -> None:
    own, tested = (pins(folder / "requirements.lock") for folder in (DEPLOY, CHECKOUT))

    assert own.items() <= tested.items()
    assert {"dagster-postgres", "psycopg2-binary", "pyspark"} <= own.keys()
    assert not own.keys() & {"pytest", "ruff", "playwright", "pgserver"}


def pins(lock: Path) -> dict[str, str]:
    """Package to its version and hashes."""
    entries = "".join(line for line in lock.read_text().splitlines(True) if not line.startswith("#"))
    parts = [entry.split("==", 1) for entry in entries.replace("\\\n", " ").splitlines()]
    return {name: " ".join(rest.split()) for name, rest in parts}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package in a folder of its own."""
    return install(tmp_path_factory.mktemp("installed"))


def test_an_installed_copy_has_one_package(installed: Path) -> None:
    assert {path.name.partition("-")[0] for path in installed.iterdir()} == {"bin", "kdi_assets"}


def test_an_installed_copy_reads_the_documents_that_the_environment_names(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "streams" / "t").mkdir(parents=True)
    (tmp_path / "streams" / "t" / "defs.yaml").write_text(DOCUMENTS)
    environment = {**os.environ, "PYTHONPATH": str(installed), "KDI_DEFS": str(tmp_path / "streams")}
    environment["KDI_HOME"] = str(tmp_path / "home")
    program = "import kdi_assets.resources, kdi_assets.sensors; print(kdi_assets.__file__)"

    where, told = (
        subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
        for command in ([sys.executable, "-c", program], [str(BIN / "kdi"), "status", "nothing"])
    )

    assert Path(where.stdout.strip()).parent.parent == installed, where.stderr
    assert told.returncode == 2
    assert "the same command again   (with one of: bronze/t;" in told.stderr


@dg.job
def work() -> None:
    """A job without steps."""


@pytest.fixture
def launcher(instance: DagsterInstance) -> WatchedRunLauncher:
    launcher = WatchedRunLauncher()
    launcher.register_instance(instance)
    return launcher


def started(instance: DagsterInstance, **tags: str) -> dg.DagsterRun:
    return instance.create_run_for_job(work, status=dg.DagsterRunStatus.STARTED, tags=tags)


def test_a_run_of_the_command_line_is_left_alone(instance: DagsterInstance, launcher: WatchedRunLauncher) -> None:
    """Its process is that of the command, which no code server knows."""
    assert launcher.check_run_worker_health(started(instance)).status is WorkerStatus.RUNNING


def test_a_run_is_not_given_up_while_its_code_server_does_not_answer(
    instance: DagsterInstance, launcher: WatchedRunLauncher
) -> None:
    server = json.dumps({"host": "127.0.0.1", "port": free_port()})

    health = launcher.check_run_worker_health(started(instance, **{GRPC_INFO_TAG: server}))

    assert (health.status, health.msg) == (WorkerStatus.RUNNING, "its code server does not answer")


def test_the_output_of_runs_goes_to_a_bucket_and_the_ui_reads_it_from_there(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDI_LOGS_BUCKET", bucket.removeprefix("s3://"))
    section = (DEPLOY / "compute-logs-s3.yaml").read_text()
    settings = yaml.safe_load(section)
    # In /tmp, the next run of this test would append to what this one reads.
    settings["compute_logs"]["config"]["local_dir"] = str(tmp_path)
    (tmp_path / "dagster.yaml").write_text(yaml.safe_dump(settings))
    key = ["a-run", "compute_logs", "a-step"]

    with DagsterInstance.from_config(str(tmp_path)) as instance:
        logs = instance.compute_log_manager
        with logs.open_log_stream(key, ComputeIOType.STDERR) as stream:
            cast(TextIO, stream).write("what the run wrote")
        kept = boto3.client("s3").list_objects_v2(Bucket=bucket.removeprefix("s3://"))["Contents"]
        read = logs.get_log_data_for_type(key, ComputeIOType.STDERR, offset=0, max_bytes=100)

    assert [thing["Key"] for thing in kept] == ["dagster/storage/a-run/compute_logs/a-step.err"]
    assert read[0] == b"what the run wrote"
    assert "KEY" not in section.upper().replace("KDI_LOGS_BUCKET", "")
