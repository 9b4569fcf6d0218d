"""Drains by executor pods of a real Kubernetes API: its own servers, and a node whose pods are processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.documents.model.message_rules import DeadLetterLimit
from kdi_assets.documents.model.stream import Cluster
from kdi_assets.errors import KdiError, Transient
from kdi_assets.follow.refine.audit.audit import audit_refined
from kdi_assets.follow.refine.refine import refine
from kdi_assets.runtime import kubernetes
from kdi_assets.runtime.errors import NoExecutorPod
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.streams.replay.replay_letters import replay_letters
from tests.conftest import CHECKOUT, TopicFactory
from tests.deployment.charts import BYTES, NAMESPACE, RELEASE, of_kind, render
from tests.driven import web_requests
from tests.faults.conftest import DoomedFactory
from tests.faults.doomed_drain import COMMIT_LANDED, MID_READ
from tests.faults.race import drain_at_once
from tests.faults.systems.cluster_driver import ClusterDriver, DrivenByCluster, drain_with_signal
from tests.kafka_log import Publisher
from tests.kubernetes.api import Refused
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.kubelet import Kubelet
from tests.kubernetes.release import ACCOUNT, SPARKS_POD, VALUES, Release, image, programs
from tests.refined import refined_table
from tests.tables.dead_letters import RIGHT, WRONG
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


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """The root of the tables of one test, a folder that executors see."""
    return str(tmp_path / "lake")


@pytest.fixture(scope="module")
def driver(release: Release, settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterDriver]:
    """The driver of most tests."""
    found = release.driver(settings, str(tmp_path_factory.mktemp("lake")))
    yield found
    found.stop()


@pytest.fixture
def by_pods(driver: ClusterDriver, topic: TopicFactory, cluster: Cluster, lake: str) -> Callable[..., DrivenByCluster]:
    """Streams that executor pods drain, by one driver."""

    def make(partitions: int = 4, **fields: Any) -> DrivenByCluster:
        stream = web_requests(topic(partitions), cluster, **fields)
        return DrivenByCluster(stream, lake, Publisher(cluster.bootstrap_servers), no_session, driver=driver)

    return make


def no_session() -> Any:
    """In place of a session: only the driver has one."""
    raise AssertionError("the test process has no Spark")


def data_files(web: DrivenByCluster) -> set[str]:
    """The files of the table's rows, whether a version names them or not."""
    return {str(path) for path in Path(web.uri).rglob("part-*.parquet")}


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
    release: Release, settings: Settings, topic: TopicFactory, cluster: Cluster, lake: str
) -> None:
    """Purpose: rights that nobody uses are given away.
    Procedure: a driver's whole life, with a drain and a lost executor in it; read what the API server has logged.
    Pass: none of its calls was refused, and it made every call that its role allows.
    """
    stream = web_requests(topic(1), cluster)
    web = DrivenByCluster(stream, lake, Publisher(cluster.bootstrap_servers), no_session)
    web.produce(10)
    web.driver = release.driver(settings, lake)
    try:
        web.drain()
        lost = release.await_executors(2)[0]
        os.kill(release.kubelet.process_of(lost), signal.SIGKILL)
        wait_until(lambda: lost["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in release.pods(SPARKS_POD)})
    finally:
        web.driver.stop()

    (role,) = of_kind(release.manifests, "Role").values()
    granted = {(verb, resource) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    calls = list(release.servers.calls(ACCOUNT))
    assert not [call for call in calls if call[2] == 403]
    assert {(verb, resource) for verb, resource, _ in calls} == granted


def test_kubernetes_drains_refines_replays_and_audits_with_the_charts_settings(
    by_pods: Callable[..., DrivenByCluster], driver: ClusterDriver, release: Release
) -> None:
    """Purpose: what the chart writes for Spark is enough, and jars, kernel and settings reach executor pods.
    Procedure: drain good and bad messages in two rounds, refine after each; replay the letters of a wrong document;
    audit streams and the refined table; compare with Kafka.
    Pass: two executor pods worked, without a token of their own; every offset exactly once, byte for byte; the refined
    table is its recomputation; no call of the driver's account was refused.
    """
    web = by_pods()
    wrong = by_pods(columns=WRONG, dead_letter_limit=DeadLetterLimit(share=1.0))
    hosts = refined_table(
        **{
            "table": "gold/hosts",
            "from": web.stream.table,
            "mode": {"aggregate": {"by": ["date", "host"], "measures": {"n": "count"}}},
        }
    )

    web.produce(400, bad=0.1, tombstones=0.02, seed=1)
    first = web.drain()
    driver.call(refine, hosts, lake=web.lake)
    produced = web.produce(400, bad=0.1, tombstones=0.02, seed=2)
    second = web.drain()
    driver.call(refine, hosts, lake=web.lake)
    wrong.produce(60)
    wrong.drain()
    right = replace(wrong, stream=replace(wrong.stream, columns=RIGHT))
    back = right.there(replay_letters)

    pods = release.executors()
    assert [pod["spec"]["serviceAccountName"] for pod in pods] == [RELEASE, RELEASE]
    assert not [volume for pod in pods for volume in pod["spec"]["volumes"] if {"secret", "projected"} & volume.keys()]
    assert len(first.commits) == len(second.commits) == 1
    web.assert_each_offset_once(produced)
    assert back.messages == 60
    right.assert_each_offset_once(right.publisher.flush())
    assert (web.audit().complete, right.audit().complete) == (True, True)
    assert driver.call(audit_refined, hosts, lake=web.lake, everything=True).equal
    assert web.compare().agrees
    assert not [call for call in release.servers.calls(ACCOUNT) if call[2] == 403]


@pytest.mark.parametrize("ends", ["killed", "evicted"])
def test_a_drain_goes_on_when_an_executor_pod_ends_in_its_middle(
    by_pods: Callable[..., DrivenByCluster], release: Release, ends: str
) -> None:
    """Purpose: a container may be killed for its memory at any time, and a node that is drained evicts its pods.
    Procedure: an executor is stopped (SIGSTOP) when a plan is made, so that its tasks begin and do not end; when the
    other one has written a file, the process is killed (SIGKILL), or the pod evicted by the API (after a second
    without an answer it is killed); drain again, with more messages.
    Pass: the drain had not ended; it ends with its commit, or with a refusal that a retry can help; every offset
    exactly once; Kubernetes has started another pod, and the one that ended is gone.
    """
    web = by_pods()
    web.produce(100, bad=0.1)
    web.drain()
    assert web.driver
    victim = release.await_executors(2)[0]
    process = release.kubelet.process_of(victim)
    web.produce(800, bad=0.1, tombstones=0.02, seed=2)
    before = data_files(web)

    web.driver.start(drain_with_signal, web.stream, lake=web.lake, process=process, number=signal.SIGSTOP)
    wait_until(lambda: bool(data_files(web) - before))
    busy = web.driver.is_busy()
    if ends == "killed":
        os.kill(process, signal.SIGKILL)
    else:
        release.api.evict(victim["metadata"]["name"], NAMESPACE, grace_seconds=1)
    try:
        outcome: DrainReport | Transient = web.driver.result()
    except Transient as refused:
        outcome = refused
    produced = web.produce(100, bad=0.1, seed=3)
    web.drain()

    assert busy
    assert isinstance(outcome, Transient) or len(outcome.commits) == 1, outcome
    web.assert_each_offset_once(produced)
    assert web.audit().complete
    assert victim["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in release.await_executors(2)}
    assert victim["metadata"]["uid"] not in {pod["metadata"]["uid"] for pod in release.pods(SPARKS_POD)}


def test_one_of_two_drains_at_once_wins(by_pods: Callable[..., DrivenByCluster]) -> None:
    """Purpose: two drains of one stream share the executors, and only one of them commits.
    Procedure: two drains plan on the same version, then both read and commit; three times.
    Pass: one commit for each round; every offset exactly once.
    """
    web = by_pods(2)
    produced = web.produce(20)
    web.drain()

    for seed in range(1, 4):
        version = web.version()
        produced = web.produce(100, bad=0.1, seed=seed)
        raced = web.there(race)
        commits = sum(len(report.commits) for report in raced if isinstance(report, DrainReport))
        assert (commits, web.version()) == (1, version + 1), raced

    web.assert_each_offset_once(produced)
    assert web.audit().complete


def race(stream: Any, *, lake: str, session: Callable[[], SparkSession]) -> Sequence[DrainReport | KdiError]:
    """Two drains of the stream in two sessions; both have planned before one reads."""
    return drain_at_once(_Raced(lake, session), [stream, stream])


class _Raced:
    def __init__(self, lake: str, session: Callable[[], SparkSession]) -> None:
        self.lake, self.session = lake, session


@pytest.mark.parametrize("lacks", ["quota", "node"])
def test_a_drain_without_room_for_executors_ends_within_a_bound_and_the_next_one_goes_on_when_there_is_room(
    release: Release, settings: Settings, topic: TopicFactory, cluster: Cluster, lake: str, lacks: str
) -> None:
    """Purpose: without an executor, Spark's jobs wait for ever.
    Procedure: a driver with a patience of some seconds, while a ResourceQuota allows no further pod, or with executors
    that are larger than any node; then, with the quota removed, the same command once more.
    Pass: an error within the bound that says where to look; nothing was written; with room, the drain commits.
    """
    stream = web_requests(topic(1), cluster)
    web = DrivenByCluster(stream, lake, Publisher(cluster.bootstrap_servers), no_session)
    produced = web.produce(50)
    large = {"spark.kubernetes.executor.request.cores": "1000"} if lacks == "node" else {}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}}
    if lacks == "quota":
        release.api.apply({**quota, "spec": {"hard": {"pods": "1"}}}, NAMESPACE)
        wait_until(lambda: "hard" in release.api.listed("ResourceQuota", NAMESPACE)[0].get("status", {}))
    web.driver = release.driver(settings, lake, large)

    try:
        with pytest.raises(NoExecutorPod, match=f"no executor within 15 s: a quota of the namespace {NAMESPACE}"):
            web.there(drain_impatiently)
        assert not [path for path in Path(lake).rglob("*") if path.is_file()]
        release.api.delete("ResourceQuota", "full", NAMESPACE)
        if lacks == "quota":
            assert len(web.there(drain_impatiently, patience_seconds=120.0).commits) == 1
            web.assert_each_offset_once(produced)
    finally:
        release.api.delete("ResourceQuota", "full", NAMESPACE)
        web.driver.stop()


def drain_impatiently(
    stream: Any, *, lake: str, session: Callable[[], SparkSession], patience_seconds: float = 15.0
) -> DrainReport:
    """Drain; wait for an executor only so long."""
    vars(kubernetes).update(PATIENCE_SECONDS=patience_seconds, LOG_SECONDS=5.0)
    return drain(stream, lake=lake, session=session)


def test_drivers_that_are_killed_leave_nothing_half_done_and_their_pods_go_with_the_drivers_pod(
    by_pods: Callable[..., DrivenByCluster], doomed: DoomedFactory, release: Release, settings: Settings
) -> None:
    """Purpose: a dead driver cannot remove the pods of its executors; the next one in its pod must not meet them.
    Procedure: in turn, in one pod: a drain's process is killed (SIGKILL) in the middle of the read, the JVM of one just
    after the commit; delete the driver's pod, of which the StatefulSet makes another; drain by a driver there. This
    is the last test of the module: with its pod, the module's driver loses its account.
    Pass: the first left no version, the second one; their executors end by themselves; with the driver's pod, all pods
    and ConfigMaps of executors go; every offset exactly once.
    """
    web = by_pods()
    web.produce(100, bad=0.3)
    web.drain()
    begun = web.version()
    web.produce(3000, bad=0.1, tombstones=0.02, seed=2)
    assert web.driver
    options: dict[str, Any] = {"driver": "own", "home": CHECKOUT / ".kdi", "master": release.master}
    options |= {"config": release.config(), "environment": release.environment()}

    assert doomed(web, MID_READ, signal.SIGKILL, **options).exit_code() == -signal.SIGKILL
    assert web.version() == begun
    last = doomed(web, COMMIT_LANDED, signal.SIGKILL, to_jvm=True, **options).outcome()
    landed = web.version()
    web.driver.stop()
    wait_until(lambda: release.kubelet.running() == 0)
    left = {pod["metadata"]["uid"] for pod in release.pods(SPARKS_POD)}
    release.renew_drivers_pod()
    wait_until(lambda: not release.pods(SPARKS_POD))
    wait_until(lambda: not release.configurations_of_executors())
    web.driver = release.driver(settings, web.lake)
    produced = web.produce(100, bad=0.1, seed=3)
    try:
        web.drain()
        complete = web.audit().complete
    finally:
        web.driver.stop()

    assert isinstance(last, DrainReport) and landed == begun + 1
    assert left
    web.assert_each_offset_once(produced)
    assert complete
