"""A small writer from Kafka to Delta without Spark, for tests of the conformance suite: right, or wrong in one way.

Right: rows and the next offsets are one Delta commit, dead letters and theirs another; each table goes on where it
stands itself. The wrong ones are named in ``WAYS``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as MessagePlace
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from kdi_assets.tools.conformance.messages import record_of

WAYS = ("right", "offsets first", "rows first", "drops bad", "reads uncommitted", "daemon", "member")
ROWS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.float64()),
        ("at", pa.string()),
        ("rest", pa.string()),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
    ]
)
LETTERS = pa.schema([("value", pa.binary()), ("kafka_partition", pa.int32()), ("kafka_offset", pa.int64())])
PAUSE_SECONDS = 0.3  # between the two halves of a wrong commit, so that a kill can come in between


def messages(kafka: str, topic: str, starts: dict[int, int], *, isolation: str) -> Iterator[Message]:
    """Everything from these offsets to the ends of all topic partitions."""
    settings = {"group.id": "small", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": kafka, "isolation.level": isolation, "log_level": 2, **settings})
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([MessagePlace(topic, partition, starts.get(partition, 0)) for partition in partitions])
        ended = 0
        while ended < len(partitions):
            message = consumer.poll(5)
            if message is None or message.error() is not None:
                ended += message is not None
            else:
                yield message
    finally:
        consumer.close()


def positions(uri: str) -> dict[int, int]:
    """The next offset of each topic partition, as the table says."""
    if not DeltaTable.is_deltatable(uri):
        return {}
    table = DeltaTable(uri)
    found = {partition: table.transaction_version(f"small-{partition}") for partition in range(8)}
    return {partition: version for partition, version in found.items() if version is not None}


def append(uri: str, lines: Sequence[dict[str, Any]], schema: pa.Schema, ends: dict[int, int]) -> None:
    """One commit: the lines, and the positions after them."""
    done = CommitProperties(app_transactions=[Transaction(f"small-{p}", end) for p, end in ends.items()])
    write_deltalake(uri, pa.Table.from_pylist([*lines], schema=schema), mode="append", commit_properties=done)


def drain(way: str, kafka: str, topic: str, table: str) -> None:
    """Write what waits."""
    letters_uri, noted = f"{table}_dead_letters", Path(f"{table}_offsets.json")
    by_file = way in ("offsets first", "rows first")
    of_file = {int(p): o for p, o in json.loads(noted.read_text()).items()} if by_file and noted.exists() else {}
    at_rows, at_letters = (of_file, of_file) if by_file else (positions(table), positions(letters_uri))
    starts = {p: min(at_rows.get(p, 0), at_letters.get(p, 0)) for p in {*at_rows, *at_letters}}
    isolation = "read_uncommitted" if way == "reads uncommitted" else "read_committed"
    rows: list[dict[str, Any]] = []
    letters: list[dict[str, Any]] = []
    ends: dict[int, int] = {}
    for message in messages(kafka, topic, starts, isolation=isolation):
        partition, offset, value = message.partition() or 0, message.offset() or 0, message.value()
        ends[partition] = offset + 1
        place = {"kafka_partition": partition, "kafka_offset": offset}
        said = record_of(value) if isinstance(value, bytes) else None
        if said is not None and offset >= at_rows.get(partition, 0):
            known = {name: said.pop(name, None) for name in ("id", "name", "amount", "at")}
            rows.append({**known, **place, "rest": json.dumps(said)})
        elif said is None and value is not None and offset >= at_letters.get(partition, 0) and way != "drops bad":
            letters.append({"value": value, **place})
    if not ends:
        return
    if way == "offsets first":
        note(noted, {**of_file, **ends})
    append(letters_uri, letters, LETTERS, ends)
    append(table, rows, ROWS, ends)
    if way == "rows first":
        time.sleep(PAUSE_SECONDS)
        note(noted, {**of_file, **ends})


def joined(kafka: str, topic: str) -> Consumer:
    """A member of the topic's consumer group that holds topic partitions; one that was killed holds them first."""
    settings = {"group.id": topic, "session.timeout.ms": 15000, "heartbeat.interval.ms": 1000, "log_level": 2}
    member = Consumer({"bootstrap.servers": kafka, "enable.auto.commit": False, **settings})
    member.subscribe([topic])
    while not member.assignment():
        member.poll(0.2)
    member.pause(member.assignment())
    return member


def note(file: Path, ends: dict[int, int]) -> None:
    """Keep the offsets in a file, away from the rows."""
    new = file.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(ends))
    new.rename(file)
    time.sleep(PAUSE_SECONDS)


def main(way: str, kafka: str, topic: str, table: str) -> None:
    """Drain once, or again and again until someone ends the process."""
    member = joined(kafka, topic) if way == "member" else None
    while True:
        if member is not None:
            member.poll(0)
        try:
            drain(way, kafka, topic, table)
        except CommitFailedError as raced:
            sys.exit(f"another writer was faster: {raced}")
        if way not in ("daemon", "member"):
            return
        time.sleep(0.2)


if __name__ == "__main__":
    main(*sys.argv[1:])
