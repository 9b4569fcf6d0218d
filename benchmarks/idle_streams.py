"""The cost of a tick of the lag sensor with many idle streams: seconds, CPU, memory.

Each stream has its own topic on a real broker and a table whose log is that of a drain, without rows.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import psutil

from benchmarks.harness import console, option_parser, own_broker, own_folder
from kdi_assets.components.names import dates, table_key
from kdi_assets.delta.markers import table_txn_id, topic_txn_id, version_id
from kdi_assets.documents.model.stream import Cluster, Stream, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.messages.kafka.topic import read_topics
from kdi_assets.messages.topic_state import TopicState
from kdi_assets.sensors.lag import lag_sensors
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.entry_json import entry_to_json
from kdi_assets.streams.ledger.positions import partition_id

COLUMNS = [("id", "long"), ("date", "date")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the streams, and let the sensor tick."""
    parser = option_parser("idle_streams", __doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--ticks", type=int, default=10)
    options = parser.parse_args(arguments)
    for number, cost in enumerate(tick_costs(options.streams, ticks=options.ticks)):
        console.print(f"tick {number}: {cost.seconds:.2f} s, {cost.cpu_seconds:.2f} CPU s, {cost.text}")


@dataclass(frozen=True, slots=True)
class TickCost:
    """The cost of one tick, and what it answered."""

    seconds: float
    cpu_seconds: float
    text: str


def tick_costs(count: int, *, ticks: int) -> Iterator[TickCost]:
    """Make so many streams, and let the sensor tick; the first tick reads every log."""
    with own_folder("idle") as folder, own_broker(folder) as cluster:
        streams = [stream_of(cluster, number) for number in range(count)]
        create_topics(streams)
        create_tables(streams, lake=str(folder / "lake"))
        yield from measure(streams, lake=str(folder / "lake"), home=folder / "dagster", ticks=ticks)


def stream_of(cluster: Cluster, number: int) -> Stream:
    """One of many streams."""
    return Stream(f"topic_{number}", f"bronze/table_{number}", "id bigint", "current_date()", cluster)


def create_topics(streams: Sequence[Stream]) -> None:
    """A topic of one topic partition for each."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": streams[0].kafka.bootstrap_servers})
    for some in (streams[i : i + 200] for i in range(0, len(streams), 200)):
        made = admin.create_topics([NewTopic(s.topic, 1, 1) for s in some], operation_timeout=60, request_timeout=90)
        for future in made.values():
            future.result(90)


def create_tables(streams: Sequence[Stream], *, lake: str) -> None:
    """Tables at version 0, which is a ledger commit of an empty topic."""
    topics = read_all(streams)
    for stream in streams:
        folder = Path(stream.table_uri(lake)) / "_delta_log"
        folder.mkdir(parents=True)
        actions = "\n".join(json.dumps(action) for action in first_commit(stream, topics[stream.topic].topic_id))
        (folder / f"{0:020}.json").write_text(actions)


def read_all(streams: Sequence[Stream]) -> dict[str, TopicState]:
    """The topics, as soon as the broker announces all of them."""
    names, deadline = [s.topic for s in streams], time.monotonic() + 60
    while True:
        states = read_topics(streams[0].kafka, names)
        known = {topic: state for topic, state in states.items() if isinstance(state, TopicState)}
        if len(known) == len(names):
            return known
        if time.monotonic() > deadline:
            raise next(state for state in states.values() if isinstance(state, KdiError))


def first_commit(stream: Stream, topic_id: str) -> list[dict[str, object]]:
    """The actions of a drain's commit: metadata, transaction ids, ledger entry (Delta protocol, "Actions")."""
    table_id, app_id = str(uuid.uuid4()), stream.app_id
    positions = {TopicPartition(stream.topic, 0): 0}
    entry = LedgerEntry(-1, "drain", app_id, "attempt", stream.topic, topic_id, table_id, positions)
    ids = {
        partition_id(app_id, 0): -1,
        version_id(app_id): 0,
        topic_txn_id(app_id, topic_id): 0,
        table_txn_id(app_id, table_id): 0,
    }
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in COLUMNS]
    metadata = {
        "id": table_id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["date"],
        "configuration": {},
    }
    information = {"timestamp": int(time.time() * 1000), "operation": "WRITE", "userMetadata": entry_to_json(entry)}
    actions: list[dict[str, object]] = [
        {"commitInfo": {**information, "operationParameters": {}}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
    ]
    transactions: list[dict[str, object]] = [{"txn": {"appId": app, "version": v}} for app, v in ids.items()]
    return actions + transactions


def measure(streams: Sequence[Stream], *, lake: str, home: Path, ticks: int) -> Iterator[TickCost]:
    """Tick as Dagster's code server does, against an instance with its database on disk."""
    home.mkdir(parents=True)
    os.environ["KDI_LAKE"] = lake
    process = psutil.Process()
    with dg.DagsterInstance.from_ref(dg.DagsterInstance.local_temp(str(home)).get_ref()) as instance:
        assets = [dg.AssetSpec(table_key(s), partitions_def=dates(s)) for s in streams]
        defs = dg.Definitions(assets=assets, sensors=lag_sensors(streams))
        sensor = defs.get_repository_def().get_sensor_def("lag_main")
        before, cursor = process.memory_info().rss, None
        for _ in range(ticks):
            began, cpu = time.monotonic(), sum(process.cpu_times()[:2])
            context = dg.build_sensor_context(instance, cursor=cursor, definitions=defs, sensor_name="lag_main")
            data = sensor.evaluate_tick(context)
            cursor = data.cursor
            seconds, spent = time.monotonic() - began, sum(process.cpu_times()[:2]) - cpu
            grown = (process.memory_info().rss - before) / 1e6
            answer = f"{len(data.asset_events)} observations, {data.skip_message or len(data.run_requests or [])}"
            text = f"{grown:+.0f} MB, cursor {len(cursor or ''):,} bytes, {answer}"
            yield TickCost(seconds, spent, text)


if __name__ == "__main__":
    main()
