"""A code location of real streams, whose drains and sensors wait where a test holds them.

The environment names the topics (``KDI_TEST_TOPICS``, with commas) and a folder (``KDI_TEST_HOLD``). A process waits at
a place while the folder has a file of its name; a sensor looks at its topic only while a file says so.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg

from kdi_assets.components.table_asset import table_asset
from kdi_assets.documents.model.stream import Cluster, DrainWhen, Stream
from kdi_assets.operate.monitoring.backlog_reader import Backlog, read_backlogs
from kdi_assets.resources.spark import SparkResource
from kdi_assets.sensors.lag import lag_sensor
from kdi_assets.streams.audit.audit import audit
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.drain.report import DrainReport
from tests.driven import web_requests
from tests.waiting import wait_until


class Holds:
    """The folder by which a test controls the processes of the location."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def hold(self, topic: str, place: str) -> None:
        """Hold every process that comes to the place."""
        (self.folder / f"hold {topic} at {place}").touch()

    def release(self, topic: str, place: str) -> None:
        (self.folder / f"hold {topic} at {place}").unlink()

    def waiting(self, topic: str, place: str) -> int:
        """How many processes came to the place while it was held."""
        return len(list(self.folder.glob(f"* waits for {topic} at {place}")))

    def watch(self, topic: str) -> None:
        """Let the topic's sensor look from now on."""
        (self.folder / f"watch {topic}").touch()

    def is_watched(self, topic: str) -> bool:
        return (self.folder / f"watch {topic}").exists()

    def wait_if_held(self, topic: str, place: str) -> None:
        """In a process of the location."""
        held = self.folder / f"hold {topic} at {place}"
        if held.exists():
            (self.folder / f"{os.getpid()} waits for {topic} at {place}").touch()
            wait_until(lambda: not held.exists(), seconds=120)


def held_stream(topic: str, bootstrap_servers: str) -> Stream:
    """One message is enough for a run."""
    main = Cluster(name="main", bootstrap_servers=bootstrap_servers)
    return web_requests(topic, main, drain_when=DrainWhen(backlog_messages=1, lag_seconds=3600, min_gap_seconds=0))


def _drain(holds: Holds, stream: Stream, **options: Any) -> DrainReport:
    return drain(stream, at=partial(holds.wait_if_held, stream.topic), **options)


def _look(holds: Holds, streams: Sequence[Stream], *, lake: str) -> Sequence[Backlog]:
    watched = [s for s in streams if holds.is_watched(s.topic)]
    return read_backlogs(watched, lake=lake)


@dg.definitions
def defs() -> dg.Definitions:
    holds = Holds(Path(os.environ["KDI_TEST_HOLD"]))
    streams = [held_stream(topic, os.environ["KDI_KAFKA"]) for topic in os.environ["KDI_TEST_TOPICS"].split(",")]
    return dg.Definitions(
        assets=[table_asset(s, drain=partial(_drain, holds), audit=audit) for s in streams],
        sensors=[lag_sensor(s.topic, [s], read_backlogs=partial(_look, holds)) for s in streams],
        resources={"spark": SparkResource()},
        executor=dg.in_process_executor,
    )
