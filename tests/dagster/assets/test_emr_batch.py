"""Batches on EMR in Dagster: what the UI gets, what each failing call leaves behind, and what the next ticks mend."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster import DagsterRunStatus as Status
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run

from kdi_assets.definitions import definitions_for
from kdi_assets.documents.model.capabilities import TableKind
from kdi_assets.documents.model.stream import Stream
from kdi_assets.operate.monitoring.backlog import Backlog
from kdi_assets.operate.monitoring.follower_rows import FollowerRow
from kdi_assets.runtime.emr.batch import EmrBatch
from kdi_assets.runtime.emr.errors import EmrUnanswered
from kdi_assets.sensors import emr_batch as module
from kdi_assets.sensors.emr_batch import emr_batch
from kdi_assets.tools.local.s3_server import start_s3_server
from tests.conftest import CHECKOUT
from tests.documents import CLUSTER, refined, stream, written
from tests.emr.control_plane import RIGHTS, ControlPlane, Fault, serving
from tests.emr.declared import BATCH, environment
from tests.unit.monitoring.backlogs import waits

LAKE = "s3://bucket/lake"
KEY = dg.AssetKey(["emr", "nightly"])


class Site:
    """A code location with the batch, and an instance.

    Args:
        plane: Answers the calls of EMR.
    """

    def __init__(self, instance: DagsterInstance, plane: ControlPlane) -> None:
        self.instance, self.plane = instance, plane
        in_process = dg.Definitions(executor=dg.in_process_executor)  # as in `definitions_for`
        location = dg.Definitions.merge(emr_batch(BATCH, poll_seconds=0.0), in_process)
        self.repository = location.get_repository_def()

    def run(self) -> dg.ExecuteInProcessResult:
        """Materialize the asset, as the schedule's run does."""
        return self._job().execute_in_process(instance=self.instance, raise_on_error=False)

    def tick(self) -> str:
        """The text of a tick of the sensor; raises what fails it."""
        sensor = self.repository.get_sensor_def("emr_nightly_left_behind")
        result = sensor(dg.build_sensor_context(instance=self.instance))
        assert isinstance(result, dg.SkipReason)
        return str(result.skip_message)

    def begin(self) -> Any:
        """What the schedule answers."""
        schedule = self.repository.get_schedule_def("emr_nightly")
        return schedule(dg.build_schedule_context(instance=self.instance))

    def retry(self, of: str, *, from_failure: bool = True) -> bool:
        """Run it as Dagster retries a run, or as "Re-execute all" of the UI does; whether it succeeded."""
        first = self.instance.get_run_by_id(of)
        assert first
        resumed = {"dagster/is_resume_retry": "true"} if from_failure else {}
        again = self._created(resumed, root_run_id=first.root_run_id or of, parent_run_id=of)
        return execute_run(InMemoryJob(self._job()), again, self.instance).success

    def last(self) -> str:
        """The id of the newest run."""
        return self.instance.get_runs(limit=1)[0].run_id

    def lost_process(self, *, noticed: bool = True) -> str:
        """The id of a run that has started a cluster and whose process is gone; Dagster may have noticed it."""
        run = self._created()
        self.plane.answer("RunJobFlow", BATCH.request(run.run_id, lake=LAKE))
        if noticed:
            self.instance.report_run_failed(run, "its process is gone")
        return run.run_id

    def _created(self, more: Mapping[str, str] = MappingProxyType({}), **lineage: Any) -> dg.DagsterRun:
        tags = {**more, **{f"dagster/{name}": run_id for name, run_id in lineage.items()}}
        selected = frozenset([KEY])
        return self.instance.create_run_for_job(self._job(), asset_selection=selected, tags=tags, **lineage)

    def _job(self) -> dg.JobDefinition:
        return self.repository.get_implicit_global_asset_job_def()


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlPlane]:
    with serving(ControlPlane()) as plane:
        for name, value in {**environment(plane.endpoint), "KDI_LAKE": LAKE}.items():
            monkeypatch.setenv(name, value)
        yield plane


@pytest.fixture
def site(instance: DagsterInstance, plane: ControlPlane) -> Site:
    return Site(instance, plane)


