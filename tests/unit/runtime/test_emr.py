"""What a batch asks EMR for, and how a cluster is followed to its end: boto3 over HTTP, and a server of the tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from kdi_assets.runtime.emr import clusters
from kdi_assets.runtime.emr.batch import EmrBatch
from kdi_assets.runtime.emr.clusters import SeenCluster, end_cluster, live_clusters, run_to_its_end
from kdi_assets.runtime.emr.errors import (
    BatchFailed,
    BatchTooLong,
    ClusterDoesNotEnd,
    EmrRefused,
    EmrUnanswered,
    LakeOnThisMachine,
)
from tests.conftest import CHECKOUT
from tests.emr.control_plane import ControlPlane, Poll, serving, succeeds
from tests.emr.declared import BATCH, REGION, batch, environment

LAKE = "s3://bucket/lake"


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlPlane]:
    with serving(ControlPlane()) as plane:
        for name, value in environment(plane.endpoint).items():
            monkeypatch.setenv(name, value)
        yield plane


def run(
    of: EmrBatch = BATCH,
    *,
    run_id: str = "",
    attempts: tuple[str, ...] = (),
    resumes: tuple[str, ...] = (),
    said: list[str] | None = None,
) -> SeenCluster:
    run_id = run_id or str(uuid4())
    return run_to_its_end(
        of,
        run_id,
        attempts={run_id, *attempts, *resumes},
        resumes=dict.fromkeys(resumes, datetime.now(UTC) - timedelta(hours=1)),
        lake=LAKE,
        report=(said if said is not None else []).append,
        poll_seconds=0.0,
    )


def test_a_batch_is_one_cluster_which_does_all_steps_and_ends(plane: ControlPlane) -> None:
    said: list[str] = []

    ended = run(said=said)

    assert (ended.state, ended.steps) == ("TERMINATED", {"drain": "COMPLETED", "refine": "COMPLETED"})
    assert plane.actions().count("RunJobFlow") == 1
    assert "TerminateJobFlows" not in plane.actions()
    assert said[0] == f"started cluster {ended.id}"
    assert said[-1] == "TERMINATED (Steps completed); steps: drain COMPLETED, refine COMPLETED"
    assert len(said) == len(set(said)), "a line only when something changed"


def test_a_cluster_is_the_declared_one_and_cannot_outlive_its_steps(plane: ControlPlane) -> None:
    run_id = str(uuid4())

    run(run_id=run_id)

    ((_, asked),) = [call for call in plane.calls if call[0] == "RunJobFlow"]
    instances, steps = asked["Instances"], asked["Steps"]
    assert {name: asked[name] for name in BATCH.cluster if name not in ("Instances", "Tags")} == {
        name: value for name, value in BATCH.cluster.items() if name not in ("Instances", "Tags")
    }
    assert instances == {
        **BATCH.cluster["Instances"],
        "KeepJobFlowAliveWhenNoSteps": False,
        "TerminationProtected": False,
    }
    assert {step["ActionOnFailure"] for step in steps} == {"CONTINUE"}, "a refused stream stops no other table"
    assert asked["StepConcurrencyLevel"] == 1, "refine comes after drain"
    assert asked["Name"] == f"kdi-nightly-{run_id}"
    assert asked["Tags"] == [
        {"Key": "team", "Value": "data"},
        {"Key": "kdi:batch", "Value": "nightly"},
        {"Key": "kdi:run", "Value": run_id},
    ]


def test_a_step_is_the_command_on_yarn_with_a_limit_of_its_own(plane: ControlPlane) -> None:
    run()

    ((_, asked),) = [call for call in plane.calls if call[0] == "RunJobFlow"]
    drain, refine = (" ".join(step["HadoopJarStep"]["Args"]) for step in asked["Steps"])
    variables = (
        f"env AWS_REGION={REGION} HADOOP_CONF_DIR=/etc/hadoop/conf KDI_DRIVER=own KDI_LAKE={LAKE} KDI_SPARK_MASTER=yarn"
    )
    assert drain == f"{variables} timeout --kill-after=60 90m /opt/kdi/kdi drain --all"
    assert refine == f"{variables} timeout --kill-after=60 90m /opt/kdi/kdi refine --all"


def test_the_region_of_the_steps_is_that_of_the_deployment_unless_the_batch_names_one(plane: ControlPlane) -> None:
    """On the nodes nothing else names it, and without it no secret and no table in a bucket is found."""
    run(batch(environment={"AWS_REGION": "us-west-2"}))

    ((_, asked),) = [call for call in plane.calls if call[0] == "RunJobFlow"]
    for step in asked["Steps"]:
        named = [word for word in step["HadoopJarStep"]["Args"] if word.startswith("AWS_REGION=")]
        assert named == ["AWS_REGION=us-west-2"]


def test_without_a_region_no_cluster_is_started_and_the_error_says_what_to_set(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")

    with pytest.raises(EmrRefused, match=r"You must specify a region(.|\n)*set AWS_REGION"):
        run()

    assert plane.calls == []


@pytest.mark.parametrize("fails", ["drain", "refine"])
def test_a_step_that_fails_fails_the_batch_and_names_its_log_and_the_other_step_runs(
    plane: ControlPlane, fails: str
) -> None:
    ran: list[str] = []

    def start(args: Any) -> Poll:
        ran.append(args[-2])
        return lambda: 1 if args[-2] == fails else 0

    plane.run_step = start

    with pytest.raises(BatchFailed, match=f"{fails} FAILED.*; log: s3://logs/j-0000000000001/steps/.*/stderr.gz"):
        run()

    assert ran == ["drain", "refine"]
    assert plane.states() == ["TERMINATED"]


def test_a_cluster_that_somebody_ends_fails_the_batch(plane: ControlPlane) -> None:
    plane.run_step = lambda args: lambda: end_cluster("j-0000000000001")

    with pytest.raises(BatchFailed, match="Terminated by user request.*refine CANCELLED"):
        run()


def test_a_batch_whose_steps_are_all_completed_is_done_also_if_its_cluster_ends_with_errors(
    plane: ControlPlane,
) -> None:
    """All that it had to do is committed; its last state is in the log of the run."""
    plane.ended = "TERMINATED_WITH_ERRORS"
    said: list[str] = []

    ended = run(said=said)

    assert (ended.state, ended.has_done_all) == ("TERMINATED_WITH_ERRORS", True)
    assert said[-1].startswith("TERMINATED_WITH_ERRORS")


@pytest.mark.parametrize("state", ["TERMINATING", "TERMINATED", "TERMINATED_WITH_ERRORS"])
def test_a_run_that_goes_on_with_one_whose_cluster_has_done_all_steps_starts_no_other(
    plane: ControlPlane, state: str
) -> None:
    first = str(uuid4())
    plane.ended = "TERMINATED_WITH_ERRORS" if state == "TERMINATED_WITH_ERRORS" else "TERMINATED"
    plane.answer("RunJobFlow", BATCH.request(first, lake=LAKE, region=REGION))
    while plane.states() != [state]:
        plane.answer("DescribeCluster", {"ClusterId": "j-0000000000001"})

    ended = run(resumes=(first,))
    run(attempts=(first,))

    assert (ended.id, ended.state, ended.has_done_all) == ("j-0000000000001", plane.ended, True)
    assert len(plane.clusters) == 2, "one that begins again has a cluster of its own"


def test_a_run_that_goes_on_with_one_whose_step_failed_has_a_cluster_of_its_own(plane: ControlPlane) -> None:
    first = str(uuid4())
    plane.run_step = lambda args: lambda: 1
    with pytest.raises(BatchFailed):
        run(run_id=first)
    plane.run_step = succeeds

    assert run(resumes=(first,)).id == "j-0000000000002"


def test_clusters_that_are_older_than_the_run_are_not_looked_at(plane: ControlPlane) -> None:
    """An account may list thousands."""
    first = str(uuid4())
    run(run_id=first)
    plane.age(minutes=90)

    run(resumes=(first,))

    assert len(plane.clusters) == 2


def test_a_run_does_not_take_over_the_cluster_of_another_run_or_batch(plane: ControlPlane) -> None:
    first = str(uuid4())
    plane.answer("RunJobFlow", BATCH.request(first, lake=LAKE, region=REGION))
    plane.answer("RunJobFlow", batch(name="hourly").request(first, lake=LAKE, region=REGION))

    run()
    run(batch(name="nightl"), attempts=(first,))

    assert plane.states() == ["STARTING", "STARTING", "TERMINATED", "TERMINATED"]


def test_the_live_clusters_are_those_of_the_batch_on_all_pages(plane: ControlPlane) -> None:
    runs = [str(uuid4()) for _ in range(3)]
    for name, run_id in zip(("nightly", "hourly", "nightly"), runs, strict=True):
        plane.answer("RunJobFlow", batch(name=name).request(run_id, lake=LAKE, region=REGION))
    plane.answer("RunJobFlow", {**BATCH.request(runs[0], lake=LAKE, region=REGION), "Name": "kdi-nightly-by-hand"})

    found = live_clusters(BATCH)

    assert {cluster.run_id for cluster in found} == {runs[0], runs[2]}


@pytest.mark.parametrize("fault", ["throttled", "broken before"])
def test_a_start_that_does_not_arrive_is_not_repeated_and_a_retry_can_help(plane: ControlPlane, fault: Any) -> None:
    plane.fail("RunJobFlow", fault)

    with pytest.raises(EmrUnanswered, match="RunJobFlow"):
        run()

    assert plane.actions().count("RunJobFlow") == 1
    assert plane.clusters == {}


def test_a_cluster_that_works_for_too_long_fails_the_batch(plane: ControlPlane) -> None:
    plane.run_step = lambda args: lambda: plane.age(minutes=60)

    with pytest.raises(BatchTooLong, match="j-0000000000001 works for more than 90 minutes"):
        run()


def test_a_cluster_that_has_done_all_steps_may_take_longer_to_end(plane: ControlPlane) -> None:
    def takes_50_minutes() -> int:
        plane.age(minutes=50)
        return 0

    plane.run_step = lambda args: takes_50_minutes

    ended = run()

    assert (ended.state, ended.minutes > BATCH.most_minutes) == ("TERMINATED", True)


def test_a_cluster_that_does_not_end_after_its_steps_is_not_watched_for_ever(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: the run would hold its pool, and no batch would begin any more."""
    minutes, advance = count(step=10), plane._advance
    clock = SimpleNamespace(monotonic=lambda: 60.0 * next(minutes), sleep=lambda seconds: None)
    monkeypatch.setattr(clusters, "time", clock)

    def until_it_ends(cluster: dict[str, Any]) -> None:
        if cluster["Status"]["State"] != "TERMINATING":
            advance(cluster)

    monkeypatch.setattr(plane, "_advance", until_it_ends)

    with pytest.raises(ClusterDoesNotEnd, match="did not end in 30 minutes"):
        run()

    assert 30 < next(minutes) < 90 + 30


