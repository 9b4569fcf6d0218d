"""The tags of a record's fields, by what a schema says; no field that holds tagged values is without the tag."""

from __future__ import annotations

import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from kdi_assets.documents.model.message_rules import FieldUse
from kdi_assets.messages.formats.avro.docs import with_avro_docs
from kdi_assets.messages.formats.comments import tagged_paths
from kdi_assets.messages.formats.field_uses import FieldUses, read_struct
from kdi_assets.messages.formats.json_schema.record import record_of
from kdi_assets.messages.formats.json_schema.schema import JsonSchema
from kdi_assets.messages.formats.protobuf.comments import with_protobuf_comments
from kdi_assets.messages.formats.protobuf.descriptors import Descriptors, schema_descriptors
from kdi_assets.messages.formats.registry.schema import Referenced, Schema

TAGS = "confluent:tags"
MAIL: dict[str, Any] = {"type": "string", TAGS: ["PII"]}
PERSON: dict[str, Any] = {"type": "object", "properties": {"mail": MAIL, "age": {"type": "integer"}}}
OTHER = Referenced(
    "other.json", json.dumps({"$defs": {"Person": PERSON, "Odd": {"oneOf": [PERSON, {"type": "null"}]}}})
)


def tags_of_json(schema: Any, *texts: str) -> dict[str, list[str]]:
    """Paths of columns to their tags, with the named fields kept as text."""
    uses = FieldUses({tuple(path.split(".")): FieldUse("text") for path in texts})
    record = read_struct(record_of(JsonSchema("s", json.dumps(schema), (OTHER,))), uses)
    return {path: sorted(tags) for path, tags in tagged_paths(record).items()}


@pytest.mark.parametrize(
    "described",
    [
        PERSON,
        {"type": "array", "items": PERSON},
        {"type": "object", "additionalProperties": PERSON},
        {"type": "object", "properties": {"who": {"type": "array", "items": PERSON}}},
        {"$ref": "other.json#/$defs/Person"},
        # no column can hold these as they are
        {"oneOf": [PERSON, {"type": "string"}]},
        {"type": "array", "prefixItems": [{"type": "integer"}, PERSON]},
        {"type": ["array", "integer"], "contains": PERSON},
        {"type": "object", "properties": {"who": {"oneOf": [{"$ref": "other.json#/$defs/Odd"}, {"type": "string"}]}}},
        {"type": "object", "properties": {"mail": MAIL, "boss": {"$ref": "#/properties/user"}}},
        {"$dynamicRef": "other.json#/$defs/Person"},
        {"if": {"type": "object"}, "then": PERSON},
    ],
)
def test_a_field_that_is_kept_as_text_has_the_tags_of_all_fields_inside(described: Any) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "user": described}}

    assert tags_of_json(schema, "user") == {"user": ["pii"]}


def test_a_map_has_the_tags_of_its_keys() -> None:
    by_mail = {"type": "object", "propertyNames": {TAGS: ["PII"]}, "additionalProperties": {"type": "integer"}}

    assert tags_of_json({"type": "object", "properties": {"visits": by_mail}}) == {"visits": ["pii"]}


def test_text_without_tagged_fields_inside_has_no_tags_but_its_own() -> None:
    plain = {"type": "object", "properties": {"age": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"a": plain, "b": {**plain, TAGS: "GDPR"}, "user": PERSON}}

    assert tags_of_json(schema, "a", "b") == {"b": ["gdpr"], "user.mail": ["pii"]}


def test_text_whose_schema_is_missing_is_refused_only_if_tags_are_masked() -> None:
    missing = {"$ref": "missing.json"}
    user = {"type": "object", "properties": {"who": missing, "mail": MAIL}}
    schema = {"type": "object", "properties": {"id": {"type": "integer"}, "user": user, "who": missing}}
    record = record_of(JsonSchema("s", json.dumps(schema)))
    texts: dict[tuple[str, ...], FieldUse] = {("user",): FieldUse("text"), ("who",): FieldUse("text")}
    plain, masking = FieldUses(texts), FieldUses(texts, needs_tags=True)

    assert tagged_paths(read_struct(record, plain)) == {"user": frozenset({"pii"})}
    assert read_struct(record, masking).names == ["id"]
    assert {path: "mask_tagged cannot know" in why for path, why in masking.problems.items()} == {
        "user": True,
        "who": True,
    }


