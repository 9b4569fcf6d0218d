"""A JSON message: a record, or a dead letter with its reason; never a silent change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.message_format import Json, SchemaFile
from kdi_assets.messages.formats.errors import FormatMistake
from kdi_assets.messages.formats.json import JsonDecoder
from tests.formats.verdicts import Verdict, Verdicts, verdicts_of

pytestmark = pytest.mark.core

RECORD = (
    "id bigint, i int, sh smallint, by tinyint, amt decimal(10,2), s string, o struct<a: int, n: string>, d double, "
    "f float, ts timestamp, tn timestamp_ntz, dt date, arr array<int>, ss array<string>, tss array<timestamp>, "
    "b boolean, bin binary, m map<string,int>, mo map<string,decimal(5,2)>, req struct<x: int NOT NULL>"
)

ACCEPTED: dict[str, Mapping[str, Any]] = {
    '{"id":1,"s":"a"}': {"id": 1, "s": "a"},
    ' {"id":1}\n': {"id": 1},
    "{}": {},
    '{"id":null}': {},
    '{"ID":1}': {},
    '{"unknown":{"x":[1]}}': {},
    '{"id":1,"id":2}': {"id": 2},
    '{"s":true}': {"s": "true"},
    '{"s":7}': {"s": "7"},
    '{"s":"5.10"}': {"s": "5.10"},
    '{"s":"{\\"a\\": 5.10}"}': {"s": '{"a": 5.10}'},
    '{"s":"[1.50]"}': {"s": "[1.50]"},
    '{"s":"\\"quoted\\""}': {"s": '"quoted"'},
    '{"s":"NaN"}': {"s": "NaN"},
    '{"ss":["a","5.10","{}"]}': {"ss": ["a", "5.10", "{}"]},
    '{"amt":1.2300}': {"amt": 1.23},
    '{"amt":"1.5"}': {"amt": 1.50},
    '{"ts":"2024-02-28"}': {"ts": "2024-02-28T00:00:00.000Z"},
    '{"ts":"2024-02-28 10:00"}': {"ts": "2024-02-28T10:00:00.000Z"},
    '{"ts":"2024-02-28T10:00:00+02:00"}': {"ts": "2024-02-28T08:00:00.000Z"},
    '{"ts":"2024-01-02T03:04:05.123456000Z"}': {"ts": "2024-01-02T03:04:05.123Z"},
    '{"tn":"2024-02-28T10:00:00"}': {"tn": "2024-02-28T10:00:00.000"},
    '{"dt":"2024-02-29"}': {"dt": "2024-02-29"},
    '{"tss":["2024-01-01"]}': {"tss": ["2024-01-01T00:00:00.000Z"]},
    '{"mo":{"a":1.5}}': {"mo": {"a": 1.50}},
    '{"req":{"x":1}}': {"req": {"x": 1}},
    '{"d":1.5e300,"f":1.5}': {"d": 1.5e300, "f": 1.5},
    '{"d":9007199254740992,"f":16777216}': {"d": 9007199254740992.0, "f": 16777216.0},
    '{"d":1267650600228229401496703205376}': {"d": 2.0**100},
    '{"d":4.9e-324,"f":0e-999}': {"d": 4.9e-324, "f": 0.0},
    '{"amt":0e2147483647}': {"amt": 0.00},
    '{"ts":"9999-12-31T23:59:59.999+00:00"}': {"ts": "9999-12-31T23:59:59.999Z"},
    '{"unknown":' + "[" * 499 + "]" * 499 + "}": {},
}

CONDEMNED: dict[str | bytes, tuple[str, str | None]] = {
    "": ("blank", None),
    " \t\n": ("blank", None),
    "no json": ("malformed_json", None),
    '{"id":1': ("malformed_json", None),
    '{"id":1,}': ("malformed_json", None),
    "{'id':1}": ("malformed_json", None),
    '{"id":01}': ("malformed_json", None),
    '{"unknown":' + "[" * 500 + "]" * 500 + "}": ("malformed_json", None),
    '{"d":NaN}': ("malformed_json", None),
    '{"s":"a\tb"}': ("malformed_json", None),
    '\ufeff{"id":1}': ("malformed_json", None),
    "null": ("not_an_object", None),
    "12": ("not_an_object", None),
    '"text"': ("not_an_object", None),
    '[{"id":1}]': ("not_an_object", None),
    '{"id":1} x': ("trailing_text", None),
    '{"id":1} // comment': ("trailing_text", None),
    '{"id":1}{"id":2}': ("trailing_text", None),
    '{"id":1},{"id":2}': ("trailing_text", None),
    '{"id":1},"x":2': ("trailing_text", None),
    '{"id":1}}': ("trailing_text", None),
    '{"id":1}]': ("trailing_text", None),
    '{"id":1}],"x":[1': ("trailing_text", None),
    b'{"s":"\xff"}': ("invalid_utf8", None),
    b'{"unknown":"\xc3("}': ("invalid_utf8", None),
    '{"id":"12"}': ("wrong_type", "id"),
    '{"id":true}': ("wrong_type", "id"),
    '{"id":1.0}': ("wrong_type", "id"),
    '{"id":1e3}': ("wrong_type", "id"),
    '{"id":9223372036854775808}': ("out_of_range", "id"),
    '{"i":2147483648}': ("out_of_range", "i"),
    '{"sh":40000}': ("out_of_range", "sh"),
    '{"by":-129}': ("out_of_range", "by"),
    '{"amt":1.239}': ("too_precise", "amt"),
    '{"amt":123456789.5}': ("out_of_range", "amt"),
    '{"amt":100e2147483647}': ("out_of_range", "amt"),
    '{"amt":"-100e2147483647"}': ("out_of_range", "amt"),
    '{"amt":1e2147483648}': ("out_of_range", "amt"),
    '{"mo":{"a":1.555}}': ("too_precise", "mo[]"),
    '{"d":1e400}': ("out_of_range", "d"),
    '{"d":9007199254740993}': ("out_of_range", "d"),
    '{"d":-12345678901234567890}': ("out_of_range", "d"),
    '{"d":1e-400}': ("out_of_range", "d"),
    '{"d":-0.00000001e-400}': ("out_of_range", "d"),
    '{"f":16777217}': ("out_of_range", "f"),
    '{"f":1e-60}': ("out_of_range", "f"),
    '{"d":"NaN"}': ("wrong_type", "d"),
    '{"d":"1.5"}': ("wrong_type", "d"),
    '{"f":3.5e38}': ("out_of_range", "f"),
    '{"s":5.10}': ("wrong_type", "s"),
    '{"s":1e400}': ("wrong_type", "s"),
    '{"s":-1e400}': ("wrong_type", "s"),
    '{"s":{"a": 5.10, "b":1}}': ("wrong_type", "s"),
    '{"s":[1]}': ("wrong_type", "s"),
    '{"ss":["a",5.10]}': ("wrong_type", "ss[]"),
    '{"o":5}': ("wrong_type", "o.a"),
    '{"o":{"a":"x"}}': ("wrong_type", "o.a"),
    '{"arr":[1,"x"]}': ("wrong_type", "arr"),
    '{"m":{"k":"x"}}': ("wrong_type", "m"),
    '{"b":"true"}': ("wrong_type", "b"),
    '{"bin":"@@"}': ("wrong_type", "bin"),
    '{"ts":1700000000000}': ("wrong_type", "ts"),
    '{"ts":"yesterday"}': ("wrong_type", "ts"),
    '{"ts":"2024-02-30"}': ("out_of_range", "ts"),
    '{"ts":"2026-03-01T00:30Z"}': ("out_of_range", "ts"),
    '{"ts":"9999-12-31T23:59:59-05:00"}': ("out_of_range", "ts"),
    '{"ts":"0001-01-01T00:00:00+05"}': ("out_of_range", "ts"),
    '{"tss":["0001-01-01T00:00:00+05:00"]}': ("out_of_range", "tss[]"),
    '{"ts":"2024-01-02T03:04:05.1234567Z"}': ("too_precise", "ts"),
    '{"tss":["x"]}': ("wrong_type", "tss[]"),
    '{"dt":20240101}': ("wrong_type", "dt"),
    '{"dt":"2024-02-31"}': ("out_of_range", "dt"),
    '{"req":{}}': ("missing_field", "req.x"),
    '{"req":{"x":null}}': ("missing_field", "req.x"),
    '{"req":{"x":"seven"}}': ("wrong_type", "req.x"),
}


@pytest.fixture(scope="module")
def verdicts(spark: SparkSession) -> Verdicts:
    return verdicts_of(spark, Json(), [*ACCEPTED, *CONDEMNED], ddl=RECORD)


@pytest.mark.parametrize("message", ACCEPTED)
def test_becomes_a_record_that_says_the_same(verdicts: Verdicts, message: str) -> None:
    verdict = verdicts[message]

    assert verdict.decoded
    assert json.loads(verdict.record or "") == ACCEPTED[message]


@pytest.mark.scenario("poison message")
@pytest.mark.scenario("empty payload, two documents in one")
@pytest.mark.parametrize("message", CONDEMNED)
def test_becomes_a_dead_letter_with_its_reason(verdicts: Verdicts, message: str | bytes) -> None:
    """Procedure: decode messages that are empty, several, no JSON, or not as the schema says."""
    verdict = verdicts[message]

    assert not verdict.decoded
    assert verdict.record is None
    assert (verdict.reason, verdict.field) == CONDEMNED[message]


def test_a_map_with_keys_that_are_no_strings_is_refused(spark: SparkSession) -> None:
    with pytest.raises(FormatMistake) as refused:
        JsonDecoder().record_type("id int, deep array<struct<m: map<int, string>>>")

    assert refused.value.message == "deep[].m has keys that are not strings, as JSON's are"


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
def test_what_violates_its_schema_is_a_dead_letter_and_what_is_no_json_has_its_own_reason(spark: SparkSession) -> None:
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
