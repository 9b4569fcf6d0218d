"""Waits a bounded time for an executor on Kubernetes; without one, Spark's jobs would wait for ever."""

from __future__ import annotations

import logging
from time import monotonic, sleep
from typing import TYPE_CHECKING

from kdi_assets.runtime.errors import NoExecutorPod
from kdi_assets.runtime.spark_internals import has_executor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 300.0
"""How long a session waits: a node may have to be started for the pod, and the image be pulled."""
LOG_SECONDS = 30.0
PAUSE_SECONDS = 0.5


def await_executor(session: SparkSession) -> None:
    """Wait until the driver has an executor, if Kubernetes gives them; other masters are not asked.

    Raises:
        NoExecutorPod: It had none for ``PATIENCE_SECONDS``. The driver goes on asking Kubernetes for them.
    """
    context = session.sparkContext
    # With dynamic allocation, an idle driver has none, and asks for some when a job waits.
    if not runs_on_kubernetes(context.master) or context.getConf().get("spark.dynamicAllocation.enabled") == "true":
        return
    began = said = monotonic()
    while not has_executor(session):
        if (now := monotonic()) - began >= PATIENCE_SECONDS:
            namespace = str(context.getConf().get("spark.kubernetes.namespace", "default"))
            raise NoExecutorPod(namespace=namespace, application=context.applicationId, seconds=PATIENCE_SECONDS)
        if now - said >= LOG_SECONDS:
            said = now
            log.warning("waiting for an executor pod since %.0f s", now - began)
        sleep(PAUSE_SECONDS)


def runs_on_kubernetes(master: str | None) -> bool:
    """Whether Kubernetes gives the executors, by ``spark.master``."""
    return master is not None and master.startswith("k8s://")
