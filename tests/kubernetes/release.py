"""A release of the chart on the API server, and drivers in the place of its driver's container."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

from kdi_assets.runtime.java import find_java
from kdi_assets.settings import Settings
from tests.deployment.charts import NAMESPACE, RELEASE, REQUIRED, of_kind, render
from tests.deployment.deployed import DEPLOY
from tests.deployment.standalone import SPARK_HOME
from tests.faults.systems.cluster_driver import CONFIG
from tests.kubernetes.api import Api
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.kubelet import Kubelet, Pod
from tests.waiting import wait_until

EXECUTORS = {"instances": 2, "cores": 1, "memory": "640m"}
VALUES = {**REQUIRED, "spark": {"executors": EXECUTORS}}
LOCATION = f"{RELEASE}-kdi-assets"
DRIVER_POD, ACCOUNT = f"{LOCATION}-0", f"{RELEASE}-driver"
MOUNTED = "/etc/kdi/spark"
SPARKS_POD = "spark-role=executor"


class Release:
    """The chart with executors in its namespace, all its pods running by what a kubelet can say of them.

    Attributes:
        manifests: What was applied.

    Args:
        folder: Gets the files that a driver's container has mounted.
    """

    def __init__(self, servers: ControlPlane, kubelet: Kubelet, folder: Path) -> None:
        self.servers, self.kubelet, self._folder = servers, kubelet, folder
        self.manifests = render(VALUES)
        api = self.api
        api.call("POST", "api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": NAMESPACE}})
        wait_until(lambda: bool(api.listed("ServiceAccount", NAMESPACE)))  # without it, pods are refused
        for manifest in self.manifests:
            api.apply(manifest, NAMESPACE)
        wait_until(lambda: DRIVER_POD in {pod["metadata"]["name"] for pod in self.pods() if is_running(pod)})

    @property
    def api(self) -> Api:
        """With all rights."""
        return self.servers.admin

    def pods(self, selector: str = "") -> list[Pod]:
        """The pods of the namespace with these labels."""
        return self.api.listed("Pod", NAMESPACE, labelSelector=selector)

    def executors(self) -> list[Pod]:
        """The pods of executors that run, the oldest first."""
        running = [pod for pod in self.pods(SPARKS_POD) if is_running(pod)]
        return sorted(running, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))

    def configurations_of_executors(self) -> list[dict[str, Any]]:
        """The ConfigMaps that Spark has made for its executors."""
        return [
            each for each in self.api.listed("ConfigMap", NAMESPACE) if each["metadata"]["name"].startswith("spark-")
        ]

    def owner_of(self, pod: Pod) -> str:
        """The name of the Deployment or StatefulSet of a running pod; empty if it has none."""
        owners = of_kind(self.manifests, "Deployment") | of_kind(self.manifests, "StatefulSet")
        above = [owner["name"] for owner in pod["metadata"].get("ownerReferences", ()) if owner["kind"] != "Pod"]
        return next((name for name in owners for each in above if is_running(pod) and each.startswith(name)), "")

    def fill_quota(self) -> None:
        """Let a quota allow no further pod."""
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}}
        self.api.apply({**quota, "spec": {"hard": {"pods": "1"}}}, NAMESPACE)
        wait_until(lambda: "hard" in self.api.listed("ResourceQuota", NAMESPACE)[0].get("status", {}))

    def remove_quota(self) -> None:
        """Give the namespace room again; nothing if it has."""
        self.api.delete("ResourceQuota", "full", NAMESPACE)

    def renew_drivers_pod(self) -> None:
        """Delete the driver's pod, and wait for the next one of its name."""
        before = self._drivers_pod()["metadata"]["uid"]
        self.api.delete("Pod", DRIVER_POD, NAMESPACE)
        wait_until(lambda: bool(p := self._drivers_pod()) and p["metadata"]["uid"] != before and is_running(p))

    def _drivers_pod(self) -> Pod:
        return next((pod for pod in self.pods() if pod["metadata"]["name"] == DRIVER_POD), {})

    def drivers_token(self) -> str:
        """A token of the driver's account, bound to its pod as it is now."""
        return self.api.token_of(ACCOUNT, NAMESPACE, pod=DRIVER_POD)

    def environment(self, *, dynamic: bool = False) -> dict[str, str]:
        """Variables of a driver: Spark's configuration is the chart's, at another path.

        Args:
            dynamic: The chart's ``spark.executors.dynamic``.
        """
        manifests = render({**REQUIRED, "spark": {"executors": {**EXECUTORS, "dynamic": dynamic}}})
        files = of_kind(manifests, "ConfigMap")[f"{LOCATION}-spark"]["data"]
        folder = self._folder / ("dynamic" if dynamic else "static")
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text.replace(MOUNTED, str(folder)))
        return {"SPARK_CONF_DIR": str(folder)}

    def config(self) -> dict[str, str]:
        """What differs from a driver in its pod: its address, and where the files with its token are."""
        token = self._folder / "token"
        token.write_text(self.drivers_token())
        access = "spark.kubernetes.authenticate"
        loopback = {name: value for name, value in CONFIG.items() if "driver" in name or "Options" in name}
        files = {f"{access}.oauthTokenFile": str(token), f"{access}.caCertFile": str(self.servers.authority)}
        return {**loopback, **files, "spark.default.parallelism": "4"}

    @property
    def master(self) -> str:
        """For ``KDI_SPARK_MASTER``."""
        return f"k8s://{self.servers.url}"


def image(settings: Settings) -> dict[str, str]:
    """Variables that the image has, at this machine's paths."""
    return {"PATH": os.environ["PATH"], "JAVA_HOME": str(find_java(settings.home)), "SPARK_HOME": str(SPARK_HOME)}


def programs() -> dict[str, Path]:
    """What runs of the image: only executors."""
    template: dict[str, Any] = yaml.safe_load(
        of_kind(render(VALUES), "ConfigMap")[f"{LOCATION}-spark"]["data"]["executor.yaml"]
    )
    (command,) = template["spec"]["containers"][0]["command"]
    return {command: DEPLOY / "kubernetes" / "spark-executor"}


def is_running(pod: Pod) -> bool:
    """Whether the pod runs, and was not asked to end."""
    return pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