@pytest.fixture
def grace_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if runs had ended some minutes ago."""
    monkeypatch.setattr(module, "GRACE_SECONDS", 0.0)


def live(plane: ControlPlane) -> list[str]:
    return [state for state in plane.states() if not state.startswith("TERMINAT")]


def test_a_run_shows_cluster_and_minutes_for_each_batch(site: Site) -> None:
    assert site.run().success

    (record,) = site.instance.fetch_materializations(KEY, limit=5).records
    materialized = record.asset_materialization
    assert materialized
    metadata = {name: value.value for name, value in materialized.metadata.items()}
    assert str(metadata["cluster"]).endswith("#/clusterDetails/j-0000000000001")
    assert metadata["normalized_instance_hours"] == 8
    assert isinstance(metadata["cluster_minutes"], float)


def test_a_batch_in_a_python_file_beside_the_documents_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = re.search(r"```python\n(.*?)```", (CHECKOUT / "docs" / "emr.md").read_text(), re.DOTALL)
    assert example
    folder = tmp_path / "defs"
    folder.mkdir()
    (folder / "nightly.py").write_text(example[1])
    monkeypatch.setenv("KDI_AUTOMATION", "on")

    repository = definitions_for(folder).get_repository_def()

    assert repository.get_schedule_def("emr_nightly").default_status is dg.DefaultScheduleStatus.RUNNING
    assert repository.get_sensor_def("emr_nightly_left_behind").default_status is dg.DefaultSensorStatus.RUNNING
    assert KEY in repository.assets_defs_by_key


def test_the_schedule_begins_no_batch_while_one_runs(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDI_DEFS", str(tmp_path))  # a location without tables cannot see what is due
    free = site.begin()
    run_id = site.lost_process(noticed=False)

    assert isinstance(free, dg.RunRequest)
    assert isinstance(busy := site.begin(), dg.SkipReason)
    assert run_id[:8] in str(busy.skip_message)


@pytest.fixture
def documents(plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream and a refined table, whose tables do not exist."""
    written(tmp_path / "defs", kafka=CLUSTER, a=stream("bronze/a"), b=refined("silver/b", upstream="bronze/a"))
    monkeypatch.setenv("KDI_DEFS", str(tmp_path / "defs"))
    monkeypatch.setenv("KDI_LAKE", str(tmp_path / "lake"))


IDLE = waits(stream="bronze/a")
DUE: dict[str, tuple[Backlog, str]] = {
    "a backlog": (waits(1, stream="bronze/a"), ""),
    "a refusal": (replace(IDLE, refusal=EmrUnanswered(call="any", detail="silent")), ""),
    "positions": (replace(IDLE, needs_position_commit=True), ""),
    "unknown": (replace(IDLE, topic_partitions={}), ""),
    "a refined table": (IDLE, "rows"),
}


