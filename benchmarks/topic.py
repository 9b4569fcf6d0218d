"""A broker of the benchmark's own with one topic in it, and the stream that reads it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

from kdi_assets.components.load import load_streams
from kdi_assets.components.route_groups import linked
from kdi_assets.message_rules import Route
from kdi_assets.runtime.broker import start_broker
from kdi_assets.sources.generator import Traffic
from kdi_assets.sources.publisher import publish
from kdi_assets.stream import KafkaCluster, Stream

PARTITIONS, DATES = 4, 3


@contextmanager
def published_topic(folder: Path, *, messages: int) -> Iterator[Stream]:
    """The demo's stream, over a new topic with so many good messages; the folder is gone afterwards."""
    with benchmark_cluster(folder) as cluster:
        stream = replace(load_streams()["bronze/web_requests"], cluster=cluster)
        publish(cluster, stream.topic, Traffic(dates=DATES, seed=1), count=messages, partitions=PARTITIONS)
        yield stream


@contextmanager
def benchmark_cluster(folder: Path) -> Iterator[KafkaCluster]:
    """A broker of its own; the folder is gone afterwards."""
    rmtree(folder, ignore_errors=True)
    broker = start_broker(folder / "broker")
    try:
        yield KafkaCluster("main", broker.bootstrap_servers)
    finally:
        broker.stop()
        rmtree(folder, ignore_errors=True)


def rows_in(stream: Stream, lake: Path) -> int:
    """Rows that another reader than Spark finds in the table."""
    from deltalake import DeltaTable

    return int(DeltaTable(stream.table_uri(str(lake))).to_pyarrow_dataset().count_rows())


def three_tables(stream: Stream) -> list[Stream]:
    """Streams that share the topic of the stream by their routes: each message has one table."""
    conditions = {"bronze/get": "method = 'GET'", "bronze/post": "method = 'POST'"}
    routes = {table: Route(when) for table, when in conditions.items()}
    routes["bronze/rest"] = Route("method NOT IN ('GET', 'POST')", "dead_letters")
    return list(linked([replace(stream, table=table, route=route) for table, route in routes.items()]))
