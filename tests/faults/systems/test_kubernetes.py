"""Drains by executor pods of a real Kubernetes API: its own servers, and a node whose pods are processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.errors import KdiError
from kdi_assets.operate.doctor.finding import Verdict
from kdi_assets.operate.doctor.kubernetes import kubernetes as examined
from kdi_assets.runtime import executors
from kdi_assets.runtime.errors import ContextDidNotStart, KubernetesRefused, NoExecutors
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.tools.local.broker import free_port
from tests.deployment.charts import BYTES, NAMESPACE, RELEASE, of_kind, render
from tests.faults.systems.cluster_driver import ClusterDriver, DrivenByCluster, seen_by_executors
from tests.faults.systems.engine import IMPATIENT, Engine
from tests.faults.systems.engine_contract import *  # noqa: F403
from tests.kafka.certificates import make_certificates
from tests.kubernetes.api import Refused
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.kubelet import NO_REGISTRY, Kubelet, Pod
from tests.kubernetes.release import ACCOUNT, SPARKS_POD, VALUES, Release, image, programs
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kubernetes


@pytest.fixture(scope="module")
def release(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """The chart, applied to Kubernetes' servers, with a node."""
    servers = ControlPlane(tmp_path_factory.mktemp("kubernetes"), settings.home)
    try:
        pods = tmp_path_factory.mktemp("pods")
        kubelet = Kubelet(servers.admin, pods, programs=programs(), image=image(settings))
        try:
            yield Release(servers, kubelet, tmp_path_factory.mktemp("release"))
        finally:
            kubelet.stop()
    finally:
        servers.stop()


class OnKubernetes(Engine):
    """Drivers in the place of the driver's container of a release."""

    def __init__(self, release: Release, settings: Settings, lake: str) -> None:
        self._release = release
        super().__init__(replace(settings, spark_master=release.master, lake=lake), release.environment())

    def config(self) -> dict[str, str]:
        return self._release.config()

    def executors(self) -> list[int]:
        return [*self.pods()]

    def pods(self) -> dict[int, Pod]:
        """The pods of executors that run, by the process."""
        return {self._release.kubelet.process_of(pod): pod for pod in self._release.executors()}

    def end_executor(self, process: int, how: str) -> None:
        if how == "killed":
            os.kill(process, signal.SIGKILL)
        else:  # after a second without an answer it is killed
            self._release.api.evict(self.pods()[process]["metadata"]["name"], NAMESPACE, grace_seconds=1)

    def elastic_driver(self) -> AbstractContextManager[ClusterDriver]:
        return self.other_driver(IMPATIENT, **self._release.environment(dynamic=True))