@pytest.mark.parametrize("lake", ["/var/lake", "file:///var/lake", "file:/var/lake"])
def test_a_folder_of_this_machine_is_refused_before_any_call(plane: ControlPlane, lake: str) -> None:
    with pytest.raises(LakeOnThisMachine):
        run_to_its_end(BATCH, str(uuid4()), attempts=(), resumes={}, lake=lake, report=print, poll_seconds=0.0)

    assert plane.calls == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "Nightly run"}, "name is 'Nightly run'"),
        ({"most_minutes": 0}, "most_minutes is 0"),
        ({"cluster": {"Steps": []}}, "cluster has Steps"),
        ({"cluster": {"StepConcurrencyLevel": 2}}, "cluster has StepConcurrencyLevel"),
        ({"cluster": {"Instances": {"KeepJobFlowAliveWhenNoSteps": True}}}, "cluster has KeepJobFlowAliveWhenNoSteps"),
    ],
)
def test_a_batch_whose_cluster_might_not_end_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        batch(**changes)


def test_what_the_model_of_the_service_does_not_know_is_refused_without_a_cluster(plane: ControlPlane) -> None:
    with pytest.raises(EmrRefused, match="Intances"):
        run(batch(cluster={**BATCH.cluster, "Intances": {}}))

    assert plane.clusters == {}


@pytest.mark.parametrize(("lake", "has_jars"), [(LAKE, False), (LAKE, True), ("hdfs://name/lake", False)])
def test_the_command_of_the_archive_names_the_line_that_makes_it_if_it_lacks_the_jars_of_s3(
    tmp_path: Path, lake: str, has_jars: bool
) -> None:
    """The advice of ``JarMissing``, `kdi jars`, would mend one node of a cluster that ends."""
    shutil.copy(CHECKOUT / "deploy" / "emr" / "kdi", tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    if has_jars:
        (tmp_path / "home" / "jars" / "s3").mkdir(parents=True)
    command, variables = [str(tmp_path / "kdi"), "drain", "--all"], {"PATH": os.environ["PATH"], "KDI_LAKE": lake}

    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)

    if lake == LAKE and not has_jars:
        assert (done.returncode, done.stdout) == (1, "")
        page = (CHECKOUT / "docs" / "emr.md").read_text()
        (line,) = [line for line in page.splitlines() if "bin/kdi jars" in line]
        assert line.partition("   #")[0].replace("s3://example-lake/lake", lake) in done.stderr
    else:
        assert (done.returncode, done.stdout) == (0, "-m kdi_assets.cli drain --all\n")
