"""The calls of EMR: start the cluster of a run at most once, look at it until it ends, end one that was left behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from kdi_assets.aws import is_transient
from kdi_assets.errors import Transient
from kdi_assets.runtime.emr.batch import STEPS, EmrBatch
from kdi_assets.runtime.emr.errors import BatchFailed, BatchTooLong, ClusterDoesNotEnd, EmrRefused, EmrUnanswered
from kdi_assets.runtime.s3_access import s3_region

LIVE = ("STARTING", "BOOTSTRAPPING", "RUNNING", "WAITING")
"""States in which a cluster does not end yet."""
ENDED = ("TERMINATED", "TERMINATED_WITH_ERRORS")
DONE = ("TERMINATING", *ENDED)
"""States in which a cluster may have done all steps."""
END_SECONDS = 1800.0
"""How long a cluster may take to end after all steps; EMR needs minutes."""


@dataclass(frozen=True, slots=True)
class BatchCluster:
    """A cluster of a batch, as EMR lists it; ``run_id``: of the run that started it."""

    id: str
    run_id: str
    created: datetime


@dataclass(frozen=True, slots=True)
class SeenCluster:
    """A cluster at one moment.

    Attributes:
        reason: Why it is in this state, as EMR says it.
        steps: By name, the state of each.
        logs: Where the logs of failed steps are.
        instance_hours: Normalized, as EMR counts them.
        page: In the console of AWS.
    """

    id: str
    state: str
    reason: str
    created: datetime
    minutes: float
    steps: dict[str, str]
    logs: tuple[str, ...]
    instance_hours: int
    page: str

    @property
    def has_done_all(self) -> bool:
        """Whether all steps are completed."""
        return self.steps == dict.fromkeys(STEPS, "COMPLETED")

    def __str__(self) -> str:
        steps = ", ".join(f"{name} {state}" for name, state in self.steps.items())
        return f"{self.state}{f' ({self.reason})' if self.reason else ''}; steps: {steps or 'none'}"


def run_to_its_end(
    batch: EmrBatch,
    run_id: str,
    *,
    attempts: Collection[str],
    resumes: Mapping[str, datetime],
    lake: str,
    report: Callable[[str], None],
    poll_seconds: float = 30.0,
) -> SeenCluster:
    """Start a cluster for a run, or take over that of an earlier attempt, and wait until it has ended.

    Args:
        attempts: The ids of all runs of which one is a retry of the other, this one's too.
        resumes: The failed runs with which this one goes on, by id, and when each was created. If the cluster of one
            has done all steps, that is the result.
        report: Takes a line whenever something changed.

    Returns:
        The ended cluster, with all steps completed.

    Raises:
        BatchFailed: It ended otherwise.
        BatchTooLong, ClusterDoesNotEnd: It works, or takes to end, for longer than it may.
        EmrUnanswered, EmrRefused: It was not started.
        LakeOnThisMachine: A cluster cannot see the lake.
    """
    client = _client()
    request = batch.request(run_id, lake=lake, region=client.meta.region_name)
    if cluster := _live_cluster_of(client, batch, attempts) or _done_cluster_of(client, batch, resumes):
        report(f"took over cluster {cluster}")
    else:
        cluster = _start(client, batch, run_id, request)
        report(f"started cluster {cluster}")
    seen = _watch(client, batch, cluster, report, poll_seconds)
    if not seen.has_done_all:  # how its instances ended changes nothing about what is committed
        said = "; ".join([str(seen), *(f"log: {log}" for log in seen.logs)])
        raise BatchFailed(batch=batch.name, cluster=cluster, said=said, minutes=seen.minutes)
    return seen


def live_clusters(batch: EmrBatch) -> list[BatchCluster]:
    """The clusters of a batch that do not end yet, whoever started them.

    Raises:
        EmrUnanswered, EmrRefused: EMR does not list them.
    """
    return _clusters(_client(), batch, LIVE)


def end_cluster(cluster: str) -> None:
    """End a cluster; its steps end as if they were killed. Raises as ``live_clusters``."""
    with _translated("TerminateJobFlows"):
        _client().terminate_job_flows(JobFlowIds=[cluster])


def _clusters(client: Any, batch: EmrBatch, states: Sequence[str], **asked: Any) -> list[BatchCluster]:
    """The newest first."""
    with _translated("ListClusters"):
        pages = client.get_paginator("list_clusters").paginate(ClusterStates=list(states), **asked)
        listed = [(batch.run_id(c["Name"]), c) for page in pages for c in page["Clusters"]]
    return [BatchCluster(c["Id"], run, _created(c)) for run, c in listed if run]


def _live_cluster_of(client: Any, batch: EmrBatch, runs: Collection[str]) -> str | None:
    return next((cluster.id for cluster in _clusters(client, batch, LIVE) if cluster.run_id in runs), None)


def _done_cluster_of(client: Any, batch: EmrBatch, resumes: Mapping[str, datetime]) -> str | None:
    """The newest cluster of these runs that has done all steps; it may take minutes more to end."""
    if not resumes:
        return None
    # An account may list thousands that have ended.
    clusters = _clusters(client, batch, DONE, CreatedAfter=min(resumes.values()))
    ours = (cluster.id for cluster in clusters if cluster.run_id in resumes)
    return next((cluster for cluster in ours if _look(client, cluster).has_done_all), None)


def _start(client: Any, batch: EmrBatch, run_id: str, request: dict[str, Any]) -> str:
    # RunJobFlow has no token that makes a second call harmless, so nothing repeats it: neither botocore nor we.
    try:
        with _translated("RunJobFlow"):
            return str(_client(attempts=1).run_job_flow(**request)["JobFlowId"])
    except EmrUnanswered:
        if cluster := _live_cluster_of(client, batch, (run_id,)):  # only the answer was lost
            return cluster
        raise


def _watch(
    client: Any, batch: EmrBatch, cluster: str, report: Callable[[str], None], poll_seconds: float
) -> SeenCluster:
    """Look at it until it has ended. That EMR does not answer for a while changes nothing about the cluster."""
    until, is_done, shown = time.monotonic() + 60 * batch.most_minutes, False, ""
    while True:
        seen: SeenCluster | None = None
        try:
            line = str(seen := _look(client, cluster))
        except Transient as unanswered:
            line = unanswered.message_parts()[0]
        if line != shown:
            report(line)
            shown = line
        if seen and seen.state in ENDED:
            return seen
        if seen and seen.has_done_all and not is_done:  # it ends by itself
            until, is_done = time.monotonic() + END_SECONDS, True
        is_old = seen is not None and not is_done and seen.minutes > batch.most_minutes
        if is_old or time.monotonic() > until:
            if is_done:
                raise ClusterDoesNotEnd(batch=batch.name, cluster=cluster, minutes=round(END_SECONDS / 60))
            raise BatchTooLong(batch=batch.name, cluster=cluster, most_minutes=batch.most_minutes)
        time.sleep(poll_seconds)


def _look(client: Any, cluster: str) -> SeenCluster:
    with _translated("DescribeCluster"):
        found = client.describe_cluster(ClusterId=cluster)["Cluster"]
    with _translated("ListSteps"):
        steps = client.list_steps(ClusterId=cluster)["Steps"]
    status, created, region = found["Status"], _created(found), client.meta.region_name
    ended = status["Timeline"].get("EndDateTime") or datetime.now(UTC)
    return SeenCluster(
        id=cluster,
        state=status["State"],
        reason=status.get("StateChangeReason", {}).get("Message", ""),
        created=created,
        minutes=(ended - created).total_seconds() / 60,
        steps={name: s["Status"]["State"] for name in STEPS for s in steps if s["Name"] == name},
        logs=tuple(log for s in steps if (log := s["Status"].get("FailureDetails", {}).get("LogFile"))),
        instance_hours=found.get("NormalizedInstanceHours", 0),
        page=f"https://{region}.console.aws.amazon.com/emr/home?region={region}#/clusterDetails/{cluster}",
    )


def _created(cluster: dict[str, Any]) -> datetime:
    created: datetime = cluster["Status"]["Timeline"]["CreationDateTime"]
    return created


def _client(*, attempts: int = 4) -> Any:
    import boto3
    from botocore.config import Config

    retries = {"total_max_attempts": attempts, "mode": "standard"}
    with _translated("the look for credentials and a region"):
        session = boto3.Session(region_name=s3_region())  # boto3 itself does not read AWS_REGION
        return session.client("emr", config=Config(connect_timeout=5, read_timeout=30, retries=retries))


@contextmanager
def _translated(call: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (ClientError, BotoCoreError) as failed:
        raise (EmrUnanswered if is_transient(failed) else EmrRefused)(call=call, detail=str(failed)) from failed
