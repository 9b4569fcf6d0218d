"""A line of CSV: a record, or a dead letter with its reason; never a silent change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.message_format import Csv
from tests.formats.verdicts import Verdict, verdicts_of

pytestmark = pytest.mark.core

RECORD = (
    "id int NOT NULL, s string, d double, amt decimal(6,2), b boolean, ts timestamp, tn timestamp_ntz, dt date,"
    " big bigint, t tinyint"
)
SPARE = ",,,,,,,,"  # after id and s

ACCEPTED: dict[str, Mapping[str, Any]] = {
    f"1,{SPARE}": {"id": 1},
    f"2,a{SPARE}": {"id": 2, "s": "a"},
    f"3,a{SPARE}\n": {"id": 3, "s": "a"},
    f"4,a{SPARE}\r\n": {"id": 4, "s": "a"},
    f"5, a b {SPARE}": {"id": 5, "s": " a b "},
    f'6,"a,b"{SPARE}': {"id": 6, "s": "a,b"},
    f'7,"say ""x"""{SPARE}': {"id": 7, "s": 'say "x"'},
    f'8,"two\nlines"{SPARE}': {"id": 8, "s": "two\nlines"},
    f'9,"two\r\nlines"{SPARE}': {"id": 9, "s": "two\r\nlines"},
    f'10,""{SPARE}': {"id": 10, "s": ""},
    f"11,NULL{SPARE}": {"id": 11, "s": "NULL"},
    f"12,#x{SPARE}": {"id": 12, "s": "#x"},
    f"13,über 🚲{SPARE}": {"id": 13, "s": "über 🚲"},
    f"14,back\\slash{SPARE}": {"id": 14, "s": "back\\slash"},
    f" 15 ,{SPARE}": {"id": 15},
    f"-16,{SPARE}": {"id": -16},
    f'"17",{SPARE}': {"id": 17},
    "18,,1.5,,,,,,,": {"id": 18, "d": 1.5},
    "19,,-2.5e3,,,,,,,": {"id": 19, "d": -2500.0},
    "20,,,1.50,,,,,,": {"id": 20, "amt": 1.5},
    "21,,,9999.99,,,,,,": {"id": 21, "amt": 9999.99},
    "22,,,1.5000,,,,,,": {"id": 22, "amt": 1.5},
    "23,,,,TRUE,,,,,": {"id": 23, "b": True},
    "24,,,,false,,,,,": {"id": 24, "b": False},
    "25,,,,,2024-02-29T12:00:00+02:00,,,,": {"id": 25, "ts": "2024-02-29T10:00:00.000Z"},
    "26,,,,,2024-02-29 12:00:00,,,,": {"id": 26, "ts": "2024-02-29T12:00:00.000Z"},
    "27,,,,,,2024-02-29T12:00:00.123456,,,": {"id": 27, "tn": "2024-02-29T12:00:00.123"},
    "28,,,,,,,2024-02-29,,": {"id": 28, "dt": "2024-02-29"},
    "29,,,,,,,,9223372036854775807,": {"id": 29, "big": 9223372036854775807},
    "30,,,,,,,,,-128": {"id": 30, "t": -128},
}

