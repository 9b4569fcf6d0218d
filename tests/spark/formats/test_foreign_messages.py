"""Messages that their sender wrote in another form than the document says: dead letters that name it."""

from __future__ import annotations

import gzip
import json
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.connections.connections import Registry
from kdi_assets.documents.model.message_format import (
    Avro,
    Csv,
    Format,
    Json,
    JsonRegistry,
    Protobuf,
    RegistrySchemas,
    SchemaFile,
    Text,
)
from kdi_assets.messages.formats.registry import schemas
from kdi_assets.messages.formats.registry.schema import Schema, Version
from kdi_assets.messages.formats.registry.schemas import KnownSchemas
from tests.formats.avro_bytes import datum
from tests.formats.foreign import GLUE_FRAMED, VERSION, ZSTD
from tests.formats.framed import framed
from tests.formats.protobuf_messages import SHOP, descriptors
from tests.formats.verdicts import Verdict, verdicts_of

GZIP = gzip.compress(b'{"id": 1}')
FOREIGN = {
    GZIP: Verdict(False, "looks_like_gzip", None, None),
    ZSTD: Verdict(False, "looks_like_zstd", None, None),
    GLUE_FRAMED: Verdict(False, "glue_frame", VERSION, None),
}
PAIR = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}, {"name": "s", "type": "bytes"}]}
FORMATS: dict[str, Format] = {
    "json": Json(),
    "text": Text(),
    "csv": Csv(),
    "avro": Avro(SchemaFile("r.avsc", json.dumps(PAIR))),
    "protobuf": Protobuf("shop.desc", descriptors(SHOP), "shop.Order"),
}
DDL = {"json": "id int", "csv": "id int"}


@pytest.mark.core
@pytest.mark.scenario("poison message")
@pytest.mark.parametrize("name", FORMATS)
def test_a_message_that_is_compressed_or_framed_by_glue_is_named_so(spark: SparkSession, name: str) -> None:
    verdicts = verdicts_of(spark, FORMATS[name], list(FOREIGN), ddl=DDL.get(name, ""))

    assert {value: verdicts[value] for value in FOREIGN} == FOREIGN


def test_a_message_that_is_decoded_may_begin_as_a_foreign_one(spark: SparkSession) -> None:
    as_gzip = datum(PAIR, {"a": -16, "s": b"x" * 517})
    as_glue = datum(PAIR, {"a": -2, "s": b""})
    assert (as_gzip[:1], as_glue[:2]) == (b"\x1f", b"\x03\x00")
    bytes_18 = b"\x03\x00" + b"x" * 20

    assert {verdicts_of(spark, FORMATS["avro"], [as_gzip, as_glue])[v].decoded for v in (as_gzip, as_glue)} == {True}
    assert verdicts_of(spark, Text(), [bytes_18])[bytes_18].decoded


def test_of_a_compressed_message_what_it_holds_is_named(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Purpose: a message that decompresses is never called one that does not.
    Procedure: with ``compression: gzip``, compress messages that Glue framed, and one that was compressed before; with
    a registry, also one without its frame.
    """
    twice, glue = gzip.compress(GZIP), gzip.compress(GLUE_FRAMED)

    found = verdicts_of(spark, Json(), [twice, glue, ZSTD], ddl="id int", compression="gzip")
    assert [found[v][1:3] for v in (twice, glue, ZSTD)] == [
        ("looks_like_gzip", None),
        ("glue_frame", VERSION),
        ("not_gzip", None),
    ]

    schema = Schema(1, "JSON", '{"type": "object", "properties": {"id": {"type": "integer"}}}')
    known = KnownSchemas(cast(Any, None), Version("t-value", 1, 1), {1: schema})
    monkeypatch.setattr(schemas, "known_schemas", lambda wanted, **how: known)
    of_registry = JsonRegistry(RegistrySchemas(Registry("main", "http://nowhere:1"), "t-value"))
    good, bare = gzip.compress(framed(1, b'{"id": 1}')), gzip.compress(b'{"id": 1}')
    packed = verdicts_of(spark, of_registry, [good, bare, b"plain"], compression="gzip")
    assert [packed[v][:2] for v in (good, bare, b"plain")] == [
        (True, None),
        (False, "no_magic_byte"),
        (False, "not_gzip"),
    ]
    unpacked = verdicts_of(spark, of_registry, list(FOREIGN))
    assert {value: unpacked[value] for value in FOREIGN} == FOREIGN
