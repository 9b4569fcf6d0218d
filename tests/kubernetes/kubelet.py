"""A node whose pods are processes of this machine: a kubelet without images, networks and cgroups."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from os import kill
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any

from kdi_assets.runtime.processes import Child
from tests.kubernetes.api import MERGE, Api, Refused, place

NODE = "machine"
HOST = "127.0.0.1"
PAUSE_SECONDS = 0.2
ROOM = {"cpu": "64", "memory": "64Gi", "pods": "110", "ephemeral-storage": "500Gi"}
"""What the scheduler may give away; processes take what they take."""
NO_REGISTRY = "registry.invalid"
"""Where nothing answers: images of it cannot be pulled."""
ENTER = 'cd "$0" && exec "$@"'
Pod = dict[str, Any]


@dataclass
class _Run:
    """The processes of a pod's containers, by name; a container that the test plays itself has none."""

    processes: dict[str, Child] = field(default_factory=dict)
    killed_at: float | None = None
    """When what has not ended by itself is killed."""


class Kubelet:
    """Starts the containers of pods whose program it has, and reports all others as running: the test plays these.

    Volumes of kind ``emptyDir`` and ``configMap`` are folders of this machine. There are no mounts: a path of a
    container, as its working folder or the value of a variable, becomes the path of that folder.

    Args:
        folder: Gets a folder for each pod, with its volumes and the output of its containers.
        programs: Which file of this machine stands for the first word of a container's command.
        image: Variables that an image, or a webhook of the cloud, would bring.
    """

    def __init__(self, api: Api, folder: Path, *, programs: Mapping[str, Path], image: Mapping[str, str]) -> None:
        self._api, self._folder, self._programs, self._image = api, folder, programs, image
        self._runs: dict[str, _Run] = {}
        self._stopped = Event()
        self._add_node()
        self._thread = Thread(target=self._loop, name="kubelet", daemon=True)
        self._thread.start()

    def process_of(self, pod: Pod) -> int:
        """The process id of the pod's only container that runs here."""
        (process,) = self._runs[pod["metadata"]["uid"]].processes.values()
        return process.pid

    def running(self) -> int:
        """The number of processes that have not ended."""
        return sum(process.exit_code() is None for run in self._runs.values() for process in run.processes.values())

    def stop(self) -> None:
        """Kill all processes, and look at the API no more."""
        self._stopped.set()
        self._thread.join()
        for run in self._runs.values():
            for process in run.processes.values():
                process.kill()

    def _add_node(self) -> None:
        ready = [{"type": "Ready", "status": "True", "reason": "Started", "lastHeartbeatTime": _now()}]
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        self._api.call("POST", "api/v1/nodes", node)
        status = {"capacity": ROOM, "allocatable": ROOM, "conditions": ready}
        self._api.call("PATCH", f"api/v1/nodes/{NODE}/status", {"status": status}, content=MERGE)

    def _loop(self) -> None:
        while not self._stopped.wait(PAUSE_SECONDS):
            pods: list[Pod] = self._api.call("GET", "api/v1/pods", query={"fieldSelector": f"spec.nodeName={NODE}"})[
                "items"
            ]
            for pod in pods:
                with suppress(Refused):  # it was changed or deleted since: the next look sees it
                    self._sync(pod)
            for uid in self._runs.keys() - {pod["metadata"]["uid"] for pod in pods}:
                for process in self._runs.pop(uid).processes.values():
                    process.kill()

    def _sync(self, pod: Pod) -> None:
        """Do for one pod what is due now; the next look goes on."""
        run = self._runs.get(pod["metadata"]["uid"])
        if "deletionTimestamp" in pod["metadata"]:
            if run is None or self._has_ended(run, float(pod["metadata"].get("deletionGracePeriodSeconds", 30))):
                self._remove(pod, run)
        elif pod["status"]["phase"] == "Pending" and run is None:
            self._start(pod)
        elif pod["status"]["phase"] == "Running" and run and run.processes and _ended(run):
            self._report(pod, *_final(pod, run))

    def _start(self, pod: Pod) -> None:
        folder = self._folder / pod["metadata"]["uid"]
        folder.mkdir(exist_ok=True)
        # Spark makes the ConfigMap after the pod: until it is there, each look tries again.
        volumes = {volume["name"]: self._volume(pod, volume, folder) for volume in pod["spec"].get("volumes", ())}
        images = [container["image"] for container in pod["spec"]["containers"]]
        if missing := next((image for image in images if image.startswith(f"{NO_REGISTRY}/")), ""):
            self._report(pod, "Pending", {"waiting": _not_pulled(missing, again="containerStatuses" in pod["status"])})
            return
        run = self._runs[pod["metadata"]["uid"]] = _Run()
        for container in pod["spec"]["containers"]:
            if program := self._programs.get((container.get("command") or [""])[0]):
                run.processes[container["name"]] = self._process(pod, container, program, volumes)
        self._report(pod, "Running", {"running": {"startedAt": _now()}})

    def _process(self, pod: Pod, container: Mapping[str, Any], program: Path, volumes: Mapping[str, Path]) -> Child:
        mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in container.get("volumeMounts", ())}
        variables = dict(self._image)
        for entry in container.get("env", ()):
            value = entry["value"] if "valueFrom" not in entry else _field(pod, entry["valueFrom"])
            variables[entry["name"]] = _here(value, mounts)
        words = [*container["command"][1:], *container.get("args", ())]
        within = _here(container.get("workingDir", "/"), mounts)
        folder = self._folder / pod["metadata"]["uid"]
        clean = ["env", "-i", *(f"{name}={value}" for name, value in variables.items())]
        return Child(["sh", "-c", ENTER, within, *clean, program, *words], log=folder / f"{container['name']}.log")

    def _volume(self, pod: Pod, volume: Mapping[str, Any], folder: Path) -> Path:
        """The folder of a volume; empty for kinds that only containers without a process mount."""
        found: Path = folder / "volumes" / volume["name"]
        found.mkdir(parents=True, exist_ok=True)
        if source := volume.get("configMap"):
            path = f"{place('ConfigMap', pod['metadata']['namespace'])}/{source['name']}"
            data: dict[str, str] = self._api.call("GET", path).get("data", {})
            for item in source.get("items") or [{"key": key, "path": key} for key in data]:
                file = found / item["path"]
                file.parent.mkdir(exist_ok=True)
                file.write_text(data[item["key"]])
        return found

    def _has_ended(self, run: _Run, grace_seconds: float) -> bool:
        """Ask the processes to end, or kill them if their time is over; whether all have ended."""
        if run.killed_at is None:
            run.killed_at = monotonic() + grace_seconds
            for process in run.processes.values():
                with suppress(ProcessLookupError):
                    kill(process.pid, signal.SIGTERM)
        if monotonic() >= run.killed_at:
            for process in run.processes.values():
                process.kill()
        return _ended(run)

    def _remove(self, pod: Pod, run: _Run | None) -> None:
        if run and run.processes:
            self._report(pod, *_final(pod, run))
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        self._api.call("DELETE", _path(pod), {"apiVersion": "v1", "kind": "DeleteOptions", **options})

    def _report(self, pod: Pod, phase: str, state: Mapping[str, Any]) -> None:
        """Set the pod's phase, and the state of all its containers."""
        answers = "True" if phase == "Running" else "False"
        each = {"image": "none", "imageID": "none", "restartCount": 0, "ready": phase == "Running", "state": state}
        status = {
            "phase": phase,
            "hostIP": HOST,
            "podIP": HOST,
            "podIPs": [{"ip": HOST}],
            "startTime": pod["status"].get("startTime", _now()),
            "conditions": [
                *({"type": kind, "status": "True"} for kind in ("PodScheduled", "Initialized")),
                *({"type": kind, "status": answers} for kind in ("ContainersReady", "Ready")),
            ],
            "containerStatuses": [{"name": container["name"], **each} for container in pod["spec"]["containers"]],
        }
        self._api.call("PATCH", f"{_path(pod)}/status", {"status": status}, content=MERGE)


