"""The warm driver's clients: who is attached, what to cancel when one leaves, what to forget when the last one has."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark.sql import SparkSession


SHUT_SECONDS = 30.0
"""How long new clients wait for those attached, so that a JVM that served enough is recycled; a client waits twice that
for a driver."""


@dataclass
class Client:
    """An attached process, and the marks that its jobs carry."""

    pid: int
    group: str
    session_tags: list[str] = field(default_factory=list)


class Clients:
    """The owner's part in the conversations of ``ControlServer``."""

    def __init__(
        self,
        session: SparkSession,
        *,
        stop: Callable[[], None],
        left: Callable[[int], None],
        recycle_after: int | None = None,
    ) -> None:
        """Start with none.

        Args:
            stop: Called when a process asks the driver to stop.
            left: Called with the number of clients served when the last one attached has left.
            recycle_after: Once so many were served, no other is welcome until those attached have left; if they take
                long, others are welcome again, until as many more were served.
        """
        self._stop, self._left = stop, left
        self._attached: dict[str, Client] = {}
        self._served = 0
        self._recycle_after, self._shut_until = recycle_after, 0.0
        self._idle_since = time.monotonic()
        self._closed = False
        self._lock = threading.Lock()
        self._context = session.sparkContext._jsc.sc()
        self._objects = _ClientObjects(session.sparkContext._gateway)

    def idle_seconds(self) -> float | None:
        """Seconds since the last client left, or since the start; none while one is attached."""
        with self._lock:
            return None if self._attached else time.monotonic() - self._idle_since

    def close(self) -> None:
        """Welcome no other; those attached need no cancelling, the whole JVM ends."""
        with self._lock:
            self._closed = True

    def welcome(self, hello: dict[str, Any]) -> dict[str, Any] | None:
        match hello.get("ask"):
            case "attach":
                return self._attach(Client(pid=hello["pid"], group=hello["group"]))
            case "status":
                return self._status()
            case "stop":
                return {}  # it says so once more: a driver that stopped at once would hang up instead of answering
        return None

    def hear(self, hello: dict[str, Any], message: dict[str, Any]) -> None:
        if hello["ask"] == "stop":
            self._stop()
        elif client := self._attached.get(hello.get("group", "")):
            client.session_tags.append(message["session_tag"])

    def farewell(self, hello: dict[str, Any]) -> None:
        with self._lock:
            client = self._attached.get(hello.get("group", ""))
            if client is None or self._closed:
                return
            self._cancel(client)
            del self._attached[client.group]
            self._served += 1
            if self._attached:
                if self._recycle_after and self._served % self._recycle_after == 0:
                    self._shut_until = time.monotonic() + SHUT_SECONDS
                return
            self._objects.forget()
            self._idle_since = time.monotonic()
        self._left(self._served)

    def _attach(self, client: Client) -> dict[str, Any] | None:
        with self._lock:
            if self._closed or time.monotonic() < self._shut_until:
                return None
            self._attached[client.group] = client
            return {}

    def _cancel(self, client: Client) -> None:
        # Future jobs too: between two jobs of one action there is none to cancel, and the dead client's thread in the
        # JVM would go on to the next. The tags catch what ran in threads that do not carry the group.
        self._context.cancelJobGroupAndFutureJobs(client.group, f"its client, process {client.pid}, has gone")
        for tag in client.session_tags:
            self._context.cancelJobsWithTag(tag)

    def _status(self) -> dict[str, Any]:
        idle = self.idle_seconds()
        with self._lock:
            pids = [client.pid for client in self._attached.values()]
            jobs = len(self._context.statusTracker().getActiveJobIds())
            return {"pid": os.getpid(), "clients": pids, "jobs": jobs, "served": self._served, "idle_seconds": idle}


class _ClientObjects:
    """What py4j keeps in the JVM for its clients: every object it gave them, until they let go. The dead never do."""

    def __init__(self, gateway: JavaGateway) -> None:
        from py4j.java_gateway import JavaObject
        from py4j.protocol import GATEWAY_SERVER_OBJECT_ID

        server = JavaObject(GATEWAY_SERVER_OBJECT_ID, gateway._gateway_client)
        self._kept = server.getGateway().getBindings()
        self._owners = gateway.jvm.java.util.HashSet(self._kept.keySet())
        for own in (self._kept, self._owners):
            self._owners.add(own._target_id)

    def forget(self) -> None:
        """Let go of all but the owner's; only while no client is attached."""
        self._kept.keySet().retainAll(self._owners)
