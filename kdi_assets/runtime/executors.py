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
"""How long the jobs wait that follow in the next ``PATIENCE_SECONDS``, e.g. of a run's other streams."""
_REASON = re.compile(r"kdi: no executor within (\d+) s: (\{.*?\})")


def bound_waits(session: SparkSession) -> None:
    """Cancel each job that waits too long while the driver has no executor at all, whoever starts it in this JVM.

    The driver goes on asking its cluster for executors as Spark is configured. Nothing runs while no job waits.
    """
    context = session.sparkContext
    facts = {
        "master": str(context.master),
        "application": str(context.applicationId),
        "namespace": str(context.getConf().get("spark.kubernetes.namespace", "default")),
    }
    reason = "kdi: no executor within %d s: " + json.dumps(facts).replace("%", "%%")
    cancel_without_executor(session, PATIENCE_SECONDS, min(SECONDS_AGAIN, PATIENCE_SECONDS), reason)


def no_executors(root: str) -> NoExecutors | None:
    """The error of a job that was cancelled so.

    Args:
        root: What Spark says of the job's failure.
    """
    found = _REASON.search(root)
    return NoExecutors(seconds=int(found[1]), **json.loads(found[2])) if found else None
