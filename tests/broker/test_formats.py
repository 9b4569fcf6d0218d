"""Formats through a broker, a drain and two tables: what their messages hold arrives, and nothing else does.

Which message of a format has which verdict is shown by its suite in ``tests/spark``, and what a registry adds by
``test_avro_registry``, ``test_protobuf_registry`` and ``test_schema_registry``. Here is one of each way into a table.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kdi_assets.message_format import AvroContainer, Compression, Csv, Envelope, Format, Json, Protobuf, SchemaFile
from tests.avro_bytes import COMPRESS, container
from tests.conftest import DrivenFactory
from tests.kafka_log import Produced
from tests.oracle import Reading
from tests.protobuf_messages import descriptors, message_class

MESSAGES = 120
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

Columns = dict[str, Any]
SEVERAL = "several rows"


@dataclass(frozen=True)
class Case:
    """A format and its messages.

    Attributes:
        encode: The number of a message to its value and to the columns of its row, by their paths; of several rows, to
            ``SEVERAL`` and a list of them.
        bad: Values that can be no row, each with the reason.
        beside: A message to the columns of its row that do not come from its value.
    """

    format: Format
    encode: Callable[[int], tuple[bytes, Columns]]
    bad: Sequence[tuple[bytes, str]] = ()
    ddl: str = ""
    compression: Compression = "none"
    beside: Callable[[Produced], Columns] = lambda message: {}


def raw(n: int) -> tuple[bytes, Columns]:
    said = bytes([n % 256, 0, 255]) + b"%d" % n
    return said, {"value": said}


def key_and_headers(message: Produced) -> Columns:
    headers = [{"key": name, "value": value} for name, value in message.headers]
    return {"key": message.key, "headers": headers or None}


NESTED_DDL = (
    "id bigint, at timestamp, local timestamp_ntz, day date, price decimal(20,4), kind string, ratio double,"
    " ok boolean, place struct<city: string, spot: struct<lat: float>>, tags array<string>, counts map<string, int>,"
    " items array<struct<sku: string, at: timestamp>>"
)


def nested(n: int) -> Columns:
    """A record with all that a format may have to carry; every third has nulls where it can."""
    at = EPOCH + timedelta(seconds=n, microseconds=n)
    full: Columns = {
        "id": n,
        "at": at,
        "local": at.replace(tzinfo=None),
        "day": date(2026, 1, 1) + timedelta(days=n % 300),
        "price": Decimal(n) + Decimal("0.1234"),
        "kind": ("RED", "GREEN")[n % 2],
        "ratio": n / 4,
        "ok": n % 2 == 0,
        "place": {"city": f"Zürich {n}", "spot": {"lat": n / 8}},
        "tags": [f"t{i}" for i in range(n % 4)],
        "counts": [("a", n), ("b", -n)],
        "items": [{"sku": f"s{n}", "at": at}],
    }
    nulls = {"at", "local", "day", "price", "kind", "ratio", "ok", "place", "tags", "counts", "items"}
    return {name: None if n % 3 == 0 and name in nulls else value for name, value in full.items()}


def json_document(n: int) -> tuple[bytes, Columns]:
    row = nested(n)
    said = {**row, "counts": dict(row["counts"]) if row["counts"] else None, "left_out": [1, {}]}
    return json.dumps(said, default=_written).encode(), row


def _written(value: object) -> object:
    return value.isoformat() if isinstance(value, date) else float(value)  # type: ignore[arg-type]


def zstd(value: bytes) -> bytes:
    return bytes(pa.compress(value, codec="zstd", asbytes=True))


CSV_DDL = (
    "id bigint NOT NULL, at timestamp, local timestamp_ntz, day date, price decimal(20,4), kind string, ratio double,"
    " ok boolean"
)


CSV_COLUMNS = ("id", "at", "local", "day", "price", "kind", "ratio", "ok")


def csv_line(n: int) -> tuple[bytes, Columns]:
    row = {name: value for name, value in nested(n).items() if name in CSV_COLUMNS}
    row["kind"] = row["kind"] and f'{row["kind"]}; "{n}"'
    written = io.StringIO()
    csv.writer(written, delimiter=";", lineterminator="\n").writerow(["" if v is None else v for v in row.values()])
    return zstd(written.getvalue().encode()), row


AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "local", "type": ["null", {"type": "long", "logicalType": "local-timestamp-micros"}]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}]},
        {"name": "kind", "type": ["null", {"type": "enum", "name": "Kind", "symbols": ["RED", "GREEN"]}]},
        {"name": "ratio", "type": ["null", "double"]},
        {"name": "ok", "type": ["null", "boolean"]},
        {
            "name": "place",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Place",
                    "fields": [
                        {"name": "city", "type": "string"},
                        {
                            "name": "spot",
                            "type": {
                                "type": "record",
                                "name": "Spot",
                                "fields": [{"name": "lat", "type": "float"}],
                            },
                        },
                    ],
                },
            ],
        },
        {"name": "tags", "type": ["null", {"type": "array", "items": "string"}]},
        {"name": "counts", "type": ["null", {"type": "map", "values": "int"}]},
        {
            "name": "items",
            "type": [
                "null",
                {
                    "type": "array",
                    "items": {
                        "type": "record",
                        "name": "Item",
                        "fields": [
                            {"name": "sku", "type": "string"},
                            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
                        ],
                    },
                },
            ],
        },
    ],
}
AVRO_BEFORE: dict[str, Any] = {**AVRO, "fields": [f for f in AVRO["fields"] if f["name"] != "ratio"]}
AVRO_AFTER: dict[str, Any] = {
    **AVRO,
    "fields": [{**f, "default": None} if f["name"] == "ratio" else f for f in AVRO["fields"]],
}


def _said(row: Columns) -> Columns:
    return {**row, "counts": row["counts"] and dict(row["counts"])}


PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/duration.proto";
import "google/protobuf/timestamp.proto";
enum Kind { KIND_UNKNOWN = 0; RED = 1; GREEN = 2; }
message Spot { float lat = 1; }
message Place { string city = 1; Spot spot = 2; }
message Item { string sku = 1; google.protobuf.Timestamp at = 2; }
message Order {
  int64 id = 1; google.protobuf.Timestamp at = 2; optional Kind kind = 3; optional double ratio = 4;
  optional bool ok = 5; Place place = 6; repeated string tags = 7; map<string, int32> counts = 8;
  repeated Item items = 9; uint64 big = 10; oneof payment { string card = 11; int32 account = 12; }
  map<int32, string> names = 13; google.protobuf.Duration took = 14; bytes raw = 15;
}
"""


