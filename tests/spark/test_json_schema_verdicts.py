"""JSON by a schema: what becomes a row, and which reason a message has that becomes none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kdi_assets.message_format import Json, SchemaFile
from tests.verdicts import Verdict, verdicts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = SchemaFile(
    "order.schema.json",
    json.dumps(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "required": ["id"],
            "properties": {
                "id": {"type": "integer", "minimum": 1},
                "at": {"type": ["string", "null"], "format": "date-time"},
                "lines": {"type": "array", "items": {"$ref": "#/definitions/Line"}},
            },
            "definitions": {"Line": {"type": "object", "properties": {"sku": {"type": "string", "maxLength": 3}}}},
        }
    ),
)
VIOLATIONS: dict[str | bytes, str | None] = {
    "{}": "id",
    '{"id": 0}': "id",
    '{"id": 1, "lines": [{"sku": "abc"}, {"sku": "abcd"}]}': "lines[].sku",
    '{"id": 1, "lines": [7]}': "lines[]",
    '{"id": 1, "at": "yesterday"}': "at",
}
BROKEN: dict[str | bytes, tuple[str, str | None]] = {
    '{"id": 1} x': ("trailing_text", None),
    '{"id": 1.0}': ("wrong_type", "id"),
    '{"id": "1"}': ("wrong_type", "id"),
    "{": ("malformed_json", None),
    "[]": ("not_an_object", None),
    "": ("blank", None),
    b'{"id": 1, "x": "\xff"}': ("invalid_utf8", None),
}


@pytest.mark.core
def test_a_message_that_is_not_as_its_schema_says_is_a_dead_letter_and_what_is_no_json_has_its_own_reason(
    spark: SparkSession,
) -> None:
    good = '{"id": 1, "at": "2026-01-01T00:00:00Z", "lines": [{"sku": "abc", "more": 1}], "more": 2}'

    found = verdicts_of(spark, Json(ORDER, validate=True), [good, *VIOLATIONS, *BROKEN])

    row = '{"id":1,"at":"2026-01-01T00:00:00.000Z","lines":[{"sku":"abc"}]}'
    assert (found[good].decoded, found[good].record) == (True, row)
    for message in ("{}", '{"id": 0}', '{"id": 1, "lines": [{"sku": "abc"}, {"sku": "abcd"}]}'):
        assert found[message] == Verdict(False, "schema_violation", VIOLATIONS[message], None)
    assert {m: (found[m].reason, found[m].field) for m in BROKEN} == BROKEN
    assert {found[m].field for m in ('{"id": 1, "lines": [7]}', '{"id": 1, "at": "yesterday"}')} == {"lines", "at"}


def test_without_validation_only_the_record_counts_and_with_a_ddl_only_the_ddl(spark: SparkSession) -> None:
    unasked = verdicts_of(spark, Json(ORDER), [*VIOLATIONS])
    declared = verdicts_of(spark, Json(ORDER, validate=True), ['{"id": 1, "n": 2}', '{"id": 0, "n": 2}'], ddl="n int")

    assert [v.record for v in (unasked["{}"], unasked['{"id": 0}'])] == ["{}", '{"id":0}']
    assert unasked['{"id": 1, "at": "yesterday"}'][:3] == (False, "wrong_type", "at")
    assert declared['{"id": 1, "n": 2}'].record == '{"n":2}'
    assert declared['{"id": 0, "n": 2}'][:3] == (False, "schema_violation", "id")