CONDEMNED: dict[str | bytes, tuple[str, str | None]] = {
    "": ("blank", None),
    " \r\n": ("blank", None),
    b"1,\xff,,,,,,,,": ("invalid_utf8", None),
    "40": ("too_few_columns", None),
    "41,a,,,,,,,": ("too_few_columns", None),
    f"42,a,{SPARE}": ("too_many_columns", None),
    f"43,a{SPARE}\n44,b{SPARE}": ("several_lines", None),
    f"45,a{SPARE}\n\n\n46": ("several_lines", None),
    f'47,"open{SPARE}': ("malformed_csv", None),
    f'48,"a"b{SPARE}': ("malformed_csv", None),
    f"49 x,{SPARE}": ("wrong_type", "id"),
    f"5.0,{SPARE}": ("wrong_type", "id"),
    f"5e1,{SPARE}": ("wrong_type", "id"),
    f"٣,{SPARE}": ("wrong_type", "id"),
    f"2147483648,{SPARE}": ("out_of_range", "id"),
    f",a{SPARE}": ("missing_field", "id"),
    "50,,NaN,,,,,,,": ("wrong_type", "d"),
    f"50,,{'9' * 200_000}x,,,,,,,": ("wrong_type", "d"),  # judged at once, however long it is
    "51,,1d,,,,,,,": ("wrong_type", "d"),
    "52,,0x1p3,,,,,,,": ("wrong_type", "d"),
    "53,,1e400,,,,,,,": ("out_of_range", "d"),
    '54,,"1,5",,,,,,,': ("wrong_type", "d"),
    "55,,,1.234,,,,,,": ("too_precise", "amt"),
    "56,,,10000,,,,,,": ("out_of_range", "amt"),
    "57,,,x,,,,,,": ("wrong_type", "amt"),
    "58,,,,yes,,,,,": ("wrong_type", "b"),
    "59,,,,1,,,,,": ("wrong_type", "b"),
    "60,,,,,1700000000,,,,": ("wrong_type", "ts"),
    "61,,,,,2024-02-30,,,,": ("out_of_range", "ts"),
    "62,,,,,2024-02-29T12:00:00.1234567,,,,": ("too_precise", "ts"),
    "63,,,,,,2024-02-29T12:00:00Z,,,": ("wrong_type", "tn"),
    "64,,,,,,,29.02.2024,,": ("wrong_type", "dt"),
    "65,,,,,,,,9223372036854775808,": ("out_of_range", "big"),
    "66,,,,,,,,,128": ("out_of_range", "t"),
}


@pytest.mark.scenario("poison message")
@pytest.mark.scenario("empty payload, two documents in one")
def test_a_line_becomes_a_record_that_says_the_same_or_a_dead_letter_with_its_reason(spark: SparkSession) -> None:
    """Procedure: decode complete lines, and others: cut off, several, too long, or not as the schema says."""
    verdicts = verdicts_of(spark, Csv(), [*ACCEPTED, *CONDEMNED], ddl=RECORD)

    assert {line: json.loads(verdicts[line].record or "null") for line in ACCEPTED} == ACCEPTED
    assert {line: verdicts[line] for line in CONDEMNED} == {m: Verdict(False, *w, None) for m, w in CONDEMNED.items()}


def test_delimiter_quotation_marks_and_null_are_what_the_document_says(spark: SparkSession) -> None:
    written = Csv(delimiter=";", quote="'", escape="\\", null_text="\\N")
    lines = ["1;'a;\\'b\\''", "2;\\N", "3;", "4;a,b", '5;"x"']

    verdicts = verdicts_of(spark, written, lines, ddl="id int, s string")

    records = [json.loads(verdicts[line].record or "") for line in lines]
    assert records == [
        {"id": 1, "s": "a;'b'"},
        {"id": 2},
        {"id": 3, "s": ""},
        {"id": 4, "s": "a,b"},
        {"id": 5, "s": '"x"'},
    ]


def test_without_quotation_marks_every_character_is_of_the_text(spark: SparkSession) -> None:
    lines = ['shop\t"whole"\t15', 'shop\t"Lorem" ipsum\t13', 'shop\t27" monitor\t12', 'shop\t"open\t14', "shop\t\t1"]
    refused = {"shop\ta\nb\t1": "several_lines", "shop\t\0a\0\t1": "malformed_csv", "shop\t1": "too_few_columns"}
    written = Csv(delimiter="\t", quote="")

    verdicts = verdicts_of(spark, written, [*lines, *refused], ddl="app string, event string, n int")

    events = [json.loads(verdicts[line].record or "").get("event") for line in lines]
    assert events == ['"whole"', '"Lorem" ipsum', '27" monitor', '"open', None]
    assert {line: verdicts[line].reason for line in refused} == refused