def protobuf_message(n: int) -> tuple[bytes, Columns]:
    row = nested(n)
    row = {name: row[name] for name in ("id", "at", "kind", "ratio", "ok", "place", "tags", "counts", "items")}
    row |= {name: row[name] or [] for name in ("tags", "counts", "items")}  # never null
    row |= {"big": Decimal(2**64 - 1 - n), "card": None, "account": n, "raw": b"%d" % n}
    row |= {"names": [(n, "n")], "took": Decimal(n) / 8}
    said = {name: value for name, value in row.items() if value is not None}
    said |= {"counts": dict(row["counts"]), "names": dict(row["names"]), "big": int(row["big"])}
    said |= {"took": timedelta(seconds=n / 8)}
    return message_class(PROTO, "shop.Order")(**said).SerializeToString(), row


def avro_container(n: int) -> tuple[bytes, Columns]:
    """Some by the schema that had no ratio yet, of every codec, with up to three records in up to two blocks."""
    later, numbers = n % 20 != 0, [3 * n + i for i in range(1 + n % 3)]
    records = [{**nested(i), **({} if later else {"ratio": None})} for i in numbers]
    said, codec = [_said(r) for r in records], list(COMPRESS)[n % len(COMPRESS)]
    value = container(AVRO_AFTER if later else AVRO_BEFORE, said[:1], said[1:], codec=codec)
    return value, {SEVERAL: records}


CASES = {
    "json": Case(
        Json(),
        json_document,
        ddl=NESTED_DDL,
        bad=[(b'{"id": 1} x', "trailing_text"), (b"\xff", "invalid_utf8"), (b'{"id": "1"}', "wrong_type")],
    ),
    "envelope": Case(Envelope(), raw, beside=key_and_headers),
    "csv, zstd": Case(
        Csv(delimiter=";"),
        csv_line,
        ddl=CSV_DDL,
        compression="zstd",
        bad=[(b"1;;;;;;;", "not_zstd"), (zstd(b"1;;;;;;;")[:-1], "not_zstd"), (zstd(b"1"), "too_few_columns")],
    ),
    "avro, container": Case(
        AvroContainer(SchemaFile("2.avsc", json.dumps(AVRO_AFTER))),
        avro_container,
        bad=[
            (avro_container(1)[0][:-20], "malformed_container"),
            (container("string", ["1"]), "incompatible_schema"),
            (container(AVRO_AFTER), "empty_container"),
        ],
    ),
    "protobuf": Case(
        Protobuf("order.desc", descriptors(PROTO), "shop.Order"),
        protobuf_message,
        bad=[
            (protobuf_message(1)[0][:-1], "malformed_protobuf"),
            (protobuf_message(1)[0].replace("Zürich".encode(), b"Z\xfcrich!"), "invalid_utf8"),
            (b"\x12\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "out_of_range"),
        ],
    ),
}


@pytest.mark.scenario("poison message")
@pytest.mark.parametrize("name", CASES)
def test_what_a_format_carries_arrives_and_every_bad_message_is_a_dead_letter_with_its_reason(
    driven: DrivenFactory, name: str
) -> None:
    """Procedure: messages with all that the format can carry, some spoilt; drain; ask the oracle."""
    case, chance = CASES[name], random.Random(7)
    stream = driven(
        format=case.format,
        compression=case.compression,
        record_ddl=case.ddl,
        columns={},
        coordinates="kafka",
        date_expression="to_date(kafka.timestamp)",
    )
    rows, bad = dict(case.encode(n) for n in range(MESSAGES)), dict(case.bad)
    assert len(rows) == MESSAGES
    values: list[bytes | None] = [*rows, *bad, *bad, None]
    for n, value in enumerate(chance.sample(values, len(values))):
        headers = [("h", b"\xff"), ("h", None)] if n % 3 else []
        stream.publisher.produce(
            stream.stream.topic, value, partition=chance.randrange(2), key=f"k{n}" if n % 2 else None, headers=headers
        )
    produced = stream.publisher.flush()

    report = stream.drain()

    stream.assert_each_offset_once(produced, reading=_reading(rows, case))
    assert report.rows_added == sum(len(row.get(SEVERAL, [row])) for row in rows.values())
    assert {(x["value"], x["reason"]) for x in stream.found().dead_letters} == set(bad.items())


def _reading(rows: Mapping[bytes, Columns], case: Case) -> Reading:
    def each(message: Produced) -> list[Columns]:
        row = rows[message.value or b""]
        more = {**case.beside(message), "date": message.timestamp.date()}
        return [{**one, **more} for one in row.get(SEVERAL, [row])]

    return Reading(lambda message: each(message)[0], lambda message: message.value in rows, each)
