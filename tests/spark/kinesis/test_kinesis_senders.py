"""The page's documents for senders that many streams have: what they put becomes rows, or dead letters that say why."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kdi_assets.documents.loading.loader import load_folder
from kdi_assets.documents.model.refined_modes import Upsert
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.follow.refine.refine import refine
from kdi_assets.follow.refine.row_errors import OrderUnknown
from kdi_assets.streams.audit.audit import audit
from kdi_assets.streams.drain.drain import drain
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.conftest import CHECKOUT
from tests.documents import written
from tests.formats.foreign import GLUE_FRAMED, VERSION, ZSTD
from tests.kinesis.drains import Put
from tests.kinesis.endpoint import kinesis_client
from tests.oracle import entries, read_back

PAGE = (CHECKOUT / "docs" / "kinesis-records.md").read_text()
DOCUMENTS = dict(re.findall(r"^## ([^\n]+)\n.*?^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))


class Sender:
    """A stream of the page, with two shards, and the tables of its documents."""

    def __init__(self, spark: SparkSession, lake: str, server: KinesisServer, name: str) -> None:
        self.spark, self.lake, self.server = spark, lake, server
        connection = f"attributes: {{name: eu, region: us-east-1, endpoint: '{server.endpoint}'}}"
        texts = f"type: kdi_assets.components.KinesisConnection\n{connection}\n---\n{DOCUMENTS[name]}"
        loaded = load_folder(written(Path(lake).parent / "defs", kinesis=texts))
        self.stream: Stream = next(iter(loaded.streams.values()))
        self.refined: RefinedTableSpec | None = next(iter(loaded.refined.values()), None)
        self.client = kinesis_client(server.endpoint)
        self.client.create_stream(StreamName=self.stream.topic, ShardCount=2)
        server.advance(60)

    def put(self, records: Iterable[tuple[str, bytes]]) -> None:
        """Put data by partition keys, one after another."""
        for key, data in records:
            self.client.put_record(StreamName=self.stream.topic, PartitionKey=key, Data=data)
        self.server.advance(1)

    def split(self) -> None:
        """Split both shards, so that keys move."""
        for shard in self.client.list_shards(StreamName=self.stream.topic)["Shards"]:
            first, last = (int(shard["HashKeyRange"][f"{edge}HashKey"]) for edge in ("Starting", "Ending"))
            at = {"ShardToSplit": shard["ShardId"], "NewStartingHashKey": str((first + last) // 2)}
            self.client.split_shard(StreamName=self.stream.topic, **at)
        self.server.advance(60)

    def drain(self) -> None:
        drain(self.stream, lake=self.lake, session=lambda: self.spark)

    def refine(self, table: RefinedTableSpec | None = None) -> list[dict[str, Any]]:
        """The rows of the refined table after what is new; by default that of the page."""
        table = table or self.refined
        assert table is not None
        refine(table, lake=self.lake, session=lambda: self.spark)
        rows = DeltaTable(table.table_uri(self.lake)).to_pyarrow_table().to_pylist()
        return sorted(rows, key=lambda row: row["id"])

    def rows(self) -> Sequence[Mapping[str, Any]]:
        return read_back(self.stream, self.lake).rows

    def letters(self) -> Counter[tuple[str, str | None, bytes]]:
        """Reason, field and value of the dead letters that count."""
        return Counter((x["reason"], x["field"], x["value"]) for x in read_back(self.stream, self.lake).dead_letters)

    def assert_complete(self) -> None:
        assert audit(self.stream, lake=self.lake, session=lambda: self.spark).complete


def as_json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document).encode()


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, codec="zstd", asbytes=True))


@pytest.mark.parametrize("codec", ["gzip", "zstd"])
def test_compressed_records_are_rows_and_others_letters(
    spark: SparkSession, lake: str, server: KinesisServer, codec: str
) -> None:
    """Procedure: put compressed records; one that holds 65 MiB, one cut off, one of the other codec, and plain JSON."""
    orders = Put(spark, lake, server, shards=1, compression=codec)
    write, other = (gzip.compress, zstd) if codec == "gzip" else (zstd, gzip.compress)
    documents = [as_json({"id": n}) for n in range(5)]
    bomb = write(b'{"id": 9, "padding": "' + b"x" * (65 << 20) + b'"}')
    assert len(bomb) < 100_000
    bad = [bomb, write(documents[0])[:-3], other(documents[0]), documents[0]]
    for data in (*map(write, documents), *bad):
        orders.client.put_record(StreamName="orders", PartitionKey="any", Data=data)
    server.advance(1)

    orders.drain()

    found = read_back(orders.stream, lake)
    assert sorted(row["id"] for row in found.rows) == list(range(5))
    assert Counter((x["reason"], x["value"]) for x in found.dead_letters) == Counter((f"not_{codec}", b) for b in bad)


def test_a_table_of_json_names_compressed_and_framed_records(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=1)
    orders.put(2)
    foreign = [gzip.compress(b'{"id": 9}'), ZSTD, GLUE_FRAMED, b"\x1f no gzip"]
    for data in foreign:
        orders.client.put_record(StreamName="orders", PartitionKey="any", Data=data)
    server.advance(1)

    orders.drain()

    assert orders.drained() == orders.ids
    letters = read_back(orders.stream, lake).dead_letters
    assert {x["value"]: (x["reason"], x["field"]) for x in letters} == {
        foreign[0]: ("looks_like_gzip", None),
        foreign[1]: ("looks_like_zstd", None),
        foreign[2]: ("glue_frame", VERSION),
        foreign[3]: ("malformed_json", None),
    }


SECOND = 1_767_225_600_000
"""A moment in milliseconds since 1970, as CloudWatch Logs and Debezium have it."""


def log_record(*lines: str, kind: str = "DATA_MESSAGE", at: int = SECOND) -> bytes:
    """What a subscription filter puts, with a log event for each line."""
    events = [{"id": f"3195310{n}", "timestamp": at + n, "message": line} for n, line in enumerate(lines)]
    sender = {"owner": "111111111111", "logGroup": "/shop", "logStream": "web-1", "subscriptionFilters": ["all"]}
    return gzip.compress(as_json({"messageType": kind, **sender, "logEvents": events}))


def test_each_log_event_of_cloudwatch_is_a_row_and_control_messages_are_none(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: put records of three log events and of one; a control message; a record without log events, one
    that is JSON without compression, one whose log event has no date of the table's window, and other JSON.
    """
    logs = Sender(spark, lake, server, "CloudWatch Logs")
    bad = {
        log_record(): ("no_date", "date"),
        gzip.decompress(log_record("plain")): ("not_gzip", None),
        log_record("1970", at=0): ("date_outside_window", "date"),
        gzip.compress(b'{"id": 1}'): ("missing_field", "messageType"),
    }
    control = log_record("CWL CONTROL MESSAGE: Checking health of destination Kinesis stream.", kind="CONTROL_MESSAGE")
    good = [log_record("a", '{"b": 1}', "c"), log_record("d")]
    logs.put((str(n), data) for n, data in enumerate([*good, control, *bad]))

    logs.drain()

    found = {r["event"]["message"]: (r["logGroup"], r["kinesis"]["index"], r["kinesis"]["count"]) for r in logs.rows()}
    assert found == {"a": ("/shop", 0, 3), '{"b": 1}': ("/shop", 1, 3), "c": ("/shop", 2, 3), "d": ("/shop", 0, 1)}
    assert sorted(int(r["at"].timestamp() * 1000) - SECOND for r in logs.rows()) == [0, 0, 1, 2]
    assert logs.letters() == Counter((*why, value) for value, why in bad.items())
    logs.assert_complete()


