"""The Helm chart: what it renders is valid and has no more rights than it needs, and wrong values are refused."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config

from tests.conftest import CHECKOUT
from tests.deployment.charts import (
    BYTES,
    CHART_VALUES,
    DOCUMENTS,
    NAMESPACE,
    RELEASE,
    REQUIRED,
    TWO_LOCATIONS,
    NotRendered,
    containers,
    every_release,
    of_kind,
    pods,
    render,
)
from tests.deployment.deployed import DEPLOY

VERSIONS = ("1.29", "1.34")  # the oldest that the chart accepts, and a recent one


@every_release
@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_is_one_that_kubernetes_accepts(values: dict[str, Any], version: str) -> None:
    from kubernetes_validate import validate

    manifests = render(values)

    for manifest in manifests:
        validate(manifest, version, strict=True)
    for config in of_kind(manifests, "ConfigMap").values():
        if template := config["data"].get("executor.yaml"):
            validate(yaml.safe_load(template), version, strict=True)
    assert {"Deployment", "StatefulSet", "Service", "ConfigMap", "NetworkPolicy"} <= {m["kind"] for m in manifests}


def test_several_drivers_with_executors_are_refused_because_their_ports_would_be_the_same() -> None:
    with pytest.raises(NotRendered, match=r"spark\.drivers is 1 with spark\.executors"):
        render({**REQUIRED, "spark": {"drivers": 2, "executors": {"instances": 1}}})


@every_release
def test_secrets_are_named_and_never_written_and_only_what_reaches_kafka_gets_them_all(values: dict[str, Any]) -> None:
    manifests = render(values)
    password = {"name": "PGPASSWORD", "valueFrom": {"secretKeyRef": {"name": "kdi-secrets", "key": "PGPASSWORD"}}}

    assert not of_kind(manifests, "Secret")
    for pod in pods(manifests).values():
        for container in containers(pod):
            every = [source["secretRef"]["name"] for source in container.get("envFrom", ())]
            assert every == (["kdi-secrets"] if container["name"] in {"code-server", "driver", "metrics"} else [])
            single = [entry for entry in container["env"] if "value" not in entry]
            assert single == ([] if container["name"] == "executor" else [password])
            assert not {"PGPASSWORD", "AWS_SECRET_ACCESS_KEY"} & {e["name"] for e in container["env"] if "value" in e}


def test_the_service_accounts_that_reach_the_lake_are_those_that_the_page_names() -> None:
    values = {**TWO_LOCATIONS, "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:role"}}}
    manifests = render(values)

    accounts = of_kind(manifests, "ServiceAccount")

    users = {pod["serviceAccountName"] for pod in pods(manifests).values() if "serviceAccountName" in pod}
    assert users == accounts.keys() == {RELEASE, f"{RELEASE}-driver"}
    for account in accounts.values():
        assert account["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": "arn:role"}
    assert {"`<release>`", "`<release>-driver`"} <= set(re.findall(r"`[^`]*`", chapter()))


def chapter() -> str:
    """The chapter of the page on deployment."""
    return (CHECKOUT / "docs" / "deployment.md").read_text().partition("\n## Kubernetes\n")[2].partition("\n## ")[0]


def test_the_values_and_the_command_of_the_page_make_a_release() -> None:
    (values_file,) = re.findall(r"```yaml\n(.*?)```", chapter(), re.DOTALL)
    ((index, folder),) = re.findall(r"--set-file 'locations\[(\d)\]\.documents\.(\w+)=", chapter())
    values = yaml.safe_load(values_file)
    # As Helm: the user's list replaces the chart's, and --set-file adds to it.
    values.setdefault("locations", [{}])[int(index)]["documents"] = {folder: DOCUMENTS}

    manifests = render(values)

    assert of_kind(manifests, "ConfigMap")[f"{RELEASE}-kdi-assets-documents"]["data"] == {folder: DOCUMENTS}


def test_a_location_without_a_name_is_refused() -> None:
    with pytest.raises(NotRendered, match=r"locations\[\]\.name: each location needs one"):
        render({**REQUIRED, "locations": [{"documents": {"orders": DOCUMENTS}}]})


LONGEST = "x" * (52 - len(f"{RELEASE}-"))


@pytest.mark.parametrize(
    ("name", "why"), [("webserver", "webserver is the UI's"), (f"{LONGEST}x", "has more than 52 characters")]
)
def test_a_location_whose_name_is_taken_or_too_long_for_kubernetes_is_refused(name: str, why: str) -> None:
    with pytest.raises(NotRendered, match=rf"locations\[\]\.name: .*{why}"):
        render({**REQUIRED, "locations": [{"name": name}]})

    assert f"{RELEASE}-{LONGEST}" in of_kind(render({**REQUIRED, "locations": [{"name": LONGEST}]}), "StatefulSet")


def test_only_a_driver_with_executors_may_call_kubernetes(
    plain: list[dict[str, Any]], clustered: list[dict[str, Any]]
) -> None:
    callers = {name for name, pod in pods(clustered).items() if pod["automountServiceAccountToken"]}

    assert callers == {f"{RELEASE}-web", f"{RELEASE}-rest-of-it"}
    assert not [name for name, pod in pods(plain).items() if pod["automountServiceAccountToken"]]
    assert not of_kind(plain, "Role")
    assert not of_kind(clustered, "ClusterRole")


def test_dagster_finds_each_code_server_by_its_service(clustered: list[dict[str, Any]]) -> None:
    workspace = yaml.safe_load(of_kind(clustered, "ConfigMap")[RELEASE]["data"]["workspace.yaml"])

    servers = [entry["grpc_server"] for entry in workspace["load_from"]]

    assert {server["host"] for server in servers} <= of_kind(clustered, "Service").keys()
    assert [server["location_name"] for server in servers] == ["web", "rest_of_it"]


def test_each_location_has_as_many_runs_as_one_machine_and_takes_none_of_the_others(
    clustered: list[dict[str, Any]], tmp_path: Path
) -> None:
    usual = yaml.safe_load((DEPLOY / "dagster.yaml").read_text())
    runs = usual["concurrency"]["runs"]
    (tmp_path / "dagster.yaml").write_text(of_kind(clustered, "ConfigMap")[RELEASE]["data"]["dagster.yaml"])

    own, _ = dagster_instance_config(str(tmp_path))

    each = {"key": "dagster/code_location", "value": {"applyLimitPerUniqueValue": True}}
    runs["tag_concurrency_limits"].append({**each, "limit": runs["max_concurrent_runs"]})
    runs["max_concurrent_runs"] *= 2
    assert own == usual


@pytest.mark.parametrize("dynamic", [True, False])
def test_executors_are_a_fixed_number_or_as_many_as_a_backlog_needs_up_to_it(dynamic: bool) -> None:
    """A drain must be split for the executors that may come: none is there when it begins."""
    executors = {"instances": 3, "dynamic": dynamic, "cores": 2}
    rendered = render({**REQUIRED, "spark": {"executors": executors}})

    text = of_kind(rendered, "ConfigMap")[f"{RELEASE}-kdi-assets-spark"]["data"]["spark-defaults.conf"]

    words = ("spark.executor.instances", "spark.dynamicAllocation", "spark.default.parallelism")
    assert [line for line in text.splitlines() if line.startswith(words)] == (
        [
            "spark.dynamicAllocation.enabled true",
            "spark.dynamicAllocation.maxExecutors 3",
            "spark.dynamicAllocation.executorIdleTimeout 60s",
            "spark.dynamicAllocation.shuffleTracking.timeout 600s",
            "spark.dynamicAllocation.cachedExecutorIdleTimeout 3600s",
            "spark.default.parallelism 6",
        ]
        if dynamic
        else ["spark.executor.instances 3"]
    )


def test_executors_find_the_driver_by_the_name_of_its_pod(clustered: list[dict[str, Any]]) -> None:
    text = of_kind(clustered, "ConfigMap")[f"{RELEASE}-web-spark"]["data"]["spark-defaults.conf"]
    settings = dict(line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#"))
    service = of_kind(clustered, "Service")[f"{RELEASE}-web"]["spec"]

    assert settings["spark.driver.host"] == f"{RELEASE}-web-0.{RELEASE}-web.{NAMESPACE}.svc"
    assert (service["clusterIP"], service["publishNotReadyAddresses"]) == ("None", True)
    ports = {str(port["port"]) for port in service["ports"]}
    assert {settings["spark.driver.port"], settings["spark.driver.blockManager.port"]} <= ports


def test_nobody_on_the_network_reads_what_driver_and_executors_say_because_tasks_carry_passwords(
    clustered: list[dict[str, Any]],
) -> None:
    for location in ("web", "rest-of-it"):
        text = of_kind(clustered, "ConfigMap")[f"{RELEASE}-{location}-spark"]["data"]["spark-defaults.conf"]

        assert {"spark.authenticate true", "spark.network.crypto.enabled true"} <= set(text.splitlines())


WEB, OTHER = TWO_LOCATIONS["locations"]
CODE, DAGSTER = {f"{RELEASE}-web", f"{RELEASE}-rest-of-it"}, {f"{RELEASE}-daemon", f"{RELEASE}-webserver"}


@pytest.mark.parametrize(
    ("changes", "restarted"),
    [
        ({"ui": {"from": []}}, set[str]()),
        ({"locations": [{**WEB, "documents": {"other": DOCUMENTS}}, OTHER]}, {f"{RELEASE}-web"}),
        ({"spark": {"executors": {"instances": 4}}}, CODE),
        ({"serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:role"}}}, CODE),
        ({"locations": [WEB, OTHER, {"name": "third"}]}, CODE | DAGSTER),
        ({"env": {"AWS_REGION": "us-west-2"}}, CODE | DAGSTER),
    ],
    ids=["UI's peers", "documents", "executors", "role", "one location more", "variable"],
)
def test_an_upgrade_restarts_the_pods_that_read_what_has_changed_and_no_others(
    changes: dict[str, Any], restarted: set[str], clustered: list[dict[str, Any]]
) -> None:
    """A restart ends runs. AWS gives a pod the role of its account when the pod is made."""
    before, after = (
        {m["metadata"]["name"]: m["spec"]["template"] for m in each if "template" in m.get("spec", {})}
        for each in (clustered, render({**TWO_LOCATIONS, **changes}))
    )

    assert {name for name, template in before.items() if after[name] != template} == restarted


@pytest.mark.parametrize("missing", ["image", "lake", "postgres", "secret"])
def test_a_release_without_a_required_value_is_refused_with_its_name(missing: str) -> None:
    with pytest.raises(NotRendered, match=rf"{missing}[.:]"):
        render({name: value for name, value in REQUIRED.items() if name != missing})


@pytest.mark.parametrize("lake", ["/mnt/lake", "file:///mnt/lake", "lake"])
def test_a_lake_on_the_disk_of_a_pod_is_refused_because_it_would_go_with_the_pod(lake: str) -> None:
    with pytest.raises(NotRendered, match=f"lake: {lake} is a path, which pods neither share nor keep"):
        render({**REQUIRED, "lake": lake})


def sections(values: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of each mapping of the chart's values whose keys are the chart's, from the top."""
    if path not in {("env",), ("serviceAccount", "annotations"), ("locations", "documents")}:
        yield path
        for name, value in values.items():
            section = value[0] if name == "locations" else value
            if isinstance(section, dict):
                yield from sections(section, (*path, name))