def test_a_line_that_is_one_text_in_quotation_marks_has_too_few_columns(spark: SparkSession) -> None:
    verdicts = verdicts_of(spark, Csv(), ['"1619691,9995"'], ddl="user bigint, product bigint")

    assert verdicts['"1619691,9995"'].record is None
    assert verdicts['"1619691,9995"'].reason == "too_few_columns"


FRACTIONS = "a decimal(38,0), b decimal(38,2), c decimal(38,18), d decimal(37,2), e double, f float, g decimal(9,4)"
HELD = {
    "1.0,1.50,0.123456789012345678,1.00,9007199254740992,16777216,1e4": None,
    " +12 ,-.5,1.,0.0100e2,1.5e3,0.1,12345e-4": None,
    f"{'9' * 38},{'9' * 36}.99,0,0,1208925819614629174706176,0e9999999999,0E-9999": None,
    "0,0,0,0,0.1234567890123456789,-0.0e-400,0.00000": None,
    f"1{'0' * 10}e-10,{'0' * 900}1,,,9e307,3.4e38,1e+0004": None,
}
CHANGED = {
    ",0e50,,,,,": ("out_of_range", "b"),
    "1.5,,,,,,": ("too_precise", "a"),
    "1e-1,,,,,,": ("too_precise", "a"),
    ",1.005,,,,,": ("too_precise", "b"),
    ",,0.1234567890123456789,,,,": ("too_precise", "c"),
    ",,,1.00004,,,": ("too_precise", "d"),
    ",,,,,,1.00001": ("too_precise", "g"),
    ",,,,,,1.00001e0": ("too_precise", "g"),
    f"1{'0' * 38},,,,,,": ("out_of_range", "a"),
    ",,,,,,1e5": ("out_of_range", "g"),
    ",,,,,,100e2147483647": ("out_of_range", "g"),
    ",,,,,,1e-2147483647": ("out_of_range", "g"),
    ",,,,,,1e99999999999999": ("out_of_range", "g"),
    f",,,,,,{'1' * 300_000}": ("out_of_range", "g"),
    ",,,,9007199254740993,,": ("out_of_range", "e"),
    f",,,,{'1' * 300_000},,": ("out_of_range", "e"),
    ",,,,,16777217,": ("out_of_range", "f"),
    ",,,,,1e39,": ("out_of_range", "f"),
    ",,,,,1e-60,": ("out_of_range", "f"),
    ",,,,1e-400,,": ("out_of_range", "e"),
    ",,,,-1e99999999999999,,": ("out_of_range", "e"),
    ",,,,1e,,": ("wrong_type", "e"),
    ",,,,.,,": ("wrong_type", "e"),
    ",,,,1 2,,": ("wrong_type", "e"),
    ",,,,,Infinity,": ("wrong_type", "f"),
    ",,,,٣,,": ("wrong_type", "e"),
    "1.5,,x,,,,": ("too_precise", "a"),
    "x,1.005,,,,,": ("wrong_type", "a"),
}


def test_a_number_is_held_as_it_is_written_or_its_line_is_a_dead_letter(spark: SparkSession) -> None:
    """As of JSON: a decimal is not rounded, nor an integer in a binary fraction, and nothing but 0 becomes 0."""
    verdicts = verdicts_of(spark, Csv(), [*HELD, *CHANGED], ddl=FRACTIONS)

    assert {line: verdicts[line].reason for line in HELD} == HELD
    assert {line: verdicts[line] for line in CHANGED} == {m: Verdict(False, *w, None) for m, w in CHANGED.items()}
    first = json.loads(verdicts[next(iter(HELD))].record or "", parse_float=str, parse_int=str)
    assert (first["c"], first["e"], first["f"]) == ("0.123456789012345678", "9.007199254740992E15", "1.6777216E7")
