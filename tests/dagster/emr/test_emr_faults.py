"""Batches on EMR when something fails: what each failing call leaves behind, and what the next ticks and runs mend."""

from __future__ import annotations

from typing import Any

import pytest

from kdi_assets.runtime.emr.batch import EmrBatch
from tests.conftest import CHECKOUT
from tests.emr.control_plane import RIGHTS, ControlPlane, Fault
from tests.emr.declared import BATCH, REGION
from tests.emr.site import KEY, LAKE, Site


def live(plane: ControlPlane) -> list[str]:
    return [state for state in plane.states() if not state.startswith("TERMINAT")]


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
    plane.answer("RunJobFlow", BATCH.request("00000000-0000-4000-8000-000000000000", lake=LAKE, region=REGION))
    other = EmrBatch(name="hourly", cron="0 * * * *", cluster=BATCH.cluster)
    run_id = site.lost_process()
    plane.answer("RunJobFlow", other.request(run_id, lake=LAKE, region=REGION))

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
