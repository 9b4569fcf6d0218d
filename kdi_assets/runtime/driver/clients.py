"""The warm driver's clients: a client's jobs are cancelled when it leaves, all objects are freed with the last one."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from kdi_assets.runtime.gateway import ClientObjects, active_jobs, cancel_jobs, ended_context, gateway_of
from kdi_assets.runtime.spark_internals import jvm_context

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
REFUSE_SECONDS = 30.0
"""How long new clients are refused before a JVM is recycled, so that the attached ones can finish. A client waits twice
as long for a driver."""


@dataclass
class Client:
    """An attached process; job group and session tags mark its jobs.

    Attributes:
        turn: The least number that no other attached process has. Spark shares its cores among the turns.
    """

    pid: int
    group: str
    turn: int = 0
    session_tags: list[str] = field(default_factory=list)


class Clients:
    """Handles the connections of ``ControlServer``."""

    def __init__(
        self,
        session: SparkSession,
        *,
        stop: Callable[[], None],
        left: Callable[[int], None],
        recycle_after: int | None = None,
    ) -> None:
        """Start without clients.

        Args:
            stop: Called when a process asks the driver to stop.
            left: Called when the last attached client has left, with the number of clients served.
            recycle_after: After so many clients, new ones are refused until the attached ones have left. If that takes
                too long, new clients are accepted again, until as many more were served.
        """
        self._stop, self._left = stop, left
        self._attached: dict[str, Client] = {}
        self._served = 0
        self._recycle_after, self._refuse_until = recycle_after, 0.0
        self._idle_since = time.monotonic()
        self._closed = False
        self._lock = threading.Lock()
        self._context = jvm_context(session)
        self._catalog = session.catalog  # before the next line: the driver keeps the objects that are there then
        self._objects = ClientObjects(gateway_of(session))

    def idle_seconds(self) -> float | None:
        """Seconds since the last client left, or since the start; none while a client is attached."""
        with self._lock:
            return None if self._attached else time.monotonic() - self._idle_since

    def close(self) -> None:
        """Refuse new clients; jobs need not be cancelled any more, because the JVM ends."""
        with self._lock:
            self._closed = True

    def on_connect(self, hello: dict[str, Any]) -> dict[str, Any] | None:
        match hello.get("ask"):
            case "attach":
                return self._attach(Client(pid=hello["pid"], group=hello["group"]))
            case "status":
                return self._status()
            case "stop":
                return {}  # the stop is a second message: a driver that stops at once could not answer
        return None

    def on_message(self, hello: dict[str, Any], message: dict[str, Any]) -> None:
        if hello["ask"] == "stop":
            self._stop()
        elif client := self._attached.get(hello.get("group", "")):
            client.session_tags.append(message["session_tag"])

    def on_disconnect(self, hello: dict[str, Any]) -> None:
        with self._lock:
            client = self._attached.get(hello.get("group", ""))
            if client is None or self._closed:
                return
            del self._attached[client.group]
            self._served += 1
            self._cancel(client)
            if self._attached:
                if self._recycle_after and self._served % self._recycle_after == 0:
                    self._refuse_until = time.monotonic() + REFUSE_SECONDS
                return
            self._release()
            self._idle_since = time.monotonic()
        self._left(self._served)

    def _attach(self, client: Client) -> dict[str, Any] | None:
        if ended_context() is not None:  # which the driver itself notices seconds later
            return None
        with self._lock:
            if self._closed or time.monotonic() < self._refuse_until:
                return None
            taken = {other.turn for other in self._attached.values()}
            client.turn = next(turn for turn in count() if turn not in taken)
            self._attached[client.group] = client
            return {"turn": client.turn}

    def _cancel(self, client: Client) -> None:
        # The tags are for jobs in threads without the job group.
        reason = f"its client, process {client.pid}, has gone"
        try:
            cancel_jobs(self._context, client.group, client.session_tags, reason=reason)
        except Exception:  # a context that has ended takes no call, and its jobs have ended with it
            log.warning("the jobs of process %d could not be cancelled", client.pid, exc_info=True)

    def _release(self) -> None:
        """Release what clients that were killed have left: py4j's objects, and rows that Spark has cached for them."""
        self._objects.release()
        try:
            self._catalog.clearCache()  # of all sessions
        except Exception:  # a context that has ended
            log.warning("the cached rows could not be released", exc_info=True)

    def _status(self) -> dict[str, Any]:
        idle = self.idle_seconds()
        with self._lock:
            pids = [client.pid for client in self._attached.values()]
            jobs = active_jobs(self._context)
            return {"pid": os.getpid(), "clients": pids, "jobs": jobs, "served": self._served, "idle_seconds": idle}
