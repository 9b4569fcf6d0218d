"""The system under load: the processes of a deployment, supervised, with as many streams as a load wants."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import psutil
from confluent_kafka.admin import NewTopic

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.loading.loader import load_streams
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.operate.monitoring.backlog_reader import read_backlogs
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.tools.local.broker import JVM_OPTIONS, Broker, start_broker
from kdi_assets.tools.local.generator import Traffic, WebRequests
from tests.conftest import CHECKOUT
from tests.deployment.deployed import Deployment, running_postgres
from tests.driven import web_requests_document
from tests.faults.topics import admin
from tests.kafka_log import Produced, Publisher
from tests.oracle import entries

PUBLISHED_A_SECOND = 20
"""Batches; a message waits at most a twentieth of a second before it is sent, which its timestamp would hide."""
STARTED_SECONDS = 240


@dataclass
class System:
    """A deployment with a broker, its streams, and their publisher."""

    deployment: Deployment
    broker: Broker
    streams: Sequence[Stream]
    publisher: Publisher

    @property
    def lake(self) -> str:
        return self.deployment.environment["KDI_LAKE"]

    def publish(self, streams: Sequence[Stream], count: int, *, traffic: WebRequests, sent: int = 0) -> None:
        """Send this many messages, in turn to each of the streams; the broker acknowledges them later.

        Args:
            sent: Messages of the same load that were sent before: the turn goes on after them.
        """
        for number, value in enumerate(traffic.batch(count, now=datetime.now(UTC)), start=sent):
            self.publisher.produce(streams[number % len(streams)].topic, value)
        self.publisher.client.poll(0)

    def produced(self) -> list[Produced]:
        """What the broker acknowledged for these streams."""
        topics = {stream.topic for stream in self.streams}
        return [m for m in self.publisher.log if m.topic_partition.topic in topics]

    def settled(self) -> bool:
        """Whether every stream has its table, whose first commit has its start."""
        return all(TableLog.open(stream.table_uri(self.lake)) for stream in self.streams)

    def drained(self) -> bool:
        """Whether nothing waits."""
        backlogs = read_backlogs(self.streams, lake=self.lake)
        return all(b.refusal is None and b.known and b.offsets == 0 for b in backlogs)

    def drains(self) -> list[tuple[datetime, LedgerEntry]]:
        """Each drain's commit, and when its file was written, which is when a reader can see it."""
        found = []
        for stream in self.streams:
            uri = stream.table_uri(self.lake)
            for entry in (e for e in entries(uri, stream.app_id) if e.ranges):
                written = Path(uri, "_delta_log", f"{entry.version:020}.json").stat().st_mtime
                found.append((datetime.fromtimestamp(written, UTC), entry))
        return found

    def cpu_seconds(self, *names: str) -> float:
        """CPU seconds of the units' processes and their children so far."""
        return sum(_tree_cpu(self.deployment.services[name].pid) for name in names)


@contextmanager
def running_system(
    *, streams: int, drain_when: str, jvm_options: Sequence[str] = (), monitoring_seconds: int | None = None
) -> Iterator[System]:
    """A complete system: broker, PostgreSQL, warm driver, code server, daemon; all of it ends with the body.

    Args:
        jvm_options: Additional options of broker and driver.
        monitoring_seconds: Time between two searches for dead runs; by default as deployed.
    """
    with TemporaryDirectory(prefix="kdi-soak-") as made, running_postgres() as postgres:
        folder = Path(made)
        broker = start_broker(folder / "broker", home=CHECKOUT / ".kdi", jvm_options=(*JVM_OPTIONS, *jvm_options))
        topics = [f"stream_{number}" for number in range(streams)]
        try:
            client = admin(Cluster("main", broker.bootstrap_servers))
            for created in client.create_topics([NewTopic(t, 1, 1) for t in topics]).values():
                created.result(60)
            environment = {
                "PYTHONPATH": str(CHECKOUT),
                "KDI_SPARK_MASTER": "local[2]",
                "KDI_KAFKA": broker.bootstrap_servers,
                "SPARK_DRIVER_MEMORY": "2g",
                "SPARK_SUBMIT_OPTS": " ".join(jvm_options),
            }
            (site := folder / "site").mkdir()
            deployment = Deployment(
                site, postgres=postgres, environment=environment, monitoring_seconds=monitoring_seconds
            )
            documents = [web_requests_document(t, drain_when=drain_when) for t in topics]
            (deployment.streams / "defs.yaml").write_text("---\n".join(documents))
            with patch.dict("os.environ", deployment.environment):
                known = list(load_streams(deployment.streams).values())
            deployment.start("driver", "code-server", "daemon")
            try:
                yield System(deployment, broker, known, Publisher(broker.bootstrap_servers))
            finally:
                deployment.stop()
        finally:
            broker.stop()


def _tree_cpu(pid: int) -> float:
    process = psutil.Process(pid)
    return sum(sum(one.cpu_times()[:4]) for one in (process, *process.children(recursive=True)))


class Load:
    """Publishes at a steady rate in a thread, until it is stopped."""

    def __init__(self, system: System, *, rate: float, bad: float = 0.0, seed: int = 0) -> None:
        self._system, self._rate = system, rate
        self._traffic = WebRequests(Traffic(bad=bad, seed=seed))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it, and wait until everything that was sent is acknowledged."""
        self._stopping.set()
        self._thread.join(60)
        self._system.publisher.flush()

    def _run(self) -> None:
        began, sent = time.monotonic(), 0
        while not self._stopping.wait(1 / PUBLISHED_A_SECOND):
            due = int((time.monotonic() - began) * self._rate)
            self._system.publish(self._system.streams, due - sent, traffic=self._traffic, sent=sent)
            sent = due


def wait_for(condition: Callable[[], bool], *, seconds: float, what: str) -> float:
    """Wait for other processes; returns the seconds."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            raise AssertionError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.2)
    return time.monotonic() - began
