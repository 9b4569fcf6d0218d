"""An Avro datum: a record, or a dead letter with its reason; never a row of nulls."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.message_format import Avro, AvroContainer, AvroSingleObject, Format, SchemaFile
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.streams.rules.errors import ShapeMistake
from kdi_assets.streams.rules.shape import analyse
from tests.formats.avro_bytes import datum, long, single_object
from tests.formats.verdicts import Verdict, Verdicts, verdicts_of

pytestmark = pytest.mark.core

Schema = dict[str, Any]


def record(*fields: Schema, name: str = "R") -> Schema:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, type_: Any, **more: Any) -> Schema:
    return {"name": name, "type": type_, **more}


def as_file(schema: Any, path: str = "orders.avsc") -> SchemaFile:
    return SchemaFile(path, json.dumps(schema))


PLACE = record(field("city", ["null", "string"]), name="Place")
SCHEMA = record(
    field("id", "long"),
    field("s", "string"),
    field("raw", ["null", "bytes"]),
    field("tags", {"type": "array", "items": "string"}),
    field("counts", {"type": "map", "values": "int"}),
    field("place", ["null", PLACE]),
    field("kind", {"type": "enum", "name": "Kind", "symbols": ["RED", "GREEN"]}),
)
FULL: Schema = {
    "id": 1,
    "s": "über 🚲",
    "raw": b"\x00\xff",
    "tags": ["a", "b"],
    "counts": {"x": 1},
    "place": {"city": "Zürich"},
    "kind": "GREEN",
}
SPARE: Schema = {"id": -1, "s": "", "raw": None, "tags": [], "counts": {}, "place": None, "kind": "RED"}
GOOD = datum(SCHEMA, FULL)
BEFORE_KIND = datum(record(*SCHEMA["fields"][:-1]), FULL)

CONDEMNED: dict[bytes, str] = {
    b"": "blank",
    GOOD + b"\x00": "trailing_bytes",
    GOOD + GOOD: "trailing_bytes",
    GOOD + b"more than eight bytes": "trailing_bytes",
    **{GOOD[:-cut]: "malformed_avro" for cut in range(1, len(GOOD))},
    BEFORE_KIND + long(2): "malformed_avro",  # no such symbol
    datum("long", 1) + long(-1): "malformed_avro",  # a text of negative length
    datum("long", 1) + long(2**31 - 20): "malformed_avro",  # one of two gigabytes
    datum("long", 1) + long(2**62): "malformed_avro",
    datum("long", 1) + datum("string", "") + long(0) + long(2**31 - 20): "malformed_avro",  # so many tags
    datum("long", 1) + datum("string", "") + long(7): "malformed_avro",  # no such branch of the union
}


NO_TEXT = {
    GOOD.replace("über".encode(), b"\xff\xffber"): "s",
    GOOD.replace("Zürich".encode(), b"Z\xc3\xc3rich"): "place.city",
    GOOD.replace(b"\x02a\x02b", b"\x02a\x02\xff"): "tags[]",
    GOOD.replace(b"\x02x\x02", b"\x02\xff\x02"): "counts[]",
}


@pytest.fixture(scope="module")
def verdicts(spark: SparkSession) -> Verdicts:
    return verdicts_of(spark, Avro(as_file(SCHEMA)), [GOOD, datum(SCHEMA, SPARE), *CONDEMNED, *NO_TEXT])


def test_a_datum_becomes_a_record(verdicts: Verdicts) -> None:
    full = json.loads(verdicts[GOOD].record or "")
    spare = json.loads(verdicts[datum(SCHEMA, SPARE)].record or "")

    assert full == {**FULL, "raw": "AP8="}
    assert spare == {name: value for name, value in SPARE.items() if value is not None}


@pytest.mark.scenario("poison message")
@pytest.mark.scenario("empty payload, two documents in one")
def test_what_is_too_short_too_long_or_no_text_is_a_dead_letter(verdicts: Verdicts) -> None:
    """Procedure: decode a datum cut off after every byte, with extra bytes, with lengths that no memory holds."""
    wanted = {message: Verdict(False, reason, None, None) for message, reason in CONDEMNED.items()}
    wanted |= {message: Verdict(False, "invalid_utf8", field, None) for message, field in NO_TEXT.items()}

    assert {message: verdicts[message] for message in wanted} == wanted


def test_bytes_by_chance_end_no_job(spark: SparkSession) -> None:
    chance = random.Random(7)
    noise = [chance.randbytes(chance.randrange(1, 60)) for _ in range(4_000)]
    damaged = [
        bytes([*GOOD[:at], chance.randrange(256), *GOOD[at + 1 :]]) for at in range(len(GOOD)) for _ in range(20)
    ]

    verdicts = verdicts_of(spark, Avro(as_file(SCHEMA)), [*noise, *damaged])

    for message in noise:
        verdict = verdicts[message]
        assert verdict.decoded == (verdict.record is not None)
    assert sum(verdict.decoded for verdict in map(verdicts.__getitem__, noise)) < 10


OLD = record(field("id", "int"), field("gone", "string"))
NEW = record(field("id", "long"), field("added", "string", default="none"))

OF_OLD = single_object(OLD, {"id": 1, "gone": "x"})
OF_NEW = single_object(NEW, {"id": 2, "added": "y"})
SINGLE: dict[bytes, str] = {
    OF_OLD: '{"id":1,"added":"none"}',
    OF_NEW: '{"id":2,"added":"y"}',
    b"": "blank",
    b"\xc3\x01": "not_single_object",
    OF_NEW[:9]: "not_single_object",
    b"\xc3\x02" + OF_NEW[2:]: "not_single_object",
    OF_NEW[10:]: "not_single_object",
    single_object(SCHEMA, FULL): "unknown_schema",
    OF_NEW[:2] + bytes(8) + OF_NEW[10:]: "unknown_schema",
    OF_NEW[:10]: "malformed_avro",
    OF_NEW[:-1]: "malformed_avro",
    OF_OLD + b"\x00": "trailing_bytes",
}


def test_a_single_object_is_read_by_the_schema_that_it_names(spark: SparkSession) -> None:
    format_ = AvroSingleObject(as_file(NEW), (as_file(OLD, "1.avsc"), as_file(NEW, "2.avsc")))

    verdicts = verdicts_of(spark, format_, [*SINGLE])

    assert {message: verdicts[message].record or verdicts[message].reason for message in SINGLE} == SINGLE


@pytest.mark.parametrize(
    ("format_", "field_", "said"),
    [
        (Avro(as_file({"type": "rekord", "name": "R"})), "format.avro.schema_file", "orders.avsc: "),
        (Avro(as_file("string")), "format.avro.schema_file", "orders.avsc describes no record but string"),
        (AvroContainer(as_file("string")), "format.avro.schema_file", "orders.avsc describes no record"),
        (AvroContainer(as_file(record(field("kafka", "int")))), "fields.kafka", "would hide the struct"),
        (AvroContainer(as_file(record(field("id", "int"), field("ID", "int")))), "fields.ID", "differs from id in"),
        (Avro(as_file(record(field("next", ["null", "R"])))), "fields.next", "contains itself (R)"),
        (Avro(as_file(record(field("kafka", "int")))), "fields.kafka", "would hide the struct"),
        (
            AvroSingleObject(as_file(NEW), (as_file(record(field("id", "string")), "1.avsc"),)),
            "format.avro.schemas",
            "1.avsc does not become what orders.avsc describes: ",
        ),
    ],
)
def test_a_schema_that_makes_no_table_is_refused(spark: SparkSession, format_: Format, field_: str, said: str) -> None:
    stream = Stream("t", "t", "", "current_date()", Cluster("main", "nowhere:1"), format=format_)

    with pytest.raises(ShapeMistake) as refused:
        analyse(stream, spark)

    assert refused.value.field == field_
    assert said in refused.value.message
