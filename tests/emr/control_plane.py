"""EMR's control plane on the loopback: its protocol, clusters that come and go, and steps that are processes here.

A cluster goes one state further whenever somebody describes it, so that a test decides how fast time passes. Nothing
checks parameters: botocore does that by the model of the service before it sends them.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

Fault = Literal["throttled", "internal error", "denied", "broken before", "broken after"]
"""``broken``: the connection is closed without an answer, before the call had its effect, or after."""
RIGHTS: Mapping[str, frozenset[str]] = {
    # With tags and roles, as AWS's guide says of RunJobFlow.
    "RunJobFlow": frozenset({"elasticmapreduce:RunJobFlow", "elasticmapreduce:AddTags", "iam:PassRole"}),
    **{
        name: frozenset({f"elasticmapreduce:{name}"})
        for name in ("ListClusters", "DescribeCluster", "ListSteps", "TerminateJobFlows")
    },
}
"""Source: Service Authorization Reference, "Actions, resources, and condition keys for Amazon EMR"."""
Poll = Callable[[], int | None]
"""The exit code of a step, once it has ended."""


def succeeds(args: Sequence[str]) -> Poll:
    """A step that has done its work at once."""
    return lambda: 0


def in_a_process(log: Path) -> Callable[[Sequence[str]], Poll]:
    """Steps as command-runner.jar runs them: the arguments are a command line."""

    def start(args: Sequence[str]) -> Poll:
        with log.open("ab") as output:
            return subprocess.Popen(args, stdin=subprocess.DEVNULL, stdout=output, stderr=output).poll

    return start


@dataclass
class ControlPlane:
    """The server's state.

    Attributes:
        rights: What the caller may do; ``None``: everything.
        run_step: Starts a step.
        ended: The state in which clusters end.
        calls: Every request that arrived: its action and its parameters.
        endpoint: Its URL.
    """

    run_step: Callable[[Sequence[str]], Poll] = succeeds
    ended: Literal["TERMINATED", "TERMINATED_WITH_ERRORS"] = "TERMINATED"
    rights: set[str] | None = None
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    clusters: dict[str, dict[str, Any]] = field(default_factory=dict)
    endpoint: str = ""
    _faults: dict[str, list[Fault]] = field(default_factory=dict)
    _running: dict[str, Poll] = field(default_factory=dict)

    def fail(self, action: str, *faults: Fault) -> None:
        """Let the next calls of an action fail so, one after the other."""
        self._faults[action] = list(faults)

    def actions(self) -> list[str]:
        """The actions of all requests."""
        return [action for action, _ in self.calls]

    def states(self) -> list[str]:
        """The state of each cluster, the oldest first."""
        return [cluster["Status"]["State"] for cluster in self.clusters.values()]

    def age(self, minutes: float) -> None:
        """Let all clusters be older."""
        for cluster in self.clusters.values():
            cluster["Status"]["Timeline"]["CreationDateTime"] -= 60 * minutes

    def answer(self, action: str, parameters: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        """Status and body; ``None`` closes the connection."""
        self.calls.append((action, parameters))
        waiting = self._faults.get(action, [])
        fault = waiting.pop(0) if waiting else None
        if fault == "throttled":
            return 400, {"__type": "ThrottlingException", "message": "Rate exceeded"}
        if fault == "internal error":  # in the model of the service it has no status of its own
            return 400, {"__type": "InternalServerException", "message": "An internal error occurred"}
        missing = RIGHTS[action] - self.rights if self.rights is not None else frozenset()
        if fault == "denied" or missing:
            right = min(missing, default=f"elasticmapreduce:{action}")
            return 400, {"__type": "AccessDeniedException", "message": f"not authorized to perform: {right}"}
        if fault == "broken before":
            return None
        found: dict[str, Any] = getattr(self, f"_{action}")(parameters)
        return None if fault == "broken after" else (200, found)

    def _RunJobFlow(self, asked: dict[str, Any]) -> dict[str, Any]:
        number = f"j-{len(self.clusters) + 1:013d}"
        steps = [{"Id": f"s-{n}", **s, "Status": {"State": "PENDING"}} for n, s in enumerate(asked["Steps"])]
        status = {"State": "STARTING", "StateChangeReason": {}, "Timeline": {"CreationDateTime": time.time()}}
        kept: dict[str, Any] = {name: asked[name] for name in ("Name", "Tags", "ReleaseLabel") if name in asked}
        self.clusters[number] = {"Id": number, **kept, "Status": status, "NormalizedInstanceHours": 8, "steps": steps}
        return {"JobFlowId": number}

    def _ListClusters(self, asked: dict[str, Any]) -> dict[str, Any]:
        """One to a page, the newest first."""
        after = asked.get("CreatedAfter", 0.0)
        found = [
            c
            for c in reversed(self.clusters.values())
            if c["Status"]["State"] in asked["ClusterStates"] and _created(c) > after
        ]
        at = int(asked.get("Marker", 0))
        more = {"Marker": str(at + 1)} if at + 1 < len(found) else {}
        return {"Clusters": [_shown(cluster) for cluster in found[at : at + 1]], **more}

    def _DescribeCluster(self, asked: dict[str, Any]) -> dict[str, Any]:
        cluster = self.clusters[asked["ClusterId"]]
        self._advance(cluster)
        return {"Cluster": _shown(cluster)}

    def _ListSteps(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The newest first, as EMR lists them."""
        steps = self.clusters[asked["ClusterId"]]["steps"]
        return {"Steps": [{n: s[n] for n in ("Id", "Name", "Status", "ActionOnFailure")} for s in steps[::-1]]}

    def _TerminateJobFlows(self, asked: dict[str, Any]) -> dict[str, Any]:
        for number in asked["JobFlowIds"]:
            cluster = self.clusters[number]
            for step in cluster["steps"]:
                if step["Status"]["State"] in ("PENDING", "RUNNING"):
                    step["Status"]["State"] = "CANCELLED"
            self._move(cluster, "TERMINATING", code="USER_REQUEST", message="Terminated by user request")
        return {}

    def _advance(self, cluster: dict[str, Any]) -> None:
        state = cluster["Status"]["State"]
        following = {"STARTING": "BOOTSTRAPPING", "BOOTSTRAPPING": "RUNNING", "TERMINATING": self.ended}
        if state in following:
            self._move(cluster, following[state])
        elif state == "RUNNING" and not self._work(cluster):
            self._move(cluster, "TERMINATING", code="ALL_STEPS_COMPLETED", message="Steps completed")

    def _work(self, cluster: dict[str, Any]) -> bool:
        """Begin or look at the next step; false if there is none."""
        step = next((s for s in cluster["steps"] if s["Status"]["State"] in ("PENDING", "RUNNING")), None)
        if step is None:
            return False
        key = cluster["Id"] + step["Id"]
        if key not in self._running:
            self._running[key] = self.run_step(step["HadoopJarStep"]["Args"])
        code = self._running[key]()
        step["Status"]["State"] = {None: "RUNNING", 0: "COMPLETED"}.get(code, "FAILED")
        if code:
            step["Status"]["FailureDetails"] = {"LogFile": f"s3://logs/{cluster['Id']}/steps/{step['Id']}/stderr.gz"}
        return True

    def _move(self, cluster: dict[str, Any], state: str, *, code: str = "", message: str = "") -> None:
        cluster["Status"]["State"] = state
        if code:
            cluster["Status"]["StateChangeReason"] = {"Code": code, "Message": message}
        if state == self.ended:
            cluster["Status"]["Timeline"]["EndDateTime"] = time.time()


def _created(cluster: dict[str, Any]) -> float:
    created: float = cluster["Status"]["Timeline"]["CreationDateTime"]
    return created


def _shown(cluster: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in cluster.items() if name != "steps"}


@contextmanager
def serving(plane: ControlPlane) -> Iterator[ControlPlane]:
    """Serve it on a free port of the loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            action = self.headers["X-Amz-Target"].partition(".")[2]
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if (answer := plane.answer(action, body)) is None:
                self.close_connection = True
                return
            status, found = answer
            content = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/x-amz-json-1.1")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    plane.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield plane
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
