"""The chart's containers: they run the units' command lines, with what they need and no more."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from grpc import insecure_channel
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

from kdi_assets.documents.loading.loader import load_streams
from kdi_assets.runtime.driver.control import address_file
from kdi_assets.runtime.driver.drivers import driver_folder
from kdi_assets.runtime.processes import Child
from kdi_assets.tools.local.broker import free_port
from tests.deployment.charts import (
    CHART_VALUES,
    DOCUMENTS,
    RELEASE,
    REQUIRED,
    containers,
    every_release,
    long_running,
    of_kind,
    pods,
    render,
)
from tests.deployment.deployed import BIN, DEPLOY, INSTALLED_BIN, Unit, example_environment, unit_names
from tests.waiting import wait_until


@pytest.mark.parametrize("name", unit_names())
def test_a_container_runs_the_command_of_its_unit_and_has_its_memory_and_time(
    name: str, plain: list[dict[str, Any]]
) -> None:
    unit = Unit.read(name)
    ((pod, container),) = [(p, c) for p in pods(plain).values() for c in long_running(p) if c["name"] == name]

    # Its own address is all that differs: in a pod, the loopback cannot be reached by others.
    usual = {"0.0.0.0": "127.0.0.1", "kdi-assets": "kdi_assets"}
    assert [usual.get(word, word) for word in container["command"]] == unit.command
    assert container["resources"]["limits"]["memory"] == unit.section["MemoryMax"] + "i"
    assert pod["terminationGracePeriodSeconds"] >= unit.stop_seconds


def test_the_driver_starts_before_the_code_server_and_both_have_time_to_stop_one_after_the_other(
    plain: list[dict[str, Any]],
) -> None:
    pod = pods(plain)[f"{RELEASE}-kdi-assets"]

    prepared = [container["name"] for container in pod["initContainers"]]
    assert prepared == ["home", "prepare", "driver"]
    seconds = Unit.read("code-server").stop_seconds + Unit.read("driver").stop_seconds
    assert pod["terminationGracePeriodSeconds"] == seconds


def test_each_of_several_drivers_has_its_number_its_checks_and_runs_of_its_own() -> None:
    one, three = render(REQUIRED), render({**REQUIRED, "spark": {"drivers": 3}})
    pod = pods(three)[f"{RELEASE}-kdi-assets"]
    drivers = [c for c in long_running(pod) if c["name"].startswith("driver")]

    unit = Unit.read("driver")
    assert [d["name"] for d in drivers] == ["driver", "driver-2", "driver-3"]
    assert [d["command"] for d in drivers] == [unit.command, *([*unit.command, "--number", n] for n in "23")]
    assert [d["startupProbe"]["exec"]["command"][-1] for d in drivers] == [
        str(address_file(driver_folder(Path("/var/lib/kdi"), number))) for number in (1, 2, 3)
    ]
    assert [d["livenessProbe"]["exec"]["command"][-2:] for d in drivers] == [["--number", n] for n in "123"]
    assert pod["terminationGracePeriodSeconds"] == Unit.read("code-server").stop_seconds + 3 * unit.stop_seconds
    disks = {v["name"]: v["emptyDir"]["sizeLimit"] for v in pod["volumes"] if "emptyDir" in v}
    (memory,) = [c["resources"]["limits"]["memory"] for c in long_running(pod) if c["name"] == "code-server"]
    assert memory == "6Gi", "each driver has four runs, in the code server's container"
    assert disks["home"] == CHART_VALUES["spark"]["scratch"], (
        "of the pod, as values.yaml says, however many drivers it has"
    )
    limits = [yaml.safe_load(of_kind(m, "ConfigMap")[RELEASE]["data"]["dagster.yaml"]) for m in (one, three)]
    runs, of_three = (dagster["concurrency"]["runs"] for dagster in limits)
    assert of_three["max_concurrent_runs"] == 3 * runs["max_concurrent_runs"]
    assert of_three["tag_concurrency_limits"][-1]["limit"] == 3 * runs["tag_concurrency_limits"][-1]["limit"]


@pytest.mark.parametrize(
    ("cores", "threads"), [("2", 2), (3, 3), ("1.5", 2), (0.5, 1), ("500m", 1), ("1500m", 2), ("0", 1)]
)
def test_a_driver_works_with_the_cores_that_its_container_asks_for_and_not_with_those_of_its_node(
    cores: str | float, threads: int
) -> None:
    """A request bounds no JVM: `local[*]` would be as many tasks at once as the node has cores, in one heap."""
    rendered = render({**REQUIRED, "spark": {"cores": cores}})

    (driver,) = (c for c in containers(pods(rendered)[f"{RELEASE}-kdi-assets"]) if c["name"] == "driver")

    assert driver["resources"]["requests"]["cpu"] == str(cores)
    assert {"name": "KDI_SPARK_MASTER", "value": f"local[{threads}]"} in driver["env"]


@pytest.mark.parametrize(("locations", "threads", "connections"), [(1, 16, 32), (5, 20, 40)])
def test_the_daemon_has_threads_for_each_location_and_two_connections_for_each_thread(
    locations: int, threads: int, connections: int
) -> None:
    of = [{"name": f"part-{number}"} for number in range(locations)]

    rendered = of_kind(render({**REQUIRED, "locations": of}), "ConfigMap")[RELEASE]["data"]["dagster.yaml"]
    dagster = yaml.safe_load(rendered)

    assert dagster["sensors"]["num_workers"] == threads
    assert dagster["storage"]["custom"]["config"]["max_connections"] == connections


@pytest.mark.parametrize(
    ("size", "of_two"), [("1.5Gi", "3Gi"), ("2000M", "4000M"), (2147483648, 4294967296), ("2e9", "4e+09")]
)
def test_the_code_server_has_its_memory_for_each_driver(size: str | int, of_two: str | int) -> None:
    values = {**REQUIRED, "spark": {"drivers": 2}, "resources": {"code": {"memory": size}}}
    pod = pods(render(values))[f"{RELEASE}-kdi-assets"]

    (memory,) = [c["resources"]["limits"]["memory"] for c in long_running(pod) if c["name"] == "code-server"]

    assert memory == of_two


@every_release
def test_no_container_runs_as_root_or_writes_to_its_image_and_each_that_stays_is_checked(
    values: dict[str, Any],
) -> None:
    for pod in pods(render(values)).values():
        assert pod["securityContext"]["runAsNonRoot"] is True
        for container in containers(pod):
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert (context["allowPrivilegeEscalation"], context["capabilities"]) == (False, {"drop": ["ALL"]})
        for container in long_running(pod):
            if container["name"] != "executor":  # Spark sets its resources, and replaces one that does not answer
                assert container["livenessProbe"]
                assert container["resources"].keys() == {"requests", "limits"}


def test_a_container_has_every_variable_of_the_example(plain: list[dict[str, Any]]) -> None:
    for pod in pods(plain).values():
        for container in containers(pod):
            assert example_environment().keys() <= {entry["name"] for entry in container["env"]}


def test_an_executor_works_in_a_folder_that_it_can_write_to(clustered: list[dict[str, Any]]) -> None:
    """It keeps the jars there that it fetches from the driver."""
    (executor,) = pods(clustered)[f"{RELEASE}-web-spark"]["containers"]

    assert executor["workingDir"] in {mount["mountPath"] for mount in executor["volumeMounts"]}


def test_mounted_documents_are_read_once_each(tmp_path: Path, clustered: list[dict[str, Any]]) -> None:
    """Kubernetes mounts a ConfigMap as a hidden folder, and links to its files."""
    hidden, documents = tmp_path / "documents" / "..2026_01_01" / "orders", tmp_path / "documents"
    hidden.mkdir(parents=True)
    (hidden / "defs.yaml").write_text(DOCUMENTS)
    (documents / "..data").symlink_to("..2026_01_01")
    (documents / "orders").symlink_to("..data/orders")
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "dagster.yaml").touch()
    home = next(c for c in containers(pods(clustered)[f"{RELEASE}-web"]) if c["name"] == "home")

    *shell, script = home["command"]
    for folder in ("/var/lib/kdi", "/config", "/documents"):
        script = script.replace(folder, str(tmp_path / Path(folder).name))
    (tmp_path / "kdi").mkdir()
    subprocess.run([*shell, script], check=True)

    assert len(load_streams(tmp_path / "kdi" / "streams")) == 1
    assert (tmp_path / "kdi" / "dagster" / "dagster.yaml").is_file()


def test_the_code_server_answers_the_probe_of_its_container(tmp_path: Path, plain: list[dict[str, Any]]) -> None:
    (server,) = (c for c in containers(pods(plain)[f"{RELEASE}-kdi-assets"]) if c["name"] == "code-server")
    port = str(free_port())
    command = [word.replace(str(INSTALLED_BIN), str(BIN)).replace("4266", port) for word in server["command"]]
    (tmp_path / "streams").mkdir()
    environment = {"KDI_HOME": str(tmp_path), "KDI_DEFS": str(tmp_path / "streams"), "DAGSTER_HOME": str(tmp_path)}
    process = Child(command, log=tmp_path / "log", environment=environment)
    probe = server["startupProbe"]["grpc"]

    def serving() -> bool:
        with insecure_channel(f"127.0.0.1:{port}") as channel:
            question = HealthCheckRequest(service=probe["service"])
            answer = HealthStub(channel).Check(question, wait_for_ready=True, timeout=60)
            return bool(answer.status == HealthCheckResponse.SERVING)

    try:
        wait_until(serving, seconds=60)
        assert process.exit_code() is None, "it was this server that answered"
    finally:
        process.kill()


def test_an_executor_is_started_with_what_spark_says_in_its_variables(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"],
        "JAVA_HOME": str(tmp_path),
        "SPARK_HOME": "/spark",
        "SPARK_CLASSPATH": "/jars/kernel.jar:/jars/delta.jar",
        "SPARK_CONF_DIR": "/opt/spark/conf",
        "SPARK_EXECUTOR_MEMORY": "2048m",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_EXECUTOR_ID": "7",
        "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@driver:7078",
        "SPARK_EXECUTOR_POD_IP": "10.0.0.7",
        "SPARK_EXECUTOR_POD_NAME": "executor-7",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        **{f"SPARK_JAVA_OPT_{number}": f"-Doption={number} with a space" for number in range(11)},
    }

    script = DEPLOY / "kubernetes" / "spark-executor"
    words = subprocess.check_output([script], env=environment, text=True).splitlines()

    assert words[:11] == [f"-Doption={number} with a space" for number in range(11)]
    assert words[11:15] == [
        "-Xms2048m",
        "-Xmx2048m",
        "-cp",
        "/jars/kernel.jar:/jars/delta.jar:/opt/spark/conf:/spark/jars/*",
    ]
    options = dict(zip(words[16::2], words[17::2], strict=True))
    assert options == {
        "--driver-url": "spark://CoarseGrainedScheduler@driver:7078",
        "--executor-id": "7",
        "--cores": "2",
        "--app-id": "spark-1",
        "--hostname": "10.0.0.7",
        "--resourceProfileId": "0",
        "--podName": "executor-7",
    }


def test_the_image_keeps_the_promises_that_its_users_rely_on(plain: list[dict[str, Any]]) -> None:
    """It was never built by us: no Docker runs where the tests do."""
    linter = BIN / "hadolint"
    assert linter.exists(), "hadolint is not installed. Run: make .venv/.checks"

    subprocess.run([linter, DEPLOY / "Dockerfile"], check=True)

    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    user = pods(plain)[f"{RELEASE}-webserver"]["securityContext"]
    assert f"USER {user['runAsUser']}:{user['runAsGroup']}" in lines
    assert any("kdi jars --kinesis --dir /opt/kdi/home/jars" in line for line in lines)
    assert not [line for line in lines if line.startswith(("ARG", "ADD"))]
    assert 'VOLUME ["/var/lib/kdi", "/tmp"]' in lines
