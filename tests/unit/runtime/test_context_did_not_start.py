"""What a context of Spark that does not start becomes, on Kubernetes too."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from kdi_assets.errors import Terminal, Transient
from kdi_assets.runtime.errors import ContextDidNotStart, KubernetesRefused
from kdi_assets.runtime.kubernetes import start_failure
from kdi_assets.runtime.spark_failures import FailureKind, SparkFailure

CONF: Any = {"spark.master": "k8s://https://api:6443", "spark.kubernetes.namespace": "lake"}
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
    error = start_failure(CONF, failure(Java(Java(code=code, said=said))))

    assert isinstance(error, KubernetesRefused) and isinstance(error, Terminal)
    happened, safe, run = error.message_parts()
    assert f"k8s://https://api:6443 refuses this driver in the namespace lake ({code}): {said}" in happened
    assert safe == "no table was read or written."
    assert run.startswith("kdi doctor; then the same command again") and first in run


def test_a_driver_whose_pod_does_not_exist_is_told_which_setting_names_it() -> None:
    said = (
        "No pod was found named kdi-0 in the cluster in the namespace lake (this was supposed to be the driver pod.)."
    )

    error = start_failure(CONF, failure(Java(), f"SparkException: {said}"))

    assert said in str(error) and "spark.kubernetes.driver.pod.name" in str(error)


@pytest.mark.parametrize("java", [None, Java(), Java(Java(code=503, said="starting")), Java(Java(code=429, said=""))])
def test_anything_else_may_go_away_and_is_said_in_sparks_words(java: Java | None) -> None:
    error = start_failure(CONF, failure(java, "ConnectException: Connection refused: api:6443"))

    assert isinstance(error, ContextDidNotStart) and isinstance(error, Transient)
    assert "master k8s://https://api:6443: ConnectException: Connection refused: api:6443" in str(error)


def test_a_token_that_java_does_not_send_is_not_shown() -> None:
    said = "IllegalArgumentException: a header value must not end with a line end: Bearer eyJhbGciOi.x-y_z"

    error = start_failure(CONF, failure(Java(), said))

    assert str(error).splitlines()[0].endswith("must not end with a line end: the token")


def test_a_setting_that_spark_cannot_read_is_an_error_of_ours_on_one_machine_too() -> None:
    local: Any = {"spark.master": "local[2]"}

    error = start_failure(local, failure(Java(), "NumberFormatException: Failed to parse byte string: much"))

    assert "master local[2]: NumberFormatException: Failed to parse byte string: much" in str(error)
    assert "spark-defaults.conf" in str(error)
