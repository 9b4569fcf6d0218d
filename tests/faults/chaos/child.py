"""A drain in a process of its own that gets a signal at a named point.

Usage: ``python -m tests.faults.chaos.child TOPIC BOOTSTRAP_SERVERS POINT SIGNAL``, with ``KDI_HOME`` of a warm driver
and ``KDI_LAKE`` set.
"""

from __future__ import annotations

import os
import signal
import sys

from kdi_assets.drain.drain import drain
from kdi_assets.drain.refusals import AnotherDrainActive
from kdi_assets.runtime.session import open_session
from kdi_assets.settings import Settings
from kdi_assets.stream import KafkaCluster
from tests.driven import web_requests


def main(topic: str, bootstrap_servers: str, doom: str, number: str) -> None:
    """Drain the stream; at the point, send the signal to ourselves."""
    reached: list[str] = []

    def at(point: str) -> None:
        if point == doom and not reached:
            reached.append(point)
            os.kill(os.getpid(), getattr(signal, number))

    settings = Settings.from_environment()
    stream = web_requests(topic, KafkaCluster(name="main", bootstrap_servers=bootstrap_servers))
    try:
        drain(stream, lake=settings.lake, session=lambda: open_session(settings), at=at)
    except AnotherDrainActive:
        pass  # it slept, and others drained


if __name__ == "__main__":
    main(*sys.argv[1:])
