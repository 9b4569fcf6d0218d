"""Formats through a broker, a drain and two tables: all of their values arrive, and nothing else.

The suites in ``tests/spark`` show the verdict of each message of a format; ``test_registries`` drains Protobuf and Avro
with a registry, ``test_new`` CSV and text. This module has one of each other way into a table.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from kdi_assets.documents.model.message_format import AvroContainer, Envelope, Format, Json, SchemaFile
from tests.conftest import DrivenFactory
from tests.driven import AS_DECODED
from tests.formats.avro_bytes import COMPRESS, container, record
from tests.kafka_log import Headers, Produced
from tests.oracle import Reading

MESSAGES = 120
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

Columns = dict[str, Any]
SEVERAL = "several rows"


@dataclass(frozen=True)
class Case:
    """A format and its messages.

    Attributes:
        encode: The number of a message to its value and to the columns of its row, by their paths; for several rows, to
            ``SEVERAL`` and a list of them.
        bad: Values that can be no row, each with the reason.
        beside: A message to the columns of its row that do not come from its value.
    """

    format: Format
    encode: Callable[[int], tuple[bytes, Columns]]
    bad: Sequence[tuple[bytes, str]] = ()
    ddl: str = ""
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
    """A record with every type that a format may have; every third has nulls where it can."""
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


MICROS = {"type": "long", "logicalType": "timestamp-micros"}
NULLABLE: dict[str, object] = {
    "at": MICROS,
    "local": {"type": "long", "logicalType": "local-timestamp-micros"},
    "day": {"type": "int", "logicalType": "date"},
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4},
    "kind": {"type": "enum", "name": "Kind", "symbols": ["RED", "GREEN"]},
    "ok": "boolean",
    "place": record("Place", city="string", spot=record("Spot", lat="float")),
    "tags": {"type": "array", "items": "string"},
    "counts": {"type": "map", "values": "int"},
    "items": {"type": "array", "items": record("Item", sku="string", at=MICROS)},
}
AVRO_BEFORE = record("Order", id="long", **{name: ["null", type_] for name, type_ in NULLABLE.items()})
LATER = {"name": "ratio", "type": ["null", "double"], "default": None}
AVRO_AFTER: dict[str, Any] = {**AVRO_BEFORE, "fields": [*AVRO_BEFORE["fields"], LATER]}


def _said(row: Columns) -> Columns:
    return {**row, "counts": row["counts"] and dict(row["counts"])}


def avro_container(n: int) -> tuple[bytes, Columns]:
    """Some with the schema that had no ratio yet, with every codec, with up to three records in up to two blocks."""
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
    "avro, container": Case(
        AvroContainer(SchemaFile("2.avsc", json.dumps(AVRO_AFTER))),
        avro_container,
        bad=[
            (avro_container(1)[0][:-20], "malformed_container"),
            (container("string", ["1"]), "incompatible_schema"),
            (container(AVRO_AFTER), "empty_container"),
        ],
    ),
}


@pytest.mark.scenario("poison message")
@pytest.mark.parametrize("name", CASES)
def test_what_a_format_carries_arrives_and_every_bad_message_is_a_dead_letter_with_its_reason(
    driven: DrivenFactory, name: str
) -> None:
    """Procedure: messages with every type of the format, some of them corrupt; drain; ask the oracle."""
    case, chance = CASES[name], random.Random(7)
    fields = {**AS_DECODED, "format": case.format, "record_ddl": case.ddl}
    stream = driven(**fields)
    rows, bad = dict(case.encode(n) for n in range(MESSAGES)), dict(case.bad)
    assert len(rows) == MESSAGES
    values: list[bytes | None] = [*rows, *bad, *bad, None]
    for n, value in enumerate(chance.sample(values, len(values))):
        headers: Headers = [("h", b"\xff"), ("h", None)] if n % 3 else ()
        key = f"k{n}" if n % 2 else None
        stream.publisher.produce(stream.stream.topic, value, partition=chance.randrange(2), key=key, headers=headers)
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
