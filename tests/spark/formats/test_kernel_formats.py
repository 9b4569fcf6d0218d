"""Avro and Protobuf by the kernel, and by the libraries that read what the kernel does not: the same verdicts."""

from __future__ import annotations

import json
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.message_format import Avro, AvroSingleObject, Protobuf, SchemaFile
from kdi_assets.messages.formats.avro.decoder import AvroDecoder
from kdi_assets.messages.formats.decoder import DECODED, PATHS, PAYLOAD, RECORD, Decoder
from kdi_assets.messages.formats.field_uses import FieldUses
from kdi_assets.messages.formats.framing import with_frame
from kdi_assets.messages.formats.protobuf.decoder import ProtobufDecoder
from kdi_assets.messages.formats.protobuf.payloads import Payloads, Reading
from kdi_assets.messages.formats.rules import field_of, first_of, reason_of
from kdi_assets.runtime.spark_internals import kernel_call, kernel_object
from tests.formats.avro_bytes import datum, fingerprint, long
from tests.formats.damage import damaged
from tests.formats.protobuf_messages import LEGACY, SHOP, descriptors, message_class, random_message
from tests.formats.wire import of, varint

SEED = 7
MESSAGES = 1_500
Verdict = tuple[str | None, str | None, Any, Any]
"""Reason, field, the record's JSON, and the paths of unknown fields."""

WITHOUT_DOCUMENTS = "\n".join(
    line.replace("google.protobuf.Struct meta = 51;", "")
    .replace("google.protobuf.Value any_value = 52;", "")
    .replace("repeated google.protobuf.ListValue lists = 53;", "")
    for line in SHOP.splitlines()
    if "struct.proto" not in line
).replace("Kind kind = 4; }", "Kind kind = 4; google.protobuf.Duration took = 5; }")
LATER = of(1, 0, varint(315_576_000_001))
"""Too late for a time, too long for a duration."""
FIXED = [of(22, 2, of(5, 2, LATER)) + of(22, 2, of(2, 2, LATER))]
"""The first field of the record that is out of range is in the second element."""