@pytest.fixture(scope="module")
def engine(release: Release, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnKubernetes]:
    """The release's executors."""
    engine = OnKubernetes(release, settings, str(tmp_path_factory.mktemp("lake")))
    yield engine
    engine.stop_driver()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A container may be killed for its memory at any time, and a node that is drained evicts its pods."""
    if "ends" in metafunc.fixturenames:
        metafunc.parametrize("ends", ["killed", "evicted"])


def test_the_chart_is_what_kubernetes_accepts_and_its_pods_run(release: Release) -> None:
    """Purpose: a field that Kubernetes does not know would be dropped in silence.
    Procedure: the chart was applied with strict validation; apply one manifest with a misspelt field, and a code pod
    with each way to write its memory, without keeping it.
    Pass: the misspelt one is refused, the others are not; every Deployment and StatefulSet has its pod.
    """
    (found,) = of_kind(release.manifests, "StatefulSet").values()
    misspelt = {**found, "spec": {**found["spec"], "replica": 1}}

    with pytest.raises(Refused, match="field not declared in schema|unknown field"):
        release.api.apply(misspelt, NAMESPACE)
    for quantity in BYTES:
        resources = {"code": {"cpu": 1, "memory": quantity}}
        for manifest in render({**VALUES, "resources": resources}):
            release.api.apply(manifest, NAMESPACE, dry_run=True)

    owners = {*of_kind(release.manifests, "Deployment"), *of_kind(release.manifests, "StatefulSet")}
    wait_until(lambda: {owner for pod in release.pods() if (owner := release.owner_of(pod))} == owners)


def test_the_drivers_account_may_ask_for_executors_and_nothing_else(release: Release) -> None:
    """Purpose: whoever takes over a driver has what its account may do.
    Procedure: ask the API, with a token as the driver's pod has it, and with one of the executors' account.
    Pass: pods and ConfigMaps of its own namespace, and nothing of others; the executors' account may do nothing.
    """
    driver = release.servers.account(release.drivers_token())
    executor = release.servers.account(release.api.token_of(RELEASE, NAMESPACE))
    needed = [
        ("create", "pods"),
        ("deletecollection", "pods"),
        ("create", "configmaps"),
        ("deletecollection", "services"),
    ]
    beyond = [("get", "secrets"), ("create", "pods/exec"), ("create", "rolebindings"), ("patch", "statefulsets")]
    beyond += [("create", "serviceaccounts/token"), ("get", "configmaps"), ("patch", "pods")]

    assert all(driver.may(verb, resource, NAMESPACE) for verb, resource in needed)
    assert not [(verb, resource) for verb, resource in beyond if driver.may(verb, resource, NAMESPACE)]
    assert not [(verb, resource) for verb, resource in needed + beyond if driver.may(verb, resource, "default")]
    assert not [(verb, resource) for verb, resource in needed + beyond if executor.may(verb, resource, NAMESPACE)]
    with pytest.raises(Refused, match=f"403: .*{ACCOUNT}.*cannot list resource"):
        driver.listed("Secret", NAMESPACE)


def test_a_driver_needs_all_rights_of_its_account_and_no_other(
    by_engine: Callable[..., DrivenByCluster], engine: OnKubernetes, release: Release
) -> None:
    """Purpose: rights that nobody uses are given away.
    Procedure: a driver's whole life, with a drain and a lost executor in it; read what the API server has logged.
    Pass: none of its calls was refused, and it made every call that its role allows.
    """
    of_others = engine.pods()
    with engine.other_driver() as driver:
        web = by_engine(1, driver=driver)
        web.produce(10)
        web.drain()
        lost, pod = next((process, pod) for process, pod in engine.pods().items() if process not in of_others)
        engine.end_executor(lost, "killed")
        wait_until(lambda: pod["metadata"]["uid"] not in {each["metadata"]["uid"] for each in release.pods(SPARKS_POD)})

    (role,) = of_kind(release.manifests, "Role").values()
    granted = {(verb, resource) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    calls = list(release.servers.calls(ACCOUNT))
    assert not [call for call in calls if call[2] == 403]
    assert {(verb, resource) for verb, resource, _ in calls} == granted


def test_executor_pods_have_no_right_of_their_own(engine: OnKubernetes, release: Release) -> None:
    """Procedure: a driver with the chart's settings; read the pods of its executors.
    Pass: two pods, of the executors' account, without a token or a Secret.
    """
    engine.driver().call(seen_by_executors, [])
    engine.await_executors(2)

    pods = release.executors()
    assert [pod["spec"]["serviceAccountName"] for pod in pods] == [RELEASE, RELEASE]
    assert not [volume for pod in pods for volume in pod["spec"]["volumes"] if {"secret", "projected"} & volume.keys()]


LACKS = {
    "quota": ({}, "it has no pod, because Kubernetes refuses them"),
    "node": ({"spark.kubernetes.executor.request.cores": "1000"}, "has no node: 0/1 nodes"),
    "image": ({"spark.kubernetes.container.image": f"{NO_REGISTRY}/kdi:1"}, "waits: (ErrImagePull|ImagePullBackOff) "),
    "way to the driver": ({"spark.driver.host": "kdi.invalid"}, "reach(ed|ing) the driver at kdi.invalid:"),
}
"""What executors lack: the setting, and what is said."""


@pytest.mark.parametrize("lacks", LACKS)
def test_a_drain_without_executors_ends_within_a_bound_and_the_next_one_goes_on_when_there_is_room(
    by_engine: Callable[..., DrivenByCluster], engine: OnKubernetes, release: Release, lake: str, lacks: str
) -> None:
    """Purpose: without an executor, Spark's jobs wait for ever.
    Procedure: a driver with a patience of some seconds, while a ResourceQuota allows no further pod; or with executors
    that are larger than any node, whose image cannot be pulled, or which do not know the driver's name. With the quota
    removed, the same command once more.
    Pass: an error within the bound that says where to look; nothing was written; with room, the drain commits.
    """
    web = by_engine(1)
    produced = web.produce(50)
    config, said = LACKS[lacks]
    if lacks == "quota":
        release.fill_quota()

    try:
        with engine.other_driver(config, lake=lake) as driver:
            web = replace(web, drives=lambda: driver)
            with pytest.raises(NoExecutors, match=f"no executor within 15 s: in the namespace {NAMESPACE}, .*{said}"):
                web.there(drain_impatiently)
            assert not [path for path in Path(lake).rglob("*") if path.is_file()]
            release.remove_quota()
            if lacks == "quota":
                assert len(web.there(drain_impatiently, patience_seconds=120).commits) == 1
                web.assert_each_offset_once(produced)
    finally:
        release.remove_quota()


def drain_impatiently(
    stream: Any, *, lake: str, session: Callable[[], SparkSession], patience_seconds: int = 15
) -> DrainReport:
    """Drain; wait for an executor only so long."""
    vars(executors).update(PATIENCE_SECONDS=patience_seconds)
    return drain(stream, lake=lake, session=session)


@pytest.mark.parametrize("mistake", ["namespace", "account", "pod", "token", "authority", "address"])
def test_a_driver_that_kubernetes_does_not_take_says_so_and_leaves_nothing(
    engine: OnKubernetes, release: Release, tmp_path: Path, mistake: str
) -> None:
    """Purpose: what Spark says is a trace of Java and of py4j, without a word on what is safe and what to do.
    Procedure: start a driver with another namespace, with the executors' account, for a pod that does not exist, with a
    token that ended, with another authority, or at an address where nothing listens.
    Pass: within a bound an error of ours, with Kubernetes' words if it answers; no pod and no ConfigMap stays.
    """
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("ended" if mistake == "token" else release.api.token_of(RELEASE, NAMESPACE))
    authority.write_bytes(make_certificates(tmp_path).ca.read_bytes())
    with_token = {"spark.kubernetes.authenticate.oauthTokenFile": str(token)}
    wrong: dict[str, tuple[dict[str, str], type[KdiError], str]] = {
        "namespace": ({"spark.kubernetes.namespace": "default"}, KubernetesRefused, r"\(403\): .* in the namespace"),
        "account": (with_token, KubernetesRefused, rf"\(403\): .*:{NAMESPACE}:{RELEASE}\" cannot get resource"),
        "pod": (
            {"spark.kubernetes.driver.pod.name": "none"},
            KubernetesRefused,
            r"\(404\): No pod was found named none",
        ),
        "token": (with_token, KubernetesRefused, r"\(401\): Unauthorized"),
        "authority": ({"spark.kubernetes.authenticate.caCertFile": str(authority)}, ContextDidNotStart, "certificat"),
        "address": ({"spark.master": f"k8s://https://127.0.0.1:{free_port()}"}, ContextDidNotStart, "refused"),
    }
    config, error, said = wrong[mistake]
    of_others = len(release.pods(SPARKS_POD)), len(release.configurations_of_executors())

    with engine.other_driver(config) as driver, pytest.raises(error, match=said):
        driver.call(seen_by_executors, [])

    assert (len(release.pods(SPARKS_POD)), len(release.configurations_of_executors())) == of_others


@pytest.mark.parametrize(
    ("mistake", "verdict", "said"),
    [
        ("", Verdict.OK, "would start executors in"),
        ("executors' account", Verdict.WRONG, "may not create pods"),
        ("full quota", Verdict.WARNING, "no room in the quota"),
        ("no image", Verdict.WRONG, "executors refused"),
        ("no such account", Verdict.WRONG, "executors refused"),
    ],
)
def test_the_doctor_asks_kubernetes_whether_it_would_take_an_executors_pod(
    release: Release, tmp_path: Path, mistake: str, verdict: Verdict, said: str
) -> None:
    """Procedure: the files that a pod of each account has mounted, and the chart's settings with one mistake; examine.
    Pass: only the driver's account with right settings and room may create executors, and the examination makes none.
    """
    of_executors = mistake == "executors' account"
    token = release.api.token_of(RELEASE, NAMESPACE) if of_executors else release.drivers_token()
    (tmp_path / "token").write_text(token)
    (tmp_path / "ca.crt").write_text(release.servers.authority.read_text())
    environment = settings_with(mistake, release.environment(), tmp_path)
    if mistake == "full quota":
        release.fill_quota()
    before = {pod["metadata"]["name"] for pod in release.pods()}

    try:
        found = examined(release.master, environment, account=tmp_path)
    finally:
        release.remove_quota()

    assert found.verdict is verdict and found.found.startswith(said), found
    assert {pod["metadata"]["name"] for pod in release.pods()} <= before


def settings_with(mistake: str, environment: dict[str, str], folder: Path) -> dict[str, str]:
    """A copy of Spark's settings with the mistake in it."""
    changes = {
        "no image": ("spark.kubernetes.container.image", "#"),
        "no such account": (f"serviceAccountName: {RELEASE}", "serviceAccountName: none"),
    }
    before, after = changes.get(mistake, ("", ""))
    for file in Path(environment["SPARK_CONF_DIR"]).iterdir():
        text = file.read_text().replace(environment["SPARK_CONF_DIR"], str(folder))
        (folder / file.name).write_text(text.replace(before, after) if before else text)
    return {"SPARK_CONF_DIR": str(folder)}


def test_executors_of_a_killed_driver_end_and_their_pods_go_with_the_drivers_pod(
    by_engine: Callable[..., DrivenByCluster], engine: OnKubernetes, release: Release
) -> None:
    """Purpose: a dead driver cannot remove the pods of its executors; the next one in its pod must not meet them.
    Procedure: kill a driver (SIGKILL), whose JVM ends with it; delete the driver's pod, of which the StatefulSet makes
    another; drain by a driver there. This is the last test of the module: without its pod, the driver of the others
    has no account.
    Pass: the executors end by themselves; with the driver's pod, all pods and ConfigMaps of executors go.
    """
    engine.stop_driver()
    with engine.other_driver() as driver:
        driver.call(seen_by_executors, [])
        os.kill(driver.pid, signal.SIGKILL)
        wait_until(lambda: release.kubelet.running() == 0)
        left = release.pods(SPARKS_POD)
    release.renew_drivers_pod()
    wait_until(lambda: not release.pods(SPARKS_POD))
    wait_until(lambda: not release.configurations_of_executors())
    web = by_engine()
    produced = web.produce(100, bad=0.1)
    web.drain()

    assert left
    web.assert_each_offset_once(produced)
