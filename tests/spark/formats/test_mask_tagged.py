"""Masks by tag: every column with the tag is masked, wherever the tag comes from, and dead letters hide it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.message_format import Avro, Json, SchemaFile
from kdi_assets.documents.model.message_rules import Explode, FieldUse, Mask
from kdi_assets.documents.model.stream import Stream
from kdi_assets.streams.rules.errors import MaskSecretMissing, ShapeMistake
from kdi_assets.streams.rules.shape import analyse
from tests.formats.avro_bytes import datum
from tests.judged import judged, stream_of
from tests.spark.formats.test_masks import HASH, LAST_FOUR, OUTSIDE, SECRET, hashed, told_of

TAGS = "confluent:tags"
NULL, DROP = Mask("null"), Mask("drop")
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"mail": {"type": "string", TAGS: ["PII"]}, "age": {"type": "integer"}},
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "at": {"type": "string", "format": "date"},
        "user": PERSON,
        "friends": {"type": "array", "items": PERSON},
        "by_name": {"type": "object", "additionalProperties": PERSON},
        "card": {"type": "string", TAGS: ["PII", "PCI"]},
    },
}
CLEAR = {
    "id": 1,
    "at": "2026-03-01",
    "user": {"mail": "ann@example.com", "age": 7},
    "friends": [{"mail": "bob@example.com", "age": 8}],
    "by_name": {"eve": {"mail": "eve@example.com"}},
    "card": "4111111111111234",
}
ORDERS = stream_of(
    "", date_expression="at", format=Json(SchemaFile("o", json.dumps(SCHEMA))), mask_tagged={"pii": NULL}
)
PLAIN = stream_of(
    "user struct<mail: string, age: bigint>, card string, at date",
    date_expression="at",
    tags={"user.MAIL": ("pii",), "card": ("pci",)},
    mask_tagged={"pii": HASH, "pci": LAST_FOUR},
)


@pytest.fixture(autouse=True)
def _secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HASH.secret, SECRET)


def message(**fields: Any) -> str:
    return json.dumps({**CLEAR, **fields})


def hides_everything(found: Any) -> bool:
    return not any(clear in told_of(found) for clear in ("ann@", "bob@", "eve@", "4111"))


@pytest.mark.core
def test_every_tagged_column_is_masked_and_what_holds_tagged_fields_in_elements_as_a_whole(spark: SparkSession) -> None:
    outside = message(at=OUTSIDE)

    found = judged(spark, ORDERS, [message(), outside])

    [row] = found.rows
    assert (row["id"], row["user"], row["card"]) == (1, {"mail": None, "age": 7}, None)
    assert (row["friends"], row["by_name"]) == (None, None), "nothing is masked inside of elements"
    [letter] = found.letters
    assert (letter["value"], letter["key"], letter["headers"]) == (None, None, None)
    assert hides_everything(found)


def test_tags_of_a_document_mask_its_columns_and_its_dead_letters_stay_readable(spark: SparkSession) -> None:
    found = judged(spark, PLAIN, [message(), message(at=OUTSIDE, more=[1])])

    [row], [letter] = found.rows, found.letters
    assert (row["user"], row["card"]) == ({"mail": hashed("ann@example.com"), "age": 7}, "************1234")
    kept = json.loads(letter["value"])
    assert (kept["user"]["mail"], kept["card"], kept["more"]) == (hashed("ann@example.com"), "************1234", [1])


def test_without_a_tagged_column_dead_letters_keep_everything_if_only_the_document_can_tag(spark: SparkSession) -> None:
    outside = message(at=OUTSIDE)

    found = judged(spark, replace(PLAIN, tags={}), [outside])

    assert found.letters[0]["value"] == outside.encode()


def test_a_secret_that_no_column_needs_yet_is_demanded_at_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(HASH.secret)

    with pytest.raises(MaskSecretMissing, match="columns tagged pii"):
        judged(spark, replace(PLAIN, tags={}, mask_tagged={"pii": HASH}), [message()])


def test_a_mask_of_the_column_itself_comes_before_that_of_its_tag(spark: SparkSession) -> None:
    found = judged(spark, replace(ORDERS, mask={"card": LAST_FOUR, "user": DROP}), [message()])

    [row] = found.rows
    assert (row["card"], "user" in row, row["friends"]) == ("************1234", False, None)


def test_dropped_columns_leave_with_their_struct_and_fields_that_are_no_columns_need_no_mask(
    spark: SparkSession,
) -> None:
    only_mail = json.loads(json.dumps(SCHEMA))
    del only_mail["properties"]["user"]["properties"]["age"]
    format_ = Json(SchemaFile("o", json.dumps(only_mail)))
    stream = replace(ORDERS, format=format_, mask_tagged={"pii": DROP}, fields={"card": FieldUse("drop")})

    found = judged(spark, stream, [message()])

    assert found.rows[0].keys() == {"id", "at", "kafka", "date"}


def test_a_tagged_field_that_is_kept_as_text_because_it_has_no_type_is_masked(spark: SparkSession) -> None:
    schema = {**SCHEMA, "properties": {**SCHEMA["properties"], "odd": {"type": ["string", "object"], TAGS: ["PII"]}}}
    stream = replace(ORDERS, format=Json(SchemaFile("o", json.dumps(schema))), fields={"odd": FieldUse("text")})

    [row] = judged(spark, stream, [message(odd={"mail": "ann@example.com"})]).rows

    assert row["odd"] is None


LIST_OF = {"type": "array", "items": PERSON}
TREE = {
    "type": "object",
    "properties": {"mail": PERSON["properties"]["mail"], "next": {"$ref": "#/properties/user"}, "n": {}},
}


@pytest.mark.core
@pytest.mark.parametrize(
    ("described", "value"),
    [
        (PERSON, {"mail": "ann@example.com"}),
        (LIST_OF, [{"mail": "ann@example.com"}]),
        ({"type": "object", "additionalProperties": LIST_OF}, {"a": [{"mail": "ann@example.com"}]}),
        ({"oneOf": [PERSON, {"type": "string"}]}, {"mail": "ann@example.com"}),
        ({"type": "object", "properties": {"odd": {"oneOf": [LIST_OF, {"type": "string"}]}}}, {"odd": "ann@"}),
        ({"type": "array", "prefixItems": [{"type": "integer"}, PERSON]}, [1, {"mail": "ann@example.com"}]),
        (TREE, {"next": {"mail": "ann@example.com"}}),
    ],
)
def test_a_field_that_is_kept_as_text_is_masked_by_the_tags_of_all_fields_inside(
    spark: SparkSession, described: Any, value: Any
) -> None:
    properties = {"id": SCHEMA["properties"]["id"], "at": SCHEMA["properties"]["at"], "user": described}
    format_ = Json(SchemaFile("o", json.dumps({"type": "object", "properties": properties})))
    stream = replace(ORDERS, format=format_, fields={"user": FieldUse("text")})

    found = judged(spark, stream, [json.dumps({"id": 1, "at": "2026-03-01", "user": value})])

    assert (found.rows[0]["id"], found.rows[0]["user"]) == (1, None)
    assert hides_everything(found)


def test_text_inside_a_struct_is_masked_by_itself(spark: SparkSession) -> None:
    user = {"type": "object", "properties": {"who": PERSON, "n": {"type": "integer"}}}
    format_ = Json(SchemaFile("o", json.dumps({**SCHEMA, "properties": {**SCHEMA["properties"], "user": user}})))
    stream = replace(ORDERS, format=format_, fields={"user.who": FieldUse("text")})

    [row] = judged(spark, stream, [message(user={"who": {"mail": "ann@example.com"}, "n": 5})]).rows

    assert row["user"] == {"who": None, "n": 5}


def test_elements_that_become_rows_are_masked_by_the_tags_of_their_fields(spark: SparkSession) -> None:
    stream = replace(ORDERS, explode=Explode("friend", "friends"))
    whole = json.loads(json.dumps(SCHEMA))
    whole["properties"]["friends"][TAGS] = ["PII"]
    as_whole = replace(stream, format=Json(SchemaFile("o", json.dumps(whole))))

    found, masked = judged(spark, stream, [message()]), judged(spark, as_whole, [message()])

    assert found.rows[0]["friend"] == {"mail": None, "age": 8}
    assert masked.rows[0]["friend"] is None
    assert hides_everything(found) and hides_everything(masked)


def test_what_replaces_a_tagged_field_is_masked_and_other_computed_columns_are_not(spark: SparkSession) -> None:
    stream = replace(ORDERS, columns={"card": "right(card, 6)", "host": "split_part(user.mail, '@', 2)"})

    [row] = judged(spark, stream, [message()]).rows

    assert (row["card"], row["host"]) == (None, "example.com")


def test_avro_is_masked_at_every_depth_also_in_unions(spark: SparkSession) -> None:
    one = {"type": "record", "name": "One", "fields": [{"name": "mail", "type": "string", TAGS: ["PII"]}]}
    other = {"type": "record", "name": "Other", "fields": [{"name": "n", "type": "int"}]}
    fields = [{"name": "who", "type": [one, other]}, {"name": "all", "type": {"type": "array", "items": "One"}}]
    schema = {"type": "record", "name": "Order", "fields": fields}
    stream = stream_of("", format=Avro(SchemaFile("o", json.dumps(schema))), mask_tagged={"pii": NULL})
    ann = {"mail": "ann@example.com"}

    found = judged(spark, stream, [datum([one, other], ann) + datum({"type": "array", "items": one}, [ann])])

    assert found.rows[0]["who"]["member0"] == {"mail": None}
    assert found.rows[0]["all"] is None
    assert hides_everything(found)


TWO_MASKS = {"pii": NULL, "pci": LAST_FOUR}


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"mask_tagged": TWO_MASKS}, "mask_tagged", "card is tagged pci, pii, and their masks differ"),
        ({"rescued": "rescued"}, "rescued", "fields that this version of it does not have"),
        ({"record_ddl": "id bigint, at date"}, "schema", "this line replaces its record: remove it"),
        (
            {"dead_letter_payload": "mask"},
            "dead_letter_payload",
            "a tagged field that this version of the schema lacks",
        ),
        ({"columns": {"user": "struct(user.mail)"}}, "mask_tagged", "user is made by an expression"),
        ({"tags": {"user": ("pii",)}, "mask": {"user.age": NULL}}, "mask.user.age", "masked by its tag: mask user"),
        ({"tags": {"kafka": ("pii",)}}, "tags.kafka", "coordinates of a row are never masked"),
        ({"tags": {"nothing": ("pii",)}}, "tags.nothing", "no such column"),
    ],
)
def test_a_mask_by_tag_that_is_unclear_is_refused(
    spark: SparkSession, fields: dict[str, Any], field: str, said: str
) -> None:
    stream: Stream = replace(ORDERS, **fields)

    with pytest.raises(ShapeMistake, match=said) as refused:
        analyse(stream, spark)
    assert refused.value.field == field
