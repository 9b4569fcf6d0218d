"""The record of a JSON Schema, and where a document violates it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from kdi_assets.messages.formats.json_schema import violations
from kdi_assets.messages.formats.json_schema.record import record_of
from kdi_assets.messages.formats.json_schema.schema import (
    JsonSchema,
    SchemaRefused,
    property_names,
    validator,
    validator_parts,
)
from kdi_assets.messages.formats.registry.schema import Referenced
from kdi_assets.runtime.worker_code import send_by_value
from tests.deployment.bare_worker import called_in_bare_worker

DRAFT_4, DRAFT_7 = "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
NULL, TEXT, NUMBER, INTEGER = {"type": "null"}, {"type": "string"}, {"type": "number"}, {"type": "integer"}
CENTS = {"type": "object", "properties": {"cents": INTEGER}}

BY_JAVA = {
    "$schema": DRAFT_7,
    "title": "Order",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "id": {"type": "integer"},
        "price": {"oneOf": [{"type": "null", "title": "Not included"}, {"$ref": "#/definitions/Money"}]},
        "tags": {"oneOf": [{"type": "null"}, {"type": "array", "items": {"type": "string"}}]},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
    },
    "required": ["id"],
    "definitions": {"Money": {"type": "object", "properties": {"cents": {"type": "integer"}}}},
}
BY_PYTHON = {
    "$defs": {
        "Kind": {"enum": ["red", "green"], "title": "Kind", "type": "string"},
        "Place": {"properties": {"city": {"title": "City", "type": "string"}}, "title": "Place", "type": "object"},
    },
    "properties": {
        "at": {"anyOf": [{"format": "date-time", "type": "string"}, {"type": "null"}], "default": None},
        "day": {"format": "date", "title": "Day", "type": "string"},
        "kind": {"$ref": "#/$defs/Kind", "default": "red", "description": "Which one"},
        "place": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}]},
        "weights": {"additionalProperties": {"anyOf": [{"type": "number"}, {"type": "null"}]}, "type": "object"},
        "literal": {"const": "order", "type": "string"},
        "ok": {"type": "boolean"},
    },
    "title": "Order",
    "type": "object",
}


def of(text: object, **references: object) -> JsonSchema:
    named = tuple(Referenced(name, json.dumps(schema)) for name, schema in references.items())
    return JsonSchema("order", json.dumps(text), named)


def finding(schemas: Mapping[int, JsonSchema]) -> Callable[..., pa.Array]:
    """What workers run."""
    return violations.finding({n: (validator_parts(of), property_names(of)) for n, of in schemas.items()})


def column(schema: object, **more: object) -> str:
    """The type of the one column of a record with one property."""
    return record_of(of({"properties": {"x": schema}, **more})).fields[0].dataType.simpleString()


@pytest.mark.parametrize(
    ("schema", "record"),
    [
        (BY_JAVA, "id:bigint,price:struct<cents:bigint>,tags:array<string>,counts:map<string,bigint>"),
        (
            BY_PYTHON,
            "at:timestamp,day:date,kind:string,place:struct<city:string>,weights:map<string,double>,literal:string,"
            "ok:boolean",
        ),
    ],
)
def test_what_serializers_write_becomes_a_record_in_the_order_of_its_properties(schema: object, record: str) -> None:
    found = record_of(of(schema))

    assert found.simpleString() == f"struct<{record}>"
    assert all(field.nullable for field in found.fields)


@pytest.mark.parametrize(
    ("schema", "type_"),
    [
        ({"type": ["string", "null"]}, "string"),
        ({"type": ["null", "string"], "format": "date-time"}, "timestamp"),
        ({"anyOf": [INTEGER, NUMBER]}, "double"),
        ({"enum": ["a", None, "b"]}, "string"),
        ({"const": True}, "boolean"),
        ({"type": "string", "anyOf": [{"minLength": 3}, {"pattern": "x"}]}, "string"),
        ({"items": {"items": {"type": ["string", "null"]}}}, "array<array<string>>"),
        ({"type": "object", "patternProperties": {"^a": INTEGER, "^b": INTEGER}}, "map<string,bigint>"),
        ({"type": "object", "additionalProperties": CENTS}, "map<string,struct<cents:bigint>>"),
        ({"properties": {"a": TEXT}, "additionalProperties": INTEGER}, "struct<a:string>"),
        ({"allOf": [CENTS, {"required": ["cents"]}]}, "struct<cents:bigint>"),
        (
            {"type": "object", "allOf": [CENTS, {"properties": {"currency": TEXT}}]},
            "struct<cents:bigint,currency:string>",
        ),
        ({"oneOf": [CENTS, {"properties": {"points": NUMBER, "cents": NUMBER}}]}, "struct<cents:double,points:double>"),
    ],
)
def test_ways_to_say_a_type(schema: object, type_: str) -> None:
    assert column(schema) == type_


def test_a_description_is_the_columns_comment() -> None:
    (field,) = record_of(of({"properties": {"x": {"type": "string", "description": "What it is"}}})).fields

    assert field.metadata == {"comment": "What it is"}


def test_beside_a_reference_nothing_counts_until_draft_7_and_everything_after_it() -> None:
    schema = {"$ref": "#/definitions/cents", "properties": {"more": TEXT}}

    for draft in (DRAFT_4, DRAFT_7):
        assert column(schema, definitions={"cents": CENTS}, **{"$schema": draft}) == "struct<cents:bigint>"
    assert column(schema, definitions={"cents": CENTS}, **{"$schema": DRAFT_2020}) == "struct<cents:bigint,more:string>"


@pytest.mark.parametrize(
    ("id_", "other_id", "name"),
    [
        (None, None, "money.json"),
        ("order.json", "money.json", "money.json"),
        ("http://shop/order.json", "http://bank/money.json", "money.json"),
        ("http://shop/schemas/order.json", "money.json", "http://anywhere/money.json"),
    ],
)
def test_references_are_found_by_names_whatever_their_ids(id_: str | None, other_id: str | None, name: str) -> None:
    """Also the references of a reference."""
    order = {"properties": {"price": {"$ref": name}, "cur": {"$ref": f"{name}#/definitions/Cur"}}}
    money = {
        "properties": {"cur": {"$ref": "cur.json"}, "half": {"$ref": "#/definitions/Cur"}},
        "definitions": {"Cur": TEXT},
    }
    ids: list[dict[str, object]] = [{"$id": address} if address else {} for address in (id_, other_id)]
    schema = of({**order, **ids[0]}, **{"cur.json": {"enum": ["EUR"]}, name: {**money, **ids[1]}})

    assert record_of(schema).simpleString() == "struct<price:struct<cur:string,half:string>,cur:string>"
    assert validator(schema).is_valid({"price": {"cur": "EUR", "half": "x"}, "cur": "y"})
    assert not validator(schema).is_valid({"price": {"cur": "USD"}})


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"x": {}}, "#/properties/x has no type"),
        ({"x": NULL}, "#/properties/x can only be null"),
        ({"x": {"type": ["string", "integer"]}}, "#/properties/x has several types, and a column has one: bigint"),
        ({"x": {"oneOf": [TEXT, CENTS]}}, "has several types, and a column has one: string, struct<cents:bigint>"),
        ({"x": {"type": "object"}}, "#/properties/x is an object without properties and without a type of its values"),
        ({"x": {"type": "array"}}, "#/properties/x has no type for its items"),
        ({"x": {"type": "array", "items": [TEXT]}}, "#/properties/x has a separate type for each position"),
        ({"x": {"prefixItems": [TEXT]}}, "#/properties/x has a separate type for each position"),
        ({"x": {"enum": ["a", 1]}}, "#/properties/x has several types"),
        ({"x": {"items": {"properties": {"y": {}}}}}, "#/properties/x/items/properties/y has no type"),
        ({"x": {"type": "text"}}, '#/properties/x/type is not JSON Schema: "text" is not valid'),
        ({"x": {"$ref": "#"}}, "#/properties/x contains itself, and a table has a fixed depth (#)"),
        ({"x": {"$ref": "#/definitions/Node"}}, "#/definitions/Node/properties/next/anyOf/1 contains itself, and a"),
        ({"x": {"$ref": "#/definitions/Nod"}}, "#/properties/x refers to #/definitions/Nod, which does not exist"),
        ({"x": {"$ref": "other.json"}}, "refers to other.json, which is not among the schema's references"),
    ],
)
def test_what_has_no_type_in_a_table_is_said_with_its_place(schema: Mapping[str, Any], said: str) -> None:
    node = {"properties": {"next": {"anyOf": [NULL, {"$ref": "#/definitions/Node"}]}}}

    try:
        found = record_of(of({"properties": schema, "definitions": {"Node": node}, "$schema": DRAFT_7})).json()
    except SchemaRefused as refused:
        found = json.dumps(refused.message)

    assert json.dumps(said)[1:-1] in found


def test_a_draft_that_nobody_knows_is_said_and_not_fetched() -> None:
    with pytest.raises(SchemaRefused, match=r"\$schema does not name a known draft: http://127.0.0.1:9/draft"):
        record_of(of({"$schema": "http://127.0.0.1:9/draft", "properties": {"x": TEXT}}))


def test_a_schema_of_no_object_describes_no_record() -> None:
    with pytest.raises(SchemaRefused, match="describes no object with properties but map<string,bigint>"):
        record_of(of({"type": "object", "additionalProperties": INTEGER}))


@pytest.mark.parametrize(
    ("use", "schema"),
    [(record_of, {"properties": 3}), (record_of, {"allOf": [3]}), (record_of, 3), (validator, {"properties": 3})]
    + [(validator, {"$ref": "http://127.0.0.1:9/x.json"}), (validator, {"pattern": "("})],
)
def test_what_is_no_schema_is_refused_and_not_fetched(use: Callable[[JsonSchema], object], schema: object) -> None:
    with pytest.raises(SchemaRefused, match="not JSON Schema: "):
        use(of(schema))


ORDER = of(
    {
        "$schema": DRAFT_7,
        "type": "object",
        "required": ["id"],
        "additionalProperties": False,
        "properties": {
            "id": INTEGER,
            "lines": {"type": "array", "items": {"properties": {"price": {"$ref": "money.json"}}}},
            "by_user": {"additionalProperties": {"type": "object", "properties": {"price": {"$ref": "money.json"}}}},
            "kind": {"enum": ["RED", "GREEN"]},
            "code": {"type": "string", "pattern": "^(a+)+$", "maxLength": 60},
            "ratio": {"multipleOf": 0.01},
        },
    },
    **{"money.json": {**CENTS, "required": ["cents"]}},
)
NESTED = b'{"id": 1, "lines": ' + b"[" * 5000 + b"]" * 5000 + b"}"


@pytest.mark.parametrize(
    ("document", "where"),
    [
        (b'{"id": 1, "lines": [{"price": {"cents": 2}}], "kind": "RED", "code": "aa", "ratio": 19.99}', None),
        (b'{"id": 1.0}', None),
        (b"{}", "id"),
        (b'{"id": "1"}', "id"),
        (b'{"id": 1, "more": 2}', ""),
        (b'{"id": 1, "by_user": {"bob@example.com": {"price": {"cents": "2"}}}}', "by_user[].price.cents"),
        (b'{"id": 1, "kind": "BLUE"}', "kind"),
        (b'{"id": 1, "lines": [{"price": {"cents": 1}}, {"price": {"cents": "2"}}]}', "lines[].price.cents"),
        (b'{"id": 1, "code": "' + b"a" * 50 + b'b"}', "code"),
        (b"[1]", ""),
        (b"{", ""),
        (b"", ""),
        (b'{"id": 1, "\xff": 2}', ""),
        (NESTED, ""),
        (None, None),
    ],
)
def test_a_document_that_is_not_as_its_schema_says_is_told_by_the_field(document: bytes | None, where: str) -> None:
    """Never by a name that only the message has."""
    found = finding({7: ORDER, 8: of({})})(pa.array([document], pa.binary()), pa.array([7], pa.int64()))

    assert found.to_pylist() == [where]


def test_each_document_is_held_against_its_own_schema_and_by_none_against_none() -> None:
    documents = pa.array([b'{"a": 1}'] * 4, pa.binary())
    schemas = {1: of({"properties": {"a": INTEGER}}), 2: of({"properties": {"a": TEXT}})}

    found = finding(schemas)(documents, pa.array([1, 2, 3, None], pa.int64()))

    assert found.to_pylist() == [None, "a", None, None]


def test_what_goes_to_workers_runs_where_this_package_is_not() -> None:
    send_by_value(violations)
    documents = pa.array([b'{"id": 1}', b'{"id": "x"}', b"{"], pa.binary())
    schema = of({"properties": {"id": {"$ref": "number"}}}, number=INTEGER)

    found = called_in_bare_worker(finding({1: schema}), documents, pa.array([1, 1, 1], pa.int64()))

    assert found.to_pylist() == [None, "id", ""]