@pytest.mark.usefixtures("documents")
def test_the_schedule_starts_no_cluster_if_nothing_is_due(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def idle(streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
        looked.extend(stream.name for stream in streams)
        return [IDLE]

    monkeypatch.setattr(module, "read_backlogs", idle)

    skipped = site.begin()

    assert isinstance(skipped, dg.SkipReason) and "nothing is due" in str(skipped.skip_message)
    assert looked == ["bronze/a"]


@pytest.mark.usefixtures("documents")
@pytest.mark.parametrize("due", DUE)
def test_whatever_is_due_begins_a_batch(site: Site, monkeypatch: pytest.MonkeyPatch, due: str) -> None:
    seen, new = DUE[due]
    monkeypatch.setattr(module, "read_backlogs", lambda streams, *, lake: [seen])
    if new:
        row = FollowerRow("silver/b", TableKind.REFINED, new=new)
        monkeypatch.setattr(module, "read_follower_rows", lambda tables, **_: [row])

    assert isinstance(site.begin(), dg.RunRequest)


@pytest.mark.usefixtures("documents")
@pytest.mark.parametrize("hangs", [True, False])
def test_a_batch_begins_if_what_is_due_cannot_be_seen(site: Site, monkeypatch: pytest.MonkeyPatch, hangs: bool) -> None:
    ended = threading.Event()

    def look(streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
        if hangs:
            ended.wait()
        raise OSError("the storage is silent")

    monkeypatch.setattr(module, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(module, "read_backlogs", look)

    begun = site.begin()
    ended.set()

    assert isinstance(begun, dg.RunRequest)


FAULTS: list[tuple[dict[str, tuple[Fault, ...]], bool, int]] = [
    ({"ListClusters": ("throttled",)}, True, 1),
    ({"ListClusters": ("throttled",) * 4}, False, 0),
    ({"ListClusters": ("internal error",)}, False, 0),
    ({"ListClusters": ("denied",)}, False, 0),
    ({"ListClusters": ("broken before",) * 4}, False, 0),
    ({"RunJobFlow": ("throttled",)}, False, 0),
    ({"RunJobFlow": ("internal error",)}, False, 0),
    ({"RunJobFlow": ("denied",)}, False, 0),
    ({"RunJobFlow": ("broken before",)}, False, 0),
    ({"RunJobFlow": ("broken after",)}, True, 1),
    ({"DescribeCluster": ("throttled",) * 4}, True, 1),
    ({"DescribeCluster": ("internal error",)}, True, 1),
    ({"DescribeCluster": ("denied",)}, False, 1),
    ({"DescribeCluster": ("broken after",)}, True, 1),
    ({"ListSteps": ("throttled",)}, True, 1),
    ({"ListSteps": ("internal error",)}, True, 1),
    ({"ListSteps": ("denied",)}, False, 1),
    ({"ListSteps": ("broken before",) * 4}, True, 1),
]
"""Calls that fail; whether the run succeeds all the same; how many clusters it starts."""


@pytest.mark.usefixtures("grace_is_over")
@pytest.mark.parametrize(("faults", "succeeds", "started"), FAULTS, ids=lambda v: str(v) if isinstance(v, dict) else "")
def test_whatever_call_fails_one_run_starts_at_most_one_cluster_and_the_next_tick_leaves_none(
    site: Site, plane: ControlPlane, faults: dict[str, tuple[Fault, ...]], succeeds: bool, started: int
) -> None:
    """Purpose: each call of the flow may be throttled, denied or lost, before its effect or after.
    Procedure: let one call fail, run a batch; tick; run the next batch.
    Pass: RunJobFlow was called at most once for a run; after the tick no cluster lives; the next batch succeeds.
    """
    for action, of in faults.items():
        plane.fail(action, *of)

    ran = site.run()
    called = plane.actions().count("RunJobFlow")
    clusters = len(plane.clusters)
    site.tick()
    left = live(plane)
    following = site.run()

    assert (ran.success, clusters) == (succeeds, started)
    assert called <= 1
    assert left == []
    assert following.success
    assert len(plane.clusters) == started + 1


@pytest.mark.usefixtures("grace_is_over")
def test_a_cluster_whose_start_was_not_answered_and_could_not_be_looked_for_is_ended_by_the_next_tick(
    site: Site, plane: ControlPlane
) -> None:
    original = plane.answer

    def lost_and_then_denied(action: str, parameters: dict[str, Any]) -> Any:
        if action == "RunJobFlow":
            plane.fail("ListClusters", "denied")
            plane.fail("RunJobFlow", "broken after")
        return original(action, parameters)

    plane.answer = lost_and_then_denied  # type: ignore[method-assign]

    assert not site.run().success
    assert live(plane) == ["STARTING"]
    assert "ended j-0000000000001" in site.tick()
    assert live(plane) == []


@pytest.mark.usefixtures("grace_is_over")
@pytest.mark.parametrize("fault", ["throttled", "denied", "broken before"])
def test_a_tick_that_cannot_end_a_cluster_fails_and_the_next_one_ends_it(
    site: Site, plane: ControlPlane, fault: Fault
) -> None:
    site.lost_process()
    plane.fail("TerminateJobFlows", *[fault] * 4)

    with pytest.raises(Exception, match="TerminateJobFlows"):
        site.tick()
    assert live(plane) == ["STARTING"]
    plane.fail("TerminateJobFlows")
    site.tick()

    assert live(plane) == []


@pytest.mark.usefixtures("grace_is_over")
def test_a_cluster_that_cannot_be_ended_does_not_keep_the_others_alive(site: Site, plane: ControlPlane) -> None:
    site.lost_process()
    site.lost_process()
    plane.fail("TerminateJobFlows", "denied")

    with pytest.raises(Exception, match="not authorized to perform: elasticmapreduce:TerminateJobFlows"):
        site.tick()

    assert len(live(plane)) == 1


def test_a_cluster_is_left_to_a_run_that_works_and_to_a_retry_that_may_come(site: Site, plane: ControlPlane) -> None:
    site.lost_process(noticed=False)
    site.lost_process()

    assert site.tick() == "2 clusters of the batch"

    assert len(live(plane)) == 2


def test_a_cluster_that_works_for_too_long_is_ended_also_if_its_run_never_said_that_it_ended(
    site: Site, plane: ControlPlane
) -> None:
    run_id = site.lost_process(noticed=False)
    plane.age(minutes=BATCH.most_minutes + 5)

    assert f"ended j-0000000000001, which run {run_id[:8]} left behind" in site.tick()

    assert live(plane) == []


@pytest.mark.usefixtures("grace_is_over")
def test_clusters_of_another_dagster_and_of_other_batches_are_left_alone(site: Site, plane: ControlPlane) -> None:
    """Staging and production may have the same documents in one account."""
    plane.answer("RunJobFlow", BATCH.request("00000000-0000-4000-8000-000000000000", lake=LAKE))
    other = EmrBatch(name="hourly", cron="0 * * * *", cluster=BATCH.cluster)
    run_id = site.lost_process()
    plane.answer("RunJobFlow", other.request(run_id, lake=LAKE))

    said = site.tick()

    assert "j-0000000000001 was started by a run that this Dagster does not know: left alone" in said
    assert plane.states() == ["STARTING", "TERMINATING", "STARTING"]


def test_the_retry_of_a_run_that_crashed_takes_its_cluster_over(site: Site, plane: ControlPlane) -> None:
    first = site.lost_process()

    assert site.retry(of=first)

    assert plane.states() == ["TERMINATED"]


def completed(plane: ControlPlane, cluster: str) -> None:
    """Let its steps be done, and the cluster end."""
    while plane.clusters[cluster]["Status"]["State"] != "TERMINATED":
        plane.answer("DescribeCluster", {"ClusterId": cluster})


def test_a_retry_reads_how_the_cluster_ended_that_has_done_its_steps_meanwhile_and_starts_none(
    site: Site, plane: ControlPlane
) -> None:
    """Procedure: the process of a run dies; its cluster does all steps; a retry fails; a retry of that one."""
    first = site.lost_process()
    completed(plane, "j-0000000000001")
    plane.fail("ListClusters", "denied")

    assert not site.retry(of=first)
    assert site.retry(of=site.last())

    assert plane.states() == ["TERMINATED"]
    (record,) = site.instance.fetch_materializations(KEY, limit=5).records
    assert "clusterDetails/j-0000000000001" in str(record.asset_materialization)


def test_who_runs_a_batch_again_that_ended_well_gets_another_cluster(site: Site, plane: ControlPlane) -> None:
    succeeded = site.run().run_id
    lost = site.lost_process()
    completed(plane, "j-0000000000002")

    assert site.retry(of=succeeded, from_failure=False)
    assert site.retry(of=lost, from_failure=False)

    assert plane.states() == ["TERMINATED"] * 4


def test_a_failed_step_fails_the_run_without_a_retry_and_is_not_run_again_by_it(
    site: Site, plane: ControlPlane
) -> None:
    plane.run_step = lambda args: lambda: 1 if args[-2] == "drain" else 0

    failed = site.run()

    run = site.instance.get_run_by_id(failed.run_id)
    assert run and run.status is Status.FAILURE
    assert run.tags["dagster/retry_on_asset_or_op_failure"] == "false"
    assert site.instance.fetch_materializations(KEY, limit=1).records == []


def test_no_event_and_no_request_has_a_secret(site: Site, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KAFKA_PASSWORD", "KDI_ALERT_WEBHOOK", "PGPASSWORD"):
        monkeypatch.setenv(name, f"secret-of-{name}")
    plane.fail("DescribeCluster", "denied")

    failed = site.run()
    succeeded = site.run()

    events = [event for run in (failed, succeeded) for event in site.instance.all_logs(run.run_id)]
    assert len(events) > 10
    assert "secret" not in "".join(map(repr, events)).replace("AWS_SECRET", "")
    assert "secret" not in repr(plane.calls)


def rights_in_terraform() -> set[str]:
    """The actions of the policy for batches in deploy/aws."""
    import hcl2

    found = hcl2.loads((CHECKOUT / "deploy" / "aws" / "access.tf").read_text())
    (policy,) = [
        named['"emr"'] if '"emr"' in named else named["emr"]
        for data in found["data"]
        for kind, named in data.items()
        if kind.strip('"') == "aws_iam_policy_document" and {"emr", '"emr"'} & named.keys()
    ]
    return {action.strip('"') for statement in policy["statement"] for action in statement["actions"]}


@pytest.mark.usefixtures("grace_is_over")
def test_the_rights_in_terraform_are_all_that_the_flow_needs_and_none_too_many(site: Site, plane: ControlPlane) -> None:
    plane.rights = rights_in_terraform()

    assert site.run().success
    site.lost_process()
    site.tick()

    assert live(plane) == []
    used = set().union(*(RIGHTS[action] for action in plane.actions()))
    assert used == plane.rights


@pytest.mark.usefixtures("grace_is_over")
@pytest.mark.parametrize("missing", sorted(set().union(*RIGHTS.values())))
def test_without_one_of_the_rights_the_error_names_it(site: Site, plane: ControlPlane, missing: str) -> None:
    everything = rights_in_terraform()
    site.lost_process()
    plane.rights = everything - {missing}

    try:
        site.tick()
        failed = site.run()
        said = " ".join(str(e.dagster_event) for e in site.instance.all_logs(failed.run_id) if e.dagster_event)
    except Exception as refused:  # noqa: BLE001 - the sensor's
        said = str(refused)

    assert f"not authorized to perform: {missing}" in said


def test_a_server_that_others_wrote_answers_in_the_same_shapes(
    instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs no steps, and its clusters end at once: our own server must not agree only with itself."""
    server = start_s3_server(tmp_path / "ministack", services=("elasticmapreduce",))
    for name, value in {**environment(server.endpoint), "KDI_LAKE": LAKE}.items():
        monkeypatch.setenv(name, value)
    site = Site(instance, ControlPlane())
    try:
        assert site.run().success
        assert site.tick() == "0 clusters of the batch"
    finally:
        server.stop()
