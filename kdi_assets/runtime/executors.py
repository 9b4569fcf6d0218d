"""Bounds how long Spark's jobs wait for an executor of a cluster; Spark alone lets them wait for ever."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from kdi_assets.runtime.errors import NoExecutors
from kdi_assets.runtime.spark_internals import cancel_without_executor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_SECONDS = 300
"""How long a job waits: a machine may have to be started for the executor, and an image be pulled."""
SECONDS_AGAIN = 30
"""How long the jobs wait that follow in the next ``PATIENCE_SECONDS``, e.g. of a run's other streams.

The driver goes on asking for its executors meanwhile; not with dynamic allocation, where it asks for those of its jobs,
so that each job must wait for a machine that begins to start.
"""
_REASON = re.compile(r"kdi: no executor within (\d+) s: (\{.*?\})")


def bound_waits(session: SparkSession) -> None:
    """Cancel each job that waits too long while the driver has no executor at all, whoever starts it in this JVM.

    With a fixed number of executors, the driver goes on asking its cluster for them. With dynamic allocation it asks
    for none while no job waits. Nothing runs then.
    """
    context = session.sparkContext
    conf = context.getConf()
    asks_for_jobs = conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true"
    again = PATIENCE_SECONDS if asks_for_jobs else min(SECONDS_AGAIN, PATIENCE_SECONDS)
    facts = {
        "master": str(context.master),
        "application": str(context.applicationId),
        "namespace": str(conf.get("spark.kubernetes.namespace", "default")),
    }
    known = json.dumps(facts).replace("%", "%%").removesuffix("}")
    reason = f'kdi: no executor within %d s: {known}, "said": "%s"}}'
    cancel_without_executor(session, PATIENCE_SECONDS, again, reason)


def no_executors(root: str) -> NoExecutors | None:
    """The error of a job that was cancelled so.

    Args:
        root: What Spark says of the job's failure.
    """
    found = _REASON.search(root)
    return NoExecutors(seconds=int(found[1]), **json.loads(found[2])) if found else None