def _not_pulled(image: str, *, again: bool) -> dict[str, str]:
    """Why a container waits: its image was not pulled, and after that the kubelet waits before it tries again."""
    failed = (
        f'rpc error: code = Unknown desc = failed to pull and unpack image "{image}": failed to resolve reference '
        f'"{image}": failed to do request: dial tcp: lookup {NO_REGISTRY}: no such host'
    )
    if again:
        return {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}": ErrImagePull: {failed}'}
    return {"reason": "ErrImagePull", "message": failed}


def _ended(run: _Run) -> bool:
    return all(process.exit_code() is not None for process in run.processes.values())


def _final(pod: Pod, run: _Run) -> tuple[str, dict[str, Any]]:
    """Phase and state of a pod whose processes have ended."""
    (code,) = {process.exit_code() or 0 for process in run.processes.values()}
    code = 128 - code if code < 0 else code
    ended = {"exitCode": code, "reason": "Error" if code else "Completed", "finishedAt": _now()}
    return "Failed" if code else "Succeeded", {"terminated": ended}


def _field(pod: Pod, source: Mapping[str, Any]) -> str:
    """The value of a variable that is a field of the pod."""
    known: dict[str, str] = {"status.podIP": HOST, "metadata.name": pod["metadata"]["name"]}
    path: str = source["fieldRef"]["fieldPath"]
    return known[path]


def _here(value: str, mounts: Mapping[str, Path]) -> str:
    """A container's path as this machine's; any other text as it is."""
    for mount in sorted(mounts, key=len, reverse=True):
        if value == mount or value.startswith(f"{mount}/"):
            return str(mounts[mount]) + value[len(mount) :]
    return value


def _path(pod: Pod) -> str:
    return f"{place('Pod', pod['metadata']['namespace'])}/{pod['metadata']['name']}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
