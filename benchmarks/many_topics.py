"""Many topics by two documents: `kdi check`, loading, an idle tick, and a new topic until its first row.

Usage: ``python -m benchmarks.many_topics [--topics N]``. The units of a deployment run from their own command lines,
with PostgreSQL and a broker. Each topic is empty, and its table has the log of a drain, without rows.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import psutil

from benchmarks.harness import console, hold, option_parser, own_broker
from benchmarks.idle_streams import create_tables, create_topics, measure
from kdi_assets.documents.loading.loader import load_folder
from kdi_assets.documents.loading.pinned_topics import add_pins
from kdi_assets.documents.model.stream import Stream
from kdi_assets.runtime.driver.control import address_file
from tests.conftest import CHECKOUT
from tests.deployment.deployed import Deployment, running_postgres

GROUPS = ("shop", "web")
DRAINED_SECONDS = 300
LOAD = """
import time
began = time.monotonic()
import psutil
from kdi_assets.definitions import definitions_for
from kdi_assets.documents.loading.loader import defs_folder
imported, of_imports = time.monotonic(), psutil.Process().memory_info().rss
repository = definitions_for(defs_folder()).get_repository_def()
repository.load_all_definitions()
grown = psutil.Process().memory_info().rss - of_imports
of_assets = time.monotonic() - imported
print(f"{imported - began:.2f} s imports, {of_assets:.2f} s documents and assets, {grown / 1e6:+.0f} MB")
"""


def main() -> None:
    """Print a line for each figure."""
    parser = option_parser("many_topics", __doc__)
    parser.add_argument("--topics", type=int, default=300)
    parser.add_argument("--ticks", type=int, default=5)
    options = parser.parse_args()
    console.print(f"load average before: {os.getloadavg()[0]:.1f}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="kdi-topics-")))
        deployment = _deployment(folder, stack)
        streams = topic_documents(deployment, options.topics)
        create_topics(streams)
        deployment.start("driver")
        _wait(lambda: address_file(deployment.home).exists(), "the driver")
        _timed(deployment, "kdi check, first, with a JVM that has just started", "kdi", "check")
        _timed(deployment, "kdi check, driver warm", "kdi", "check")
        # Only now: the logs lack columns of the documents, which `kdi check` would report.
        create_tables(streams, lake=deployment.environment["KDI_LAKE"])
        _timed(deployment, "code location", sys.executable, "-c", LOAD)
        with patch.dict(os.environ, deployment.environment):
            ticks = measure(
                streams, lake=deployment.environment["KDI_LAKE"], home=folder / "ticks", ticks=options.ticks
            )
            for number, cost in enumerate(ticks):
                console.print(f"tick {number}: {cost.seconds:.2f} s, {cost.cpu_seconds:.2f} CPU s, {cost.text}")
        _new_topic(deployment, streams[0])
    console.print(f"load average after: {os.getloadavg()[0]:.1f}")


def _deployment(folder: Path, stack: ExitStack) -> Deployment:
    postgres = stack.enter_context(running_postgres())
    cluster = stack.enter_context(own_broker(folder))
    more = {"PYTHONPATH": str(CHECKOUT), "KDI_KAFKA": cluster.bootstrap_servers, "KDI_SPARK_MASTER": "local[2]"}
    deployment = Deployment(folder, postgres=postgres, environment=more)
    stack.callback(deployment.stop)
    return deployment


def topic_documents(deployment: Deployment, count: int) -> list[Stream]:
    """Two documents with so many pinned topics together; the streams that they describe."""
    for group in GROUPS:
        folder = deployment.streams / f"{group}_topics"
        folder.mkdir()
        attributes = {
            "name": group,
            "topics": {"pattern": rf"{group}\.(.*)"},
            "table": f"{group}/{{1}}",
            "schema": "id bigint",
            "date": "current_date()",
            "drain_when": {"backlog_messages": 1},
            "new_topics": "add",
        }
        document = {"type": "kdi_assets.components.TopicTables", "attributes": attributes}
        (folder / "defs.yaml").write_text(json.dumps(document))  # JSON is YAML
        add_pins(folder / f"{group}.topics", group, [f"{group}.t{n:03}" for n in range(count // len(GROUPS))])
    with patch.dict(os.environ, deployment.environment):
        loaded = load_folder(deployment.streams).streams.values()
    return [stream for stream in loaded if stream.topic.startswith(tuple(f"{group}." for group in GROUPS))]


def _timed(deployment: Deployment, what: str, program: str, *arguments: str) -> None:
    began = time.monotonic()
    said = deployment.run(program, *arguments).strip()
    console.print(f"{what}: {time.monotonic() - began:.2f} s ({said})")


def _new_topic(deployment: Deployment, other: Stream) -> None:
    """Code server and daemon start; a topic is made with a message; print the seconds until its table has a row."""
    from confluent_kafka import Producer

    deployment.run("dagster", "instance", "migrate")
    deployment.start("code-server", "daemon")
    server, daemon_log = deployment.services["code-server"], deployment.folder / "daemon.log"
    _wait(lambda: "new_topics_main skipped" in daemon_log.read_text(), "the first tick")
    create_topics([replace(other, topic="shop.new")])
    producer = Producer({"bootstrap.servers": other.kafka.bootstrap_servers})
    began = time.monotonic()
    producer.produce("shop.new", b'{"id": 1}')
    producer.flush(30)
    log = Path(deployment.environment["KDI_LAKE"]) / "shop" / "new" / "_delta_log"
    pinned = deployment.streams / "shop_topics" / "shop.topics"
    _wait(lambda: "shop.new" in pinned.read_text(), "the topic in the file")
    console.print(f"new topic: in the file after {time.monotonic() - began:.1f} s")
    _wait(lambda: any('"add":' in commit.read_text() for commit in log.glob("*.json")), "its first row")
    console.print(f"new topic: its row is in the table after {time.monotonic() - began:.1f} s")
    hold(server.starts == 1, "the code server has started again")
    console.print(f"code server: {psutil.Process(server.pid).memory_info().rss / 1e6:.0f} MB after the reload")


def _wait(until: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DRAINED_SECONDS
    while not until():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {DRAINED_SECONDS} s: {what}")
        time.sleep(0.5)


if __name__ == "__main__":
    main()