def with_value(path: tuple[str, ...], value: object) -> dict[str, Any]:
    """The required values, and one more."""
    values: dict[str, Any] = copy.deepcopy(REQUIRED)
    section = values
    for name in path[:-1]:
        section = section.setdefault(name, [{"name": "web"}] if name == "locations" else {})
        section = section[0] if name == "locations" else section
    section[path[-1]] = value
    return values


@pytest.mark.parametrize("section", list(sections(CHART_VALUES)), ids=lambda path: ".".join(path) or "top")
def test_a_misspelt_value_is_refused_with_its_name(section: tuple[str, ...]) -> None:
    with pytest.raises(NotRendered, match="misspelt"):
        render(with_value((*section, "misspelt"), {}))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("automation",), "off"),
        (("image", "tag"), 0.1),
        (("postgres", "sslMode"), "on"),
        (("locations",), []),
        (("locations",), [{"name": "orders_eu"}, {"name": "orders-eu"}]),
        (("locations", "name"), "Orders"),
        (("locations", "name"), "orders.eu"),
        (("locations", "documents"), {"shop/orders": "type: …"}),
        (("spark", "memory"), "2Gi"),
        (("spark", "drivers"), 0),
        (("spark", "executors", "instances"), "three"),
        (("spark", "executors", "cores"), 0),
        (("resources", "code", "memory"), "2g"),
        (("resources", "code", "memory"), "512m"),
        (("spark", "scratch"), "2e"),
        (("env", "AWS-REGION"), "eu-central-1"),
        (("ui", "from"), [{"pods": {}}]),
    ],
)
def test_a_value_that_cannot_work_is_refused_before_anything_is_installed(path: tuple[str, ...], value: object) -> None:
    with pytest.raises(NotRendered, match=path[0]):
        render(with_value(path, value))


@pytest.mark.parametrize("quantity", BYTES)
def test_memory_may_be_written_in_every_way_that_kubernetes_reads(quantity: str | float) -> None:
    resources = {"code": {"cpu": 1, "memory": quantity}}

    manifests = render({**REQUIRED, "resources": resources, "spark": {"scratch": quantity}})

    (server,) = (c for c in containers(pods(manifests)[f"{RELEASE}-kdi-assets"]) if c["name"] == "code-server")
    assert _bytes(server["resources"]["limits"]["memory"]) == _bytes(quantity)


def _bytes(quantity: str | float) -> float:
    units = {"Gi": 2.0**30, "G": 1e9}
    number, unit = next(((str(quantity)[: -len(u)], u) for u in units if str(quantity).endswith(u)), (quantity, ""))
    return float(number) * units.get(unit, 1)
