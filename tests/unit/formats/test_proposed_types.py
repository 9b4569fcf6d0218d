"""The type of a field follows from all of its values: the type that holds most of them and changes none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from kdi_assets.tools.scaffold.document import ddl_lines, left_out
from kdi_assets.tools.scaffold.errors import NoRecord
from kdi_assets.tools.scaffold.field_stats import json_object, stats_of
from kdi_assets.tools.scaffold.infer_types import Struct, misfit, record_of

ZONED, LOCAL = '"2026-03-01T10:00:00Z"', '"2026-03-01 10:00:00.5"'


def record(*documents: str) -> Struct:
    return record_of(stats_of(json_object(text.encode()) for text in documents))


def field(*values: str) -> str:
    """The type of a field with these values, as DDL."""
    return ddl(record(*(f'{{"f": {value}}}' for value in values))).removeprefix("f ")


def ddl(declared: Struct) -> str:
    """The DDL on one line."""
    lines = (line.partition("  --")[0].strip() for line in ddl_lines(declared, messages=1))
    return " ".join(lines).replace("< ", "<").replace(" >", ">")


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        (["1", "-9223372036854775808"], "bigint"),
        (["1", "9223372036854775808"], "decimal(38,0)"),
        (["1", "2.5", "1e300"], "double"),
        (["9007199254740993", "0.5"], "decimal(38,1)"),  # a double would round the first
        (["12345678901234567.89"], "decimal(38,2)"),
        (["0.1000000000000000055511151231257827"], "double"),  # a double, written out
        (["true", "false", "null"], "boolean"),
        (['"a"', "1", "true"], "string"),
        (['"1.5"', '"2"'], "string"),
        (['"12"', "7"], "string"),  # a decimal would hold both, and lose their spelling
        (["1.5", "1.5", '"a"'], "double"),
        (["1.5", '"a"', '"b"'], "string"),
        ([ZONED, LOCAL], "timestamp"),
        ([ZONED, '"2026-03-01"'], "timestamp"),
        (['"2026-03-01"', "null"], "date"),
        ([ZONED, '"soon"'], "string"),
        (['"2026-02-30"'], "string"),
        (['"2026-03-01T10:00:00.123456789Z"'], "string"),
        (['"2026-03-01T10:00:00+0100"'], "string"),
        (['"0000-01-01"'], "string"),
        (["null"], "string"),
        (["[]", "null"], "array<string>"),
        (["[1, 2.5]", "[null]"], "array<double>"),
        (['[{"a": 1}]', '[{"b": ["x"]}]'], "array<struct<a: bigint, b: array<string>>>"),
        (['{"a": 1}', '{"b": "x"}', '{"a": 2.5}'], "struct<a: double, b: string>"),
        (["1", "1", "[1]"], "bigint"),
    ],
)
def test_a_field_has_the_type_that_takes_most_and_changes_none(values: list[str], type_: str) -> None:
    assert field(*values) == type_


def test_objects_whose_keys_are_data_or_no_names_are_left_out_and_say_what_takes_them() -> None:
    many = [f'{{"id": 1, "f": {{"user{n}": {{"seen": {n}}}}}, "l": [{{"user{n}": 1}}]}}' for n in range(101)]
    found = record(*many, '{"e": {}, "g": [{"a b": 1}]}')

    assert list(found.fields) == ["id"]
    keys = "its objects have 101 different keys: `map<string, …>` takes them"
    none = "its objects have no field that can be a column"
    assert dict(left_out(found)) == {"f": keys, "l": keys, "e": none, "g": none}


def test_names_that_no_column_can_have_are_left_out_and_named() -> None:
    text = {"id": 1, "ID": 2, "kafka": 3, "_kdi_x": 4, "a b": 5, "x": {"kafka": 6, "y;": 7, "ok": 8}, "": 9, "a\tb": 1}
    found = record(json.dumps({"id": 1}), json.dumps(text), json.dumps({"z": [{"a.b": 1, "c": 1}]}))

    assert ddl(found) == "id bigint, x struct<kafka: bigint, ok: bigint>, z array<struct<c: bigint>>"
    assert dict(left_out(found)) == {
        "ID": "its name differs from id only in case",
        "kafka": "its name is reserved",
        "_kdi_x": "its name is reserved",
        "a b": "its name has a character that no column name may have",
        '""': "its name cannot be printed",
        '"a\\tb"': "its name cannot be printed",
        "x.y;": "its name has a character that no column name may have",
        "z[].a.b": "its name has a character that no column name may have",
    }


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "blank"),
        (b" \r\n", "blank"),
        (b'{"a": "\xff"}', "invalid_utf8"),
        (b'{"a": 1', "malformed_json"),
        (b'{"a": NaN}', "malformed_json"),
        (b'{"a": 01}', "malformed_json"),
        (b"{'a': 1}", "malformed_json"),
        (b'{"a": "\n"}', "malformed_json"),
        (b'\xef\xbb\xbf{"a": 1}', "malformed_json"),
        (b"[" * 100_000, "malformed_json"),
        (b'{"a": 1} x', "trailing_text"),
        (b'{"a": 1}{"a": 1}', "trailing_text"),
        (b"[1]", "not_an_object"),
        (b"null", "not_an_object"),
    ],
)
def test_what_is_no_object_has_the_decoders_reason(value: bytes, reason: str) -> None:
    with pytest.raises(NoRecord) as refused:
        json_object(value)

    assert str(refused.value) == reason


DECLARED = (
    '{"n": 1, "d": 1.5, "s": "x", "b": true, "at": "2026-03-01T10:00:00Z", "o": {"p": {"q": 1}}, "a": [1], "t": ["x"]}'
)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"n": 1.0}, ("wrong_type", "n")),
        ({"n": 2**63}, ("out_of_range", "n")),
        ({"n": True}, ("wrong_type", "n")),
        ({"d": "1.5"}, ("wrong_type", "d")),
        ({"d": 2**53 + 1}, None),
        ({"s": 1}, None),
        ({"s": 1.5}, ("wrong_type", "s")),
        ({"s": {}}, ("wrong_type", "s")),
        ({"b": 0}, ("wrong_type", "b")),
        ({"at": "soon"}, ("wrong_type", "at")),
        ({"o": {"p": {"q": "1"}}}, ("wrong_type", "o")),
        ({"o": {"p": None}}, None),
        ({"a": 1}, ("wrong_type", "a")),
        ({"t": [1.5]}, ("wrong_type", "t")),
        ({"s": None, "n": None, "a": None, "new": 1}, None),
    ],
)
def test_what_does_not_fit_has_a_reason(changed: Mapping[str, Any], expected: tuple[str, str] | None) -> None:
    given = json.dumps({**json.loads(DECLARED), **changed})

    assert misfit(json_object(given.encode()), record(DECLARED)) == expected