PROTO = """
syntax = "proto3";
package shop;
import "confluent/meta.proto";
message Person {
  option (confluent.message_meta) = {tags: ["GDPR"]};
  string mail = 1 [(confluent.field_meta) = {tags: ["PII"]}];
}
message Order { int64 id = 1; Person user = 2; }
"""
TAGS_OF_PROTO = {"shop.Person": ["GDPR"], "shop.Person.mail": ["PII"], "shop.Order.user": ["GDPR"]}


def of_protobuf(proto: str) -> Descriptors:
    return Descriptors(schema_descriptors(Schema(1, "PROTOBUF", proto)))


def _tags_beside_known_options(proto: str) -> dict[str, list[str]]:
    """The tags where another library in the process has made Confluent's options known, as its own client does."""
    from google.protobuf.descriptor_pb2 import FieldOptions, FileDescriptorSet
    from google.protobuf.descriptor_pool import Default

    for file in FileDescriptorSet.FromString(schema_descriptors(Schema(1, "PROTOBUF", proto))).file:
        if file.name == "confluent/meta.proto":
            Default().AddSerializedFile(file.SerializeToString())
    assert Default().FindExtensionByNumber(FieldOptions.DESCRIPTOR, 1088).full_name == "confluent.field_meta"
    return of_protobuf(proto).tags


def test_tags_of_protobuf_are_read_whether_another_library_knows_the_options_or_not() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        beside = process.submit(_tags_beside_known_options, PROTO).result(timeout=60)

    assert of_protobuf(PROTO).tags == beside == TAGS_OF_PROTO


def test_tags_of_the_whole_record_are_those_of_each_field() -> None:
    fields = {"id": {"type": "integer"}, "user": PERSON}
    by_reference = {"$ref": "#/$defs/O", "$defs": {"O": {TAGS: ["GDPR"], "type": "object", "properties": fields}}}
    whole = {"id": ["gdpr"], "user": ["gdpr"], "user.mail": ["pii"]}

    assert tags_of_json({TAGS: ["GDPR"], "type": "object", "properties": fields}) == whole
    assert tags_of_json(by_reference) == whole
    others = {"type": "object", "properties": {"id": {"type": "integer"}}, "additionalProperties": MAIL}
    assert tags_of_json(others) == {}, "a tag of fields that are not columns"


def test_tags_of_a_whole_avro_record_are_those_of_each_field() -> None:
    inner = StructType([StructField("mail", StringType())])
    record = StructType([StructField("id", LongType()), StructField("user", inner)])
    person = {"type": "record", "name": "P", "fields": [{"name": "mail", "type": "string", TAGS: ["PII"]}]}
    fields = [{"name": "id", "type": "long"}, {"name": "user", "type": person}]
    schema = json.dumps({"type": "record", "name": "O", TAGS: ["GDPR"], "fields": fields})

    found = {path: sorted(tags) for path, tags in tagged_paths(with_avro_docs(record, schema)).items()}

    assert found == {"id": ["gdpr"], "user": ["gdpr"], "user.mail": ["pii"]}


def test_tags_of_a_whole_protobuf_message_are_those_of_each_field() -> None:
    descriptors = of_protobuf(PROTO)
    person = StructType([StructField("mail", StringType())])
    order = StructType([StructField("id", LongType()), StructField("user", person)])

    def tags(record: StructType, message: str) -> dict[str, list[str]]:
        of = with_protobuf_comments(record, descriptors.message(message), descriptors)
        return {path: sorted(tags) for path, tags in tagged_paths(of).items()}

    assert tags(person, "shop.Person") == {"mail": ["gdpr", "pii"]}
    assert tags(order, "shop.Order") == {"user": ["gdpr"], "user.mail": ["pii"]}
