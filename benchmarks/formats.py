"""`make bench-formats`: the same records in every format, drained in turn in one process; CPU beside JSON's."""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.topic import DATES, PARTITIONS, benchmark_cluster
from benchmarks.usage import Usage
from benchmarks.worker import OURS, Round, Worker
from kdi_assets.components.load import load_streams
from kdi_assets.message_format import Avro, AvroSingleObject, Bytes, Csv, Protobuf, SchemaFile, Text
from kdi_assets.settings import Settings
from kdi_assets.sources.generator import Traffic, WebRequests
from kdi_assets.sources.publisher import BATCH, Outbox, ensure_topic
from kdi_assets.stream import KafkaCluster, Stream
from tests.avro_bytes import datum, fingerprint
from tests.protobuf_messages import descriptors, message_class

JSON, JSON_BAD, BAD = "json", "json, 0.1 % bad", 0.001
WARM_UP_ROUNDS = 2
console = Console(highlight=False)

Record = dict[str, Any]


def nullable(name: str, type_: object) -> dict[str, object]:
    """A field of Avro that may be null, as every field of a table may."""
    return {"name": name, "type": ["null", type_]}


def record(name: str, *fields: dict[str, object]) -> dict[str, object]:
    """A record of Avro."""
    return {"type": "record", "name": name, "fields": list(fields)}


PRODUCER = record("Producer", nullable("timestamp", "string"))
SCHEMA = record(
    "WebRequest",
    nullable("meta", record("Meta", nullable("producer", PRODUCER))),
    *(nullable(name, "string") for name in ("method", "session_id", "url", "uuid")),
    nullable("status", "int"),
)
SINGLE_OBJECT = b"\xc3\x01" + fingerprint(SCHEMA).to_bytes(8, "little")
SCHEMA_FILE = SchemaFile("web_request.avsc", json.dumps(SCHEMA))
PROTO = """
syntax = "proto3";
message Producer { optional string timestamp = 1; }
message Meta { Producer producer = 1; }
message WebRequest {
  Meta meta = 1; optional string method = 2; optional string session_id = 3; optional string url = 4;
  optional string uuid = 5; optional int32 status = 6;
}
"""
FLAT_DDL = "timestamp string, method string, session_id string, url string, uuid string, status int"
PLAIN: Mapping[str, Any] = {"record_ddl": "", "columns": {}, "expectations": {}, "filter": ""}
OF_TEXT = {**PLAIN, "date_expression": "to_date(kafka.timestamp)"}


@dataclass(frozen=True, slots=True)
class Case:
    """A format: how a JSON document is written in it, and what of the demo's stream is another."""

    encode: Callable[[bytes], bytes]
    stream: Mapping[str, Any]
    bad: float = 0.0


def _as_it_is(document: bytes) -> bytes:
    return document


def _as_csv(document: bytes) -> bytes:
    said: Record = json.loads(document)
    fields = [said["meta"]["producer"]["timestamp"], *(said[n] for n in ("method", "session_id", "url", "uuid"))]
    return "|".join([*fields, str(said["status"])]).encode()


def _as_protobuf(document: bytes) -> bytes:
    return bytes(message_class(PROTO, "WebRequest")(**json.loads(document)).SerializeToString())


def _as_zstd(document: bytes) -> bytes:
    import pyarrow as pa

    return bytes(pa.compress(document, codec="zstd", asbytes=True))


