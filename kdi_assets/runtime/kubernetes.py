"""Why Spark's context does not start: what Kubernetes refuses of a driver, or what else Spark says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kdi_assets.errors import KdiError
from kdi_assets.runtime.errors import ContextDidNotStart, ExecutorImageMissing, KubernetesRefused
from kdi_assets.runtime.spark_failures import TOKEN, SparkFailure

if TYPE_CHECKING:
    from pyspark import SparkConf

CLIENTS_EXCEPTION = "KubernetesClientException"
_NO_DRIVER_POD = re.compile(r"No pod was found named .* \(this was supposed to be the driver pod\.?\)")
_IMAGES = ("spark.kubernetes.container.image", "spark.kubernetes.executor.container.image")
_BUSY, _BROKEN = 429, 500
"""Codes of HTTP: the server asks to come again, or fails itself, as all from here on."""


def refuse_missing_image(conf: SparkConf, *, master: str) -> None:
    """Refuse settings without an image of executors, of which Spark only logs every second that it is missing.

    Raises:
        ExecutorImageMissing: The master is Kubernetes, and no setting names one.
    """
    if master.startswith("k8s://") and not any(conf.get(name, "") for name in _IMAGES):
        raise ExecutorImageMissing(master=master)


def start_failure(failure: SparkFailure, *, master: str, namespace: str) -> KdiError:
    """The error of a context that did not start.

    Args:
        master: On which it was to start; read before, as Spark's configuration is in a JVM that may have died.
        namespace: Of its pods, on Kubernetes.
    """
    for code, said in _refusals(failure):
        # A quota may have room again: Spark makes a ConfigMap for its executors.
        if code != _BUSY and code < _BROKEN and "exceeded quota" not in said:
            return KubernetesRefused(master=master, namespace=namespace, code=code, said=said)
    return ContextDidNotStart(master=master, detail=TOKEN.sub("the token", failure.root))


def _refusals(failure: SparkFailure) -> Iterator[tuple[int, str]]:
    """Codes and words with which Kubernetes answered; Spark itself says that the driver's pod does not exist."""
    if _NO_DRIVER_POD.search(failure.root):
        yield 404, failure.root.partition(": ")[2]
    for java in _causes(failure.exception):
        if java.getClass().getSimpleName() == CLIENTS_EXCEPTION and (status := java.getStatus()) is not None:
            yield int(java.getCode()), str(status.getMessage())


def _causes(failed: Exception) -> Iterator[Any]:
    """An exception of Java's, and all below it; none if Python raised it."""
    java = getattr(failed, "java_exception", None) or getattr(failed, "_origin", None)
    while java is not None:
        yield java
        java = java.getCause()
