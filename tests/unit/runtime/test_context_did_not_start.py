"""What a context of Spark that does not start becomes, on Kubernetes too."""

from __future__ import annotations

import traceback
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from kdi_assets.errors import Terminal, Transient
from kdi_assets.runtime import spark_jvm, yarn
from kdi_assets.runtime.errors import ContextDidNotStart, ExecutorImageMissing, KubernetesRefused, YarnRefused
from kdi_assets.runtime.kubernetes import start_failure
from kdi_assets.runtime.spark_failures import FailureKind, SparkFailure, translated

of_kubernetes = partial(start_failure, master="k8s://https://api:6443", namespace="lake")
FORBIDDEN = 'pods "kdi-0" is forbidden: User "system:serviceaccount:lake:x" cannot get resource "pods"'


@dataclass
class Java:
    """An exception of Java's, as py4j shows it; with a code, the one of Kubernetes' client."""

    cause: Java | None = None
    code: int = 0
    said: str | None = None

    def getClass(self) -> Any:
        return SimpleNamespace(getSimpleName=lambda: "KubernetesClientException" if self.code else "SparkException")

    def getCause(self) -> Java | None:
        return self.cause

    def getCode(self) -> int:
        return self.code

    def getStatus(self) -> Any:
        return None if self.said is None else SimpleNamespace(getMessage=lambda: self.said)


def failure(java: Java | None, root: str = "SparkException: External scheduler cannot be instantiated") -> SparkFailure:
    raised = OSError(root)
    raised.java_exception = java  # type: ignore[attr-defined]
    return SparkFailure(raised, FailureKind.TRANSIENT, root)


@pytest.mark.parametrize(
    ("code", "said", "first"),
    [
        (401, "Unauthorized", "renew the token"),
        (403, FORBIDDEN, "the rights of the chart's Role in lake, or correct spark.kubernetes.namespace"),
        (403, 'User "system:anonymous" cannot get resource "pods"', "renew the token"),
        (404, 'namespaces "lake" not found', "spark.kubernetes.namespace, or spark.kubernetes.driver.pod.name"),
        (422, "ConfigMap is invalid", "correct what spark-defaults.conf says"),
    ],
)
def test_what_kubernetes_refuses_is_said_in_its_words_with_what_to_correct(code: int, said: str, first: str) -> None:
    error = of_kubernetes(failure(Java(Java(code=code, said=said))))

    assert isinstance(error, KubernetesRefused) and isinstance(error, Terminal)
    happened, safe, run = error.message_parts()
    assert f"k8s://https://api:6443 refuses this driver in the namespace lake ({code}): {said}" in happened
    assert safe == "no table was read or written."
    assert run.startswith("kdi doctor; then the same command again") and first in run


def test_the_error_of_a_driver_whose_pod_does_not_exist_names_the_setting_of_its_name() -> None:
    said = (
        "No pod was found named kdi-0 in the cluster in the namespace lake (this was supposed to be the driver pod.)."
    )

    error = of_kubernetes(failure(Java(), f"SparkException: {said}"))

    assert said in str(error) and "spark.kubernetes.driver.pod.name" in str(error)


@pytest.mark.parametrize(
    "java",
    [
        None,
        Java(),
        Java(Java(code=503, said="starting")),
        Java(Java(code=429, said="")),
        Java(Java(code=403, said='configmaps "spark-exec-1-conf-map" is forbidden: exceeded quota: full')),
    ],
)
def test_anything_else_may_go_away_and_is_said_in_sparks_words(java: Java | None) -> None:
    error = of_kubernetes(failure(java, "ConnectException: Connection refused: api:6443"))

    assert isinstance(error, ContextDidNotStart) and isinstance(error, Transient)
    assert "master k8s://https://api:6443: ConnectException: Connection refused: api:6443" in str(error)


@pytest.mark.parametrize("master", ["yarn", "local[2]"])
def test_a_jvm_that_dies_while_the_context_opens_is_an_error_of_ours(
    master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: then Spark's configuration, which is in the JVM, cannot be asked for the master either."""
    died = Py4JNetworkError("Answer from Java side is empty")
    conf = MagicMock(**{"get.side_effect": lambda name, default: {"spark.master": master}.get(name, default)})

    def dies(context: object, **_: object) -> None:
        conf.get.side_effect = conf.getAll.side_effect = died
        raise died

    monkeypatch.setattr(SparkContext, "__init__", dies)
    monkeypatch.setattr(yarn, "current_gateway", lambda: None)

    with pytest.raises(ContextDidNotStart, match="the driver's JVM ended or closed the connection") as refused:
        spark_jvm._open_context(conf)

    assert refused.value.master == master


def test_what_yarn_refuses_passes_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = YarnRefused(queue="q", detail="AM container failed")
    monkeypatch.setattr(spark_jvm, "open_on_yarn", MagicMock(side_effect=refused))

    with pytest.raises(YarnRefused) as raised:
        spark_jvm._open_context(MagicMock(**{"get.return_value": "yarn"}))

    assert raised.value is refused


@pytest.mark.parametrize("token", ["eyJhbGciOi.x-y_z\n", "eyJhbGciOi.x-y_z\neyJ-of-two-lines", "\neyJhbGciOi.x-y_z"])
def test_a_token_that_java_does_not_send_is_shown_nowhere(token: str) -> None:
    """Also not by the causes of the error, which Dagster stores: py4j shows the whole trace of Java."""
    said = f"IllegalArgumentException: a header value must not have a line end: Bearer {token}"

    with pytest.raises(ContextDidNotStart) as refused, translated(of_kubernetes):
        raise OSError(f"{said}\n\tat jdk.internal.net.http")

    assert str(refused.value).splitlines()[0].endswith("must not have a line end: the token")
    assert "eyJ" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.parametrize("named", ["container.image", "executor.container.image", ""])
def test_a_driver_whose_executors_have_no_image_does_not_start(named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Purpose: Spark alone starts, and only logs every second why it makes no pod, while a drain waits for minutes."""
    settings = {"spark.master": "k8s://https://api:6443", f"spark.kubernetes.{named}": "registry.example/kdi:1"}
    started = MagicMock()
    monkeypatch.setattr("pyspark.SparkContext", started)

    with nullcontext() if named else pytest.raises(ExecutorImageMissing, match="spark.kubernetes.container.image"):
        spark_jvm._open_context(MagicMock(**{"get.side_effect": settings.get}))

    assert started.called == bool(named)


def test_a_setting_that_spark_cannot_read_is_an_error_of_ours_on_one_machine_too() -> None:
    said = "NumberFormatException: Failed to parse byte string: much"

    error = start_failure(failure(Java(), said), master="local[2]", namespace="default")

    assert "master local[2]: NumberFormatException: Failed to parse byte string: much" in str(error)
    assert "spark-defaults.conf" in str(error)