CASES: Mapping[str, Case] = {
    JSON: Case(_as_it_is, {}),
    JSON_BAD: Case(_as_it_is, {}, bad=BAD),
    "json, gzip": Case(gzip.compress, {"compression": "gzip"}),
    "json, zstd": Case(_as_zstd, {"compression": "zstd"}),
    "avro": Case(lambda d: datum(SCHEMA, json.loads(d)), {"format": Avro(SCHEMA_FILE), "record_ddl": ""}),
    "avro, single object": Case(
        lambda d: SINGLE_OBJECT + datum(SCHEMA, json.loads(d)),
        {"format": AvroSingleObject(SCHEMA_FILE, (SCHEMA_FILE,)), "record_ddl": ""},
    ),
    "protobuf": Case(
        _as_protobuf,
        {"format": Protobuf("web_request.desc", descriptors(PROTO), "WebRequest"), "record_ddl": ""},
    ),
    "csv": Case(
        _as_csv,
        {
            **PLAIN,
            "format": Csv(delimiter="|"),
            "record_ddl": FLAT_DDL,
            "date_expression": "to_date(substr(timestamp, 1, 10))",
            "coordinates": "kafka",
        },
    ),
    "text": Case(_as_it_is, {**OF_TEXT, "format": Text(), "coordinates": "kafka"}),
    "bytes": Case(_as_it_is, {**OF_TEXT, "format": Bytes(), "coordinates": "kafka"}),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Publish every case, drain them in turn, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.formats", description=__doc__)
    parser.add_argument("--messages", type=int, default=300_000, help="of each format")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="these formats, beside JSON")
    options = parser.parse_args(arguments)
    names = [JSON, *(name for name in options.only if name != JSON)]
    folder = Settings.from_environment().home / "benchmark"
    with benchmark_cluster(folder) as cluster:
        streams = {name: published(cluster, n, CASES[name], options.messages) for n, name in enumerate(names)}
        show(options.messages, dict(measured(streams, folder / "lake", options.messages, options.rounds)))


def published(cluster: KafkaCluster, number: int, case: Case, messages: int) -> Stream:
    """The stream of a case, with its topic filled."""
    demo = load_streams()["bronze/web_requests"]
    changed = {"format": demo.format, **case.stream}
    stream = replace(demo, cluster=cluster, topic=f"format-{number}", table=f"bronze/format_{number}", **changed)
    stream = replace(stream, app_id=stream.topic)
    ensure_topic(cluster, stream.topic, partitions=PARTITIONS)
    requests, outbox = WebRequests(Traffic(bad=case.bad, dates=DATES, seed=1)), Outbox(cluster, stream.topic)
    for sent in range(0, messages, BATCH):
        batch = requests.batch(min(BATCH, messages - sent), now=datetime.now(UTC))
        values = [value if value is None else case.encode(value) for value in batch]
        for partition in range(PARTITIONS):
            outbox.put(values[partition::PARTITIONS], partition=partition)
        outbox.wait(until=time.monotonic(), stopped=lambda: False)
    outbox.close()
    return stream


def measured(
    streams: Mapping[str, Stream], lake: Path, messages: int, rounds: int
) -> Iterator[tuple[str, list[Usage]]]:
    """The usages of each, all in one warm process, in turn."""
    usages: dict[str, list[Usage]] = {name: [] for name in streams}
    worker = Worker()
    try:
        for number in range(1 - WARM_UP_ROUNDS, rounds + 1):
            for name, stream in streams.items():
                rmtree(lake, ignore_errors=True)
                usage = worker.carry_out(Round(OURS, stream, lake, cold=False))
                check(name, stream, lake, messages)
                console.print(f"{max(number, 0)} {name}: {usage.wall_seconds:.1f} s, CPU {usage.cpu_seconds:.1f} s")
                if number > 0:
                    usages[name].append(usage)
    finally:
        worker.close()
    yield from usages.items()


def check(name: str, stream: Stream, lake: Path, messages: int) -> None:
    """Every message is in one of the two tables; bad ones only where there are some."""
    from deltalake import DeltaTable

    rows = DeltaTable(stream.table_uri(str(lake))).to_pyarrow_dataset().count_rows()
    letters = stream.dead_letters_uri(str(lake))
    dead = DeltaTable(letters).to_pyarrow_dataset().count_rows() if DeltaTable.is_deltatable(letters) else 0
    if rows + dead != messages or bool(dead) != bool(CASES[name].bad):
        sys.exit(f"{name}: {rows:,} rows and {dead:,} dead letters of {messages:,} messages")


def show(messages: int, usages: Mapping[str, Sequence[Usage]]) -> None:
    """Medians, and how they stand to JSON's."""
    table = Table("format", "CPU s", "CPU s a million", "least", "to JSON")
    of_json = median(usage.cpu_seconds for usage in usages[JSON])
    for name, seen in usages.items():
        cpu = [usage.cpu_seconds for usage in seen]
        million = median(cpu) * 1e6 / messages
        table.add_row(name, f"{median(cpu):.2f}", f"{million:.1f}", f"{min(cpu):.2f}", f"{median(cpu) / of_json:.2f}")
    console.print(table)


if __name__ == "__main__":
    main()
