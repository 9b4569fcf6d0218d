"""The Helm chart of ``deploy/kubernetes/``, rendered as Helm does it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from tests.deployment.deployed import DEPLOY
from tests.documents import CLUSTER, stream

CHART = DEPLOY / "kubernetes" / "kdi"
RELEASE, NAMESPACE = "drains", "lake"
REQUIRED = {
    "image": {"repository": "registry.example/kdi"},
    "lake": "s3://bucket/lake",
    "postgres": {"host": "db.example"},
    "secret": "kdi-secrets",
}
DOCUMENTS = f"{CLUSTER}---\n{stream('orders')}"
TWO_LOCATIONS: dict[str, Any] = {
    **REQUIRED,
    "env": {"AWS_REGION": "eu-central-1"},
    "locations": [{"name": "web", "documents": {"orders": DOCUMENTS}}, {"name": "rest_of_it"}],
    "spark": {"executors": {"instances": 3}},
    "ui": {"from": [{"podSelector": {"matchLabels": {"app": "proxy"}}}]},
}
"""Its drivers have executors."""
CHART_VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
"""The values by default."""
BYTES: tuple[str | float, ...] = ("1.5Gi", "2G", "2147483648", 2147483648, "2e9", 2e9)
"""Ways to write a size."""
every_release = pytest.mark.parametrize(
    "values", [REQUIRED, TWO_LOCATIONS], ids=["plain", "two locations with executors"]
)
# In a process of its own: the library is Helm itself, and brings Go's threads and signal handlers.
PROGRAM = """
import json, sys
import helm_python
with helm_python.Chart.load(sys.argv[1]) as chart:
    json.dump(chart.render(json.load(sys.stdin), name=sys.argv[2], namespace=sys.argv[3]), sys.stdout)
"""


class NotRendered(Exception):
    """Helm refuses the values or the chart; the text is Helm's."""


def render(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The manifests of a release with these values.

    Raises:
        NotRendered: Helm refuses.
    """
    command = [sys.executable, "-c", PROGRAM, str(CHART), RELEASE, NAMESPACE]
    done = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)
    if "No module named 'helm_python'" in done.stderr:
        raise AssertionError("Helm for Python is not installed. Run: make .venv/.checks")
    if done.returncode:
        raise NotRendered(done.stderr)
    files: dict[str, str] = json.loads(done.stdout)
    return [manifest for text in files.values() for manifest in yaml.safe_load_all(text) if manifest]


def of_kind(manifests: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """The manifests of a kind, by name."""
    return {m["metadata"]["name"]: m for m in manifests if m["kind"] == kind}


def pods(manifests: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The pods' specifications, by the name of what makes them; executors by the name of their template."""
    made = {m["metadata"]["name"]: m["spec"]["template"]["spec"] for m in manifests if "template" in m.get("spec", {})}
    for name, config in of_kind(manifests, "ConfigMap").items():
        if template := config["data"].get("executor.yaml"):
            made[name] = yaml.safe_load(template)["spec"]
    return made


def containers(pod: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All containers of a pod, also those that only prepare it."""
    yield from (*pod.get("initContainers", ()), *pod["containers"])


def long_running(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The containers that run as long as the pod."""
    return [*(c for c in pod.get("initContainers", ()) if c.get("restartPolicy") == "Always"), *pod["containers"]]