def change(op: str, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, lsn: int) -> tuple[str, bytes]:
    """Partition key and data of a change, as Debezium Server puts it."""
    key = json.dumps({"id": (after or before or {})["id"]})
    return key, as_json({"before": before, "after": after, "op": op, "ts_ms": SECOND + lsn, "source": {"lsn": lsn}})


def customer(number: int, city: str) -> dict[str, Any]:
    return {"id": number, "name": f"customer {number}", "city": city}


def test_changes_of_debezium_server_become_the_table_whatever_moves_their_keys(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Purpose: the source's order decides, on a stream whose order is another one.
    Procedure: put inserts and an update, the insert of this key after it, as after a put that Kinesis did not take;
    drain, refine; split all shards; put updates, a delete whose before has nothing, and its tombstone; drain, refine.
    Pass: the table is the source's; the tombstone is a dead letter; without ``sequence_by`` the run is refused.
    """
    shop = Sender(spark, lake, server, "Debezium Server")
    shop.put(change("c", None, customer(n, "Rome"), n) for n in range(1, 20))
    late, early = change("u", None, customer(20, "Oslo"), 21), change("c", None, customer(20, "Rome"), 20)
    shop.put([late, early])
    shop.drain()
    assert [(row["id"], row["city"]) for row in shop.refine()] == [*((n, "Rome") for n in range(1, 20)), (20, "Oslo")]

    shop.split()
    shop.put(change("u", customer(n, "Rome"), customer(n, "Bonn"), 100 + n) for n in range(1, 10))
    key = json.dumps({"id": 20})
    gone = {"before": None, "after": None, "op": "d", "ts_ms": SECOND, "source": {"lsn": 120}}
    shop.put([(key, as_json(gone)), (key, b"")])
    shop.drain()

    cities = {**dict.fromkeys(range(1, 10), "Bonn"), **dict.fromkeys(range(10, 20), "Rome")}
    assert {row["id"]: row["city"] for row in shop.refine()} == cities
    assert shop.letters() == Counter({("blank", None, b""): 1})
    assert {row["kinesis"]["partition"] for row in shop.rows()} > {0, 1}, "keys have moved"
    shop.assert_complete()
    assert shop.refined and isinstance(shop.refined.mode, Upsert)
    by_offset = replace(shop.refined.mode, sequence_by="kafka.offset")
    with pytest.raises(OrderUnknown):
        shop.refine(replace(shop.refined, table="silver/by_offset", mode=by_offset))


def of_dms(operation: str, row: Mapping[str, Any], at: int, *, table: str = "customers", before: Any = None) -> bytes:
    """A record of DMS, some microseconds after an hour; changes have the number of their transaction."""
    kind = "control" if "-" in operation else "data"
    metadata = {"timestamp": f"2026-01-01T10:00:00.{at:06}Z", "record-type": kind, "operation": operation}
    metadata |= {"partition-key-type": "schema-table", "schema-name": "public", "table-name": table}
    of_record = {"control": row} if kind == "control" else {"data": row}
    image = {"before-image": before} if before else {}
    of_change = {} if operation == "load" else {"transaction-id": 86961}
    return as_json({**image, **of_record, "metadata": {**metadata, **of_change}})


def test_records_of_dms_become_the_table_whatever_moves_their_keys(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: put the control record and the load of a table, and a record of another table; then changes, after
    a split of all shards, one of them twice, one older than what is there; an operation that nobody knows, a row
    without its key, and JSON that is not of DMS.
    """
    shop = Sender(spark, lake, server, "AWS DMS")
    control = of_dms("create-table", {"table-def": {"columns": {"id": {"type": "INT32", "nullable": False}}}}, 0)
    other = of_dms("load", {"id": 1, "price": 3}, 1, table="products")
    loads = [(f"public.customers.{n}", of_dms("load", customer(n, "Rome"), 10 + n)) for n in range(1, 6)]
    shop.put([("a-task", control), ("public.products.1", other), *loads])
    shop.drain()
    assert [(row["id"], row["city"]) for row in shop.refine()] == [(n, "Rome") for n in range(1, 6)]

    shop.split()
    update = of_dms("update", customer(1, "Oslo"), 100, before={"id": 1, "city": "Rome"})
    without_city = of_dms("update", {"id": 2, "name": "customer 2"}, 101)
    delete = of_dms("delete", {"id": 3}, 102)
    insert = of_dms("insert", customer(6, "Lima"), 103)
    older = of_dms("update", customer(4, "never"), 5)
    bad = {
        of_dms("merge", customer(5, "no"), 104): ("expectation_not_met", "expectations.operation_is_known"),
        of_dms("update", {"name": "nobody"}, 105): ("expectation_not_met", "expectations.row_has_key"),
        as_json(customer(5, "no")): ("missing_field", "metadata"),
    }
    shop.put(("public.customers", data) for data in (update, update, without_city, delete, insert, older, *bad))
    shop.drain()

    cities = {1: "Oslo", 2: None, 4: "Rome", 5: "Rome", 6: "Lima"}
    assert {row["id"]: row["city"] for row in shop.refine()} == cities
    assert shop.letters() == Counter((*why, value) for value, why in bad.items())
    unknown = [entry.unknown.named for entry in entries(shop.stream.table_uri(lake), shop.stream.app_id)]
    assert [named for named in unknown if named] == [{"before-image": 2}]
    shop.assert_complete()