@pytest.mark.core
@pytest.mark.scenario("poison message")
@pytest.mark.parametrize(
    ("text", "name"), [(WITHOUT_DOCUMENTS, "shop.Order"), (LEGACY, "legacy.Order")], ids=["proto3", "proto2"]
)
def test_the_kernel_judges_protobuf_as_protobufs_own_library(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, text: str, name: str
) -> None:
    """Procedure: messages as they are, several in one, damaged, cut off, and made of fields that no schema has."""
    chance = random.Random(SEED)
    messages = [*FIXED, *(_protobuf(message_class(text, name), chance) for _ in range(MESSAGES))]
    format_ = Protobuf("a.desc", descriptors(text), name)

    by_kernel = verdicts(spark, ProtobufDecoder.of_file(format_), messages)
    monkeypatch.setattr("kdi_assets.messages.formats.protobuf.decoder.kernel_description", lambda _: None)
    by_library = verdicts(spark, ProtobufDecoder.of_file(format_), messages)

    assert_same(by_kernel, by_library, rows=MESSAGES // 4, refused=MESSAGES // 5)
    assert sum(paths is not None for _, _, _, paths in by_kernel.values()) > MESSAGES // 10


NEWER = WITHOUT_DOCUMENTS.replace(
    "bool class = 900;", "bool class = 900; string added = 999; Place more = 60;"
).replace("optional string zip = 2;", "optional string zip = 2; int32 floor = 7;")
OTHER = """
syntax = "proto3";
package shop;
message Other { int32 a = 1; message Inner { int32 b = 1; } map<int32, int32> m = 2; }
message Order { string name = 14; int32 i32 = 3; bytes extra = 999; }
"""
WRITERS = {1: descriptors(WITHOUT_DOCUMENTS), 2: descriptors(OTHER), 3: descriptors(LEGACY), 4: descriptors(NEWER)}
INDEXES = [b"", b"\x00", b"\x02\x00", b"\x02\x02", b"\x04\x00\x00", b"\x02\x12", b"\x01", b"\x80\x00", b"\x82\x00\x02"]
INDEXES += [b"\xff\xff\xff\xff\x1f", b"\xca\x01" + bytes(101), b"\xc8\x01" + bytes(100)]


def test_the_kernel_judges_protobuf_of_a_registry_as_protobufs_own_library(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: messages of older and newer schemas, with right and wrong indexes, damaged and with unknown fields."""
    chance = random.Random(SEED)
    order = message_class(NEWER, "shop.Order")
    messages = [_framed(_protobuf(order, chance), chance) for _ in range(MESSAGES)]

    by_kernel = verdicts(spark, _of_registry(), messages)
    monkeypatch.setattr("kdi_assets.messages.formats.protobuf.decoder.kernel_description", lambda _: None)
    by_library = verdicts(spark, _of_registry(), messages)

    assert_same(by_kernel, by_library, rows=MESSAGES // 4, refused=MESSAGES // 4)
    assert sum(paths is not None for _, _, _, paths in by_kernel.values()) > MESSAGES // 10


def _of_registry() -> ProtobufDecoder:
    payloads = Payloads(descriptors(WITHOUT_DOCUMENTS), "shop.Order", WRITERS)
    return ProtobufDecoder("format.protobuf.registry", "orders-value", lambda: Reading(payloads))


def _framed(message: bytes, chance: random.Random) -> bytes:
    schema_id = chance.choice([1, 2, 3, 4, 4, 9])
    right = {1: b"\x02\x06", 2: b"\x02\x02", 4: b"\x02\x06"}.get(schema_id, b"\x00")
    return (
        b"\x00" + schema_id.to_bytes(4, "big") + (right if chance.random() < 0.8 else chance.choice(INDEXES)) + message
    )


def _protobuf(message: Any, chance: random.Random) -> bytes:
    share = chance.choice([0.02, 0.1, 0.5])
    value = bytes(random_message(message, chance, share=share).SerializeToString(deterministic=True))
    match chance.randrange(5):
        case 0:
            return value
        case 1:
            return value + bytes(random_message(message, chance, share=share).SerializeToString(deterministic=True))
        case 2:
            return _odd(chance) + value + _odd(chance)
        case 3:
            return b"".join(_odd(chance) for _ in range(chance.randrange(1, 4)))
    return damaged(value, chance)


def _odd(chance: random.Random) -> bytes:
    """A field that serializers do not write: unknown, of another encoding, longer than necessary, nested too deep."""
    number = chance.choice([chance.randrange(1, 10), chance.randrange(1, 60), 900, 999, 2**29 - 1])
    match chance.randrange(7):
        case 0:
            longer = [b"\x80\x00", b"\xff" * 9 + b"\x01", b"\xff" * 10, b"\x81" + b"\x80" * 8 + b"\x00"]
            return of(number, 0, chance.choice([varint(chance.randrange(2**64)), *longer]))
        case 1:
            return chance.choice([of(number, 1, chance.randbytes(8)), of(number, 5, chance.randbytes(4))])
        case 2:
            return of(number, 2, chance.choice([b"", chance.randbytes(9), _odd(chance) + _odd(chance), b"\xff"]))
        case 3:
            depth = chance.choice([1, 2, 99, 100, 101])
            return varint(number << 3 | 3) * depth + varint(number << 3 | 4) * depth
        case 4:
            tags = [b"\x02a", varint(number << 3 | 6), varint(number << 3 | 4), varint(2**32 + 8) + b"\x01"]
            lengths = [b"\x81\x80\x80\x00a", b"\x81\x80\x80\x80\x80\x00a", varint(2**31)]
            return chance.choice([*tags, *(varint(number << 3 | 2) + length for length in lengths)])
        case 5:
            key = chance.choice([b"", of(1, 0, varint(chance.randrange(4))), of(1, 2, b"k")])
            value = chance.choice([b"", of(2, 2, _odd(chance)), of(2, 0, varint(3)), _odd(chance)])
            return of(chance.choice([7, 28, 29, 30, 31, 32, 33]), 2, key + value)
    return of(chance.choice([5, 6, 21, 22, 34, 35, 36, 37, 38, 39, 41, 42, 54, 55]), 2, _odd(chance) + _odd(chance))


def _record(name: str, **types: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in types.items()]}


def _list(of_: Any) -> dict[str, Any]:
    return {"type": "array", "items": of_}


PLACE = _record("Place", city=["null", "string"], tags=_list("string"))
KIND = {"type": "enum", "name": "Kind", "symbols": ["RED", "GREEN"]}
TIMES = {
    n.replace("-", "_"): {"type": "long", "logicalType": n} for n in ("timestamp-millis", "local-timestamp-micros")
}
READER = _record(
    "R",
    id="long",
    s="string",
    raw=["null", "bytes"],
    ok=["boolean", "null"],
    places=_list(PLACE),
    home=["null", "Place"],
    kind=KIND,
    day={"type": "int", "logicalType": "date"},
    **TIMES,
)
WRITER = _record(
    "R",
    gone={"type": "map", "values": "string"},
    s="bytes",
    id="int",
    old_name=["null", "string"],
    home=_record("Place", tags=_list("string"), city="string"),
    kind={**KIND, "symbols": ["GREEN", "BLUE", "RED"]},
)
EVOLVED = _record("R", id=["null", "double"], s="string", home=["null", PLACE], kind={**KIND, "default": "RED"})
EVOLVED["fields"] += [
    {"name": "renamed", "aliases": ["old_name"], "type": ["null", "string"]},
    {"name": "added", "type": "string", "default": "none"},
]


def _file(schema: Any, path: str) -> SchemaFile:
    return SchemaFile(path, json.dumps(schema))


def _header(schema: Any) -> bytes:
    """Of a single object."""
    return b"\xc3\x01" + struct.pack("<Q", fingerprint(schema))


RAW = Avro(_file(READER, "a.avsc"))
SINGLE = AvroSingleObject(_file(EVOLVED, "b.avsc"), (_file(WRITER, "c.avsc"), _file(EVOLVED, "d.avsc")))


@pytest.mark.core
@pytest.mark.scenario("poison message")
@pytest.mark.parametrize(
    ("decoder", "writers"),
    [
        (lambda: AvroDecoder.of_file(RAW, FieldUses()), {b"": READER}),
        (lambda: AvroDecoder.of_single_objects(SINGLE, FieldUses()), {_header(s): s for s in (WRITER, EVOLVED)}),
    ],
    ids=["one schema", "several"],
)
def test_the_kernel_judges_avro_as_spark(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    decoder: Callable[[], AvroDecoder],
    writers: dict[bytes, Any],
) -> None:
    """Procedure: datums as they are, with texts that are no UTF-8, damaged, cut off, with extra bytes."""
    chance = random.Random(SEED)
    chosen = [chance.choice([*writers]) for _ in range(MESSAGES)]
    messages = [_datum(writers[header], header, chance) for header in chosen]

    by_kernel = verdicts(spark, decoder(), messages)
    monkeypatch.setattr("kdi_assets.messages.formats.avro.decoder.avro_in_kernel", lambda _: False)
    by_spark = verdicts(spark, decoder(), messages)

    assert_same(by_kernel, by_spark, rows=MESSAGES // 4, refused=MESSAGES // 5)


def test_schemas_of_avro_that_cannot_be_resolved_make_dead_letters(spark: SparkSession) -> None:
    """The writer lacks a field whose default is not one of its symbols."""
    kind = {"type": "enum", "name": "Kind", "symbols": ["A"]}
    fields: list[dict[str, Any]] = [{"name": "n", "type": "int"}, {"name": "k", "type": kind, "default": "NO"}]
    texts = [json.dumps({"type": "record", "name": "r", "fields": some}) for some in (fields[:1], fields)]
    class_ = "kdi.avro.AvroDecoder"
    decoder = kernel_object(spark, class_, *texts)
    document = "struct<record: struct<n: int, k: string>, reason: string, field: string>"

    call = kernel_call(spark, class_, "decode", document, "X'02'", decoder)

    assert [row[0] for row in spark.range(2).select(call["reason"]).collect()] == ["malformed_avro"] * 2


def _datum(schema: Any, header: bytes, chance: random.Random) -> bytes:
    value = _encoded(schema, chance, {"Place": PLACE})
    for text in (b"city", b"name"):
        if chance.random() < 0.1:
            value = value.replace(text, chance.choice([b"\xff\xfe\xfdx", b"a\xed\xa0\x80"]))
    return header + (value if chance.random() < 0.6 else damaged(value, chance))


def _encoded(type_: Any, chance: random.Random, known: dict[str, Any]) -> bytes:
    """A value of a schema."""
    if isinstance(type_, list):
        branch = chance.randrange(len(type_))
        return long(branch) + _encoded(type_[branch], chance, known)
    if isinstance(type_, str):
        return _encoded(known[type_], chance, known) if type_ in known else datum(type_, _PRIMITIVES[type_](chance))
    match type_["type"]:
        case "record":
            known[type_["name"]] = type_
            return b"".join(_encoded(field["type"], chance, known) for field in type_["fields"])
        case "array":
            return _block([_encoded(type_["items"], chance, known) for _ in range(chance.randrange(3))])
        case "map":
            keys = [datum("string", chance.choice(["a", "name", "ü"])) for _ in range(chance.randrange(4))]
            return _block([key + _encoded(type_["values"], chance, known) for key in keys])
        case "enum":
            return long(chance.randrange(len(type_["symbols"])))
    return _encoded(type_["type"], chance, known)


def _block(items: list[bytes]) -> bytes:
    return (long(len(items)) if items else b"") + b"".join(items) + long(0)


_PRIMITIVES: dict[str, Callable[[random.Random], Any]] = {
    "null": lambda _: None,
    "boolean": lambda chance: chance.random() < 0.5,
    "int": lambda chance: chance.choice([0, -1, 2**20, -(2**20)]),
    "long": lambda chance: chance.choice([0, -1, 2**62, -(2**63), chance.randrange(10**13)]),
    "double": lambda chance: chance.choice([0.0, -1.5, float("inf"), chance.random()]),
    "bytes": lambda chance: chance.choice([b"", b"name", chance.randbytes(3)]),
    "string": lambda chance: chance.choice(["", "city", "name", "Zürich 🚲", "x" * 70]),
}


def verdicts(spark: SparkSession, decoder: Decoder, messages: list[bytes]) -> dict[bytes, Verdict]:
    """By message; those of a registry have frames."""
    from pyspark.sql import functions as F

    record = decoder.record_type("")
    rules = decoder.rules(record)
    values = spark.createDataFrame([(bytearray(message),) for message in set(messages)], "value binary")
    values = values.withColumn(PAYLOAD, F.col("value"))
    if isinstance(decoder, ProtobufDecoder) and decoder.field == "format.protobuf.registry":
        values = with_frame(values)
    decoded = decoder.decode(values.repartition(2), record)
    if decoder.finds_unknown_fields:
        decoded = decoder.with_unknown_paths(decoded, record, where=DECODED)
    rule, undecoded = f"CASE WHEN NOT {DECODED} THEN {first_of(rules)} END", F.expr(f"NOT {DECODED}")
    found = decoded.withColumn("rule", F.expr(rule)).select(
        "value",
        F.when(undecoded, F.expr(reason_of("rule", rules))),
        F.when(undecoded, F.expr(field_of("rule", rules))),
        F.when(~undecoded, F.to_json(RECORD)),
        F.col(PATHS) if decoder.finds_unknown_fields else F.lit(None),
    )
    return {bytes(row[0]): (row[1], row[2], row[3] and json.loads(row[3]), row[4]) for row in found.collect()}


def assert_same(found: dict[bytes, Verdict], expected: dict[bytes, Verdict], *, rows: int, refused: int) -> None:
    """The same verdicts, of which so many are rows and dead letters; entries of a Protobuf map have no order."""
    different = {message.hex(): (found[message], expected[message]) for message in _differing(found, expected)}
    assert not different, f"seed {SEED}, first of {len(different)}: {next(iter(different.items()))}"
    reasons = Counter(reason for reason, _, _, _ in found.values())
    assert reasons[None] > rows, reasons
    assert sum(reasons.values()) - reasons[None] > refused, reasons


def _differing(found: dict[bytes, Verdict], expected: dict[bytes, Verdict]) -> Iterator[bytes]:
    return (message for message in expected if found[message] != expected[message])
