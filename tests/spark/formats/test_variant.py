"""Variant columns: any JSON value, unchanged, in a column that Spark reads by its parts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.message_format import Csv
from kdi_assets.documents.model.message_rules import Contract, Mask
from kdi_assets.streams.rules.errors import ShapeMistake
from kdi_assets.streams.rules.shape import analyse
from tests.judged import judged, stream_of

DDL = "id bigint, payload variant, parts array<variant>, meta struct<more: variant>"
EVENTS = stream_of(DDL)
VALUES: list[Any] = [
    {"b": [1, None, {"c": 'ä\n"x'}], "a": -1.5},
    [],
    {},
    "text",
    "",
    0,
    True,
    9223372036854775807,
    12345678901234567890,
    0.1,
    1e300,
    {"": {"a.b": 1}},
    {"\U0001f600": {"ä": 1}},
]


def text_of(value: Any) -> Any:
    """A variant as Python has it after JSON."""
    return None if value is None else json.loads(value.toJson())


@pytest.mark.core
def test_every_json_value_is_kept_as_it_is(spark: SparkSession) -> None:
    messages = [json.dumps({"id": n, "payload": value, "parts": [value, 1]}) for n, value in enumerate(VALUES)]
    messages += ['{"id": 100, "payload": null}', '{"id": 101}']

    found = judged(spark, EVENTS, messages)

    assert found.letters == []
    assert [text_of(row["payload"]) for row in found.rows] == [*VALUES, None, None]
    assert [text_of(row["parts"][0]) for row in found.rows[: len(VALUES)]] == VALUES


def test_a_name_that_is_repeated_has_its_last_value_as_everywhere(spark: SparkSession) -> None:
    [row] = judged(spark, EVENTS, ['{"payload": {"a": 1, "b": 2, "a": 3}}']).rows

    assert text_of(row["payload"]) == {"a": 3, "b": 2}


def test_numbers_of_38_digits_keep_all_of_them(spark: SparkSession) -> None:
    digits = ("12345678901234567890123456789012345678", "-0.12345678901234567890123456789012345678")
    stream = stream_of("payload variant", columns={"text": "CAST(payload AS STRING)"})

    found = judged(spark, stream, [f'{{"payload": {number}}}' for number in digits])

    assert tuple(row["text"] for row in found.rows) == digits


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("123456789012345678901234567890123456789", "out_of_range"),
        ("1e400", "out_of_range"),
        ("1e-400", "out_of_range"),
        ("[" + "7" * 5000 + "]", "out_of_range"),
        ("[0." + "7" * 5000 + "]", "out_of_range"),
        ('"\\ud800"', "invalid_utf8"),
        ('{"a": ["x", "\\udfff"]}', "invalid_utf8"),
    ],
)
def test_a_value_that_a_variant_would_change_is_a_dead_letter(spark: SparkSession, value: str, reason: str) -> None:
    found = judged(spark, EVENTS, [f'{{"payload": {value}}}', f'{{"meta": {{"more": {value}}}, "id": 1}}', '{"id": 2}'])

    assert [(letter["reason"], letter["field"]) for letter in found.letters] == [
        (reason, "payload"),
        (reason, "meta.more"),
    ]
    assert [row["id"] for row in found.rows] == [2]


@pytest.mark.parametrize("value", ['{"\\ud800": 1}', '[{"a": {"x\\udc00y": {"b": []}}}]'])
def test_half_a_character_in_a_name_makes_the_message_no_json(spark: SparkSession, value: str) -> None:
    """Jackson refuses such names wherever they are; a variant would change them."""
    found = judged(spark, EVENTS, [f'{{"payload": {value}}}', f'{{"id": 1, "undeclared": {value}}}', '{"id": 2}'])

    assert [(letter["reason"], letter["field"]) for letter in found.letters] == [("malformed_json", None)] * 2
    assert [row["id"] for row in found.rows] == [2]


def test_expressions_see_the_parts_of_a_variant_and_masks_hide_it(spark: SparkSession) -> None:
    stream = stream_of(
        f"{DDL}, secret variant",
        columns={"kind": "variant_get(payload, '$.kind', 'string')"},
        filter="try_variant_get(payload, '$.n', 'int') > 0",
        mask={"secret": Mask("keep_last", keep=2), "meta.more": Mask("null")},
    )
    kept = {"payload": {"kind": "a", "n": 1}, "secret": {"pin": 1234}, "meta": {"more": 1}}

    [row] = judged(spark, stream, [json.dumps(kept), '{"payload": {"n": 0}}', '{"payload": {"n": "x"}}']).rows

    assert (row["kind"], row["meta"], row["secret"]) == ("a", {"more": None}, "*" * 10 + "4}")


def test_what_does_not_fit_is_kept_as_a_variant_object_by_its_places(spark: SparkSession) -> None:
    fields = {"rescued": "extra variant", "contract": Contract(types="discard_value"), "mask": {"secret": Mask("drop")}}
    stream = stream_of(f"{DDL}, secret string", **fields)
    strange = {"id": "x", "new": {"a": [1]}, "meta": {"else": None, "other": 2.5}, "payload": 1, "secret": 5}

    found = judged(spark, stream, [json.dumps(strange), '{"id": 1}'])

    assert [text_of(row["extra"]) for row in found.rows] == [{"id": "x", "meta.other": 2.5, "new": {"a": [1]}}, None]
    assert analyse(stream, spark)["extra"].dataType.simpleString() == "variant"


def test_a_variant_in_another_format_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ShapeMistake, match="is variant; a column of CSV is text"):
        analyse(stream_of("id bigint, payload variant", format=Csv()), spark)
