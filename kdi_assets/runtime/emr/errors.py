"""Errors of batches on clusters of Amazon EMR."""

from __future__ import annotations

from kdi_assets.errors import AGAIN, Terminal, Transient

SAFE = "tables have what the cluster's steps committed; the next batch goes on from there."


class EmrUnanswered(Transient):
    """EMR does not answer a call, or is too busy."""

    call: str
    detail: str

    what_happened = "EMR did not carry out {call}: {detail}"
    what_is_safe = f"a cluster that was started nevertheless is found by its name, or ends by itself; {SAFE}"
    what_to_run = f"{AGAIN}   (a retry of the run takes the cluster over, if there is one)"


class EmrRefused(Terminal):
    """EMR refuses a call: a right is missing, or the request is wrong."""

    call: str
    detail: str

    what_happened = "EMR refuses {call}: {detail}"
    what_is_safe = SAFE
    what_to_run = "aws sts get-caller-identity   (deploy/aws/access.tf has the rights that it needs; or set AWS_REGION)"


class BatchFailed(Terminal):
    """A cluster ended before all steps of its batch were completed, or one of them failed."""

    batch: str
    cluster: str
    said: str
    minutes: float

    what_happened = "{batch}: cluster {cluster} ended after {minutes:.0f} minutes: {said}"
    what_is_safe = SAFE
    what_to_run = "kdi status   (which streams were refused, and why; a step's log has what it printed)"


class BatchTooLong(Terminal):
    """A batch takes longer than it may."""

    batch: str
    cluster: str
    most_minutes: int

    what_happened = "{batch}: cluster {cluster} works for more than {most_minutes} minutes."
    what_is_safe = f"the sensor that ends clusters ends it within minutes; {SAFE}"
    what_to_run = "aws emr terminate-clusters --cluster-ids {cluster}   (if the sensor is off)"


class ClusterDoesNotEnd(Terminal):
    """A cluster has done all steps of a batch, and does not end."""

    batch: str
    cluster: str
    minutes: int

    what_happened = "{batch}: cluster {cluster} has done all steps, and did not end in {minutes} minutes."
    what_is_safe = "all that the batch had to do is done and committed."
    what_to_run = "aws emr describe-cluster --cluster-id {cluster}   (what it waits for; it may go on costing)"


class LakeOnThisMachine(Terminal):
    """A cluster cannot see a folder of this machine."""

    lake: str

    what_happened = "KDI_LAKE is {lake}, a folder of this machine; a cluster of EMR would write to its own disk."
    what_is_safe = "no cluster was started."
    what_to_run = f"{AGAIN}   (with KDI_LAKE on s3:// in the environment of Dagster)"
