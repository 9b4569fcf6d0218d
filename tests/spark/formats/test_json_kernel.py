"""The kernel compared with Python's own parser, over random documents."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from kdi_assets.messages.formats.decoder import DECODED, DOCUMENT, RECORD
from kdi_assets.streams.rules.records import stream_decoder
from tests.formats.json_judge import DDL, Refused, judged, messages
from tests.formats.plain_and_hostile import times
from tests.judged import stream_of

SEED, COUNT = 20261123, 6_000
ODD = [
    *map(chr, range(0x23)),
    "#",
    "[",
    "\\",
    "]",
    "\\\\",
    '\\"',
    "\\n",
    "\\u00e9",
    "\x7f",
    "\x80",
    "\xa2",
    "é",
    "日",
    "😀",
    "\\ud800",
]
"""Controls, their neighbours, what ends or escapes a text and its neighbours, and UTF-8 of two to four bytes."""


def test_the_kernel_judges_as_python_does_whatever_the_message(spark: SparkSession) -> None:
    texts = list(dict.fromkeys(messages(SEED, COUNT)))

    found = _found(spark, texts)

    expected = {text: _judged(text) for text in texts}
    assert _different(found, expected) == [], f"seed {SEED}"
    reasons = {verdict[0] for verdict in expected.values() if isinstance(verdict, list)}
    assert reasons >= {
        "malformed_json",
        "trailing_text",
        "wrong_type",
        "out_of_range",
        "too_precise",
        "invalid_utf8",
        "missing_field",
    }
    assert 0.4 < sum(isinstance(verdict, dict) for verdict in expected.values()) / len(texts) < 0.9


def test_a_text_ends_where_json_says_wherever_its_last_odd_character_is(spark: SparkSession) -> None:
    """Purpose: the kernel reads texts and checks UTF-8 eight bytes at a time.
    Procedure: put each odd character at each place of texts of 18 characters, at each distance from the message's end.
    Pass: the same record, or the same reason, as by Python's parser, which reads one character at a time.
    """
    plain = "abcdefgh 12345678!"
    placed = [plain[:at] + odd + plain[at + 1 :] for odd in ODD for at in range(len(plain))]
    texts = [f'{{"s":"{text}"}}{" " * after}' for text in placed for after in range(8)]

    found = _found(spark, texts)

    expected = {text: _judged(text) for text in texts}
    assert _different(found, expected) == []
    assert {type(verdict) for verdict in expected.values()} == {dict, list}


def test_a_byte_that_is_no_utf_8_is_found_at_every_place(spark: SparkSession) -> None:
    valid = [b'{"s":"' + b"x" * length + b'"}' for length in range(1, 18)]
    broken = [text[:at] + b"\xff" + text[at + 1 :] for text in valid for at in range(len(text))]

    verdicts = _decoded(spark, broken)

    assert [(broken[n], reason) for n, _, _, reason, _ in verdicts if reason != "invalid_utf8"] == []
    assert len(verdicts) == len(broken)


DAY = r"(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}"
TIME = r"[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:[.](?P<fraction>[0-9]+))?)?"
ZONE = r"(?:Z|[+-][0-9]{2}(?::[0-9]{2})?)?"
FORMS = {"date": DAY, "timestamp_ntz": f"{DAY}(?:{TIME})?", "timestamp": f"{DAY}(?:{TIME}{ZONE})?"}


@pytest.mark.parametrize("kind", FORMS)
def test_a_date_or_time_is_what_spark_makes_of_a_text_of_its_form(spark: SparkSession, kind: str) -> None:
    """Purpose: the kernel reads the usual spelling digit by digit; that may change no value and no reason.
    Procedure: decode 30,000 random texts, and cast the same texts by Spark.
    Pass: each has Spark's value, or the reason that it has by its form alone; most reasons and values occur.
    """
    texts = [text for text in times(SEED, 30_000) if text is not None]
    texts += [text[:10] for text in texts] if kind == "date" else []
    rows = [(text, json.dumps({"t": text}).encode()) for text in texts]
    frame = spark.createDataFrame(rows, "text string, _kdi_value binary").repartition(4)
    decoded = stream_decoder(stream_of(f"t {kind}")).decode(frame)

    columns = (
        F.expr(sql).cast("string") for sql in ("text", f"{RECORD}.t", f"{DOCUMENT}.reason", f"try_cast(text AS {kind})")
    )
    found = {text: (reason or value, of_spark) for text, value, reason, of_spark in decoded.select(*columns).collect()}

    expected = {text: (_judged_time(text, of_spark, FORMS[kind]), of_spark) for text, (_, of_spark) in found.items()}
    assert _different(found, expected) == [], f"seed {SEED}"
    verdicts = [verdict for verdict, _ in found.values()]
    assert {"wrong_type", "out_of_range"} <= set(verdicts)
    moved = any(verdict == "out_of_range" and of_spark is not None for verdict, of_spark in found.values())
    assert moved is (kind == "timestamp"), "some texts have an offset that moves them out of the years 1 to 9999"
    assert sum(verdict[:1].isdigit() for verdict in verdicts) > 1_000


def _judged_time(text: str, of_spark: str | None, form: str) -> str:
    """The value, or the reason."""
    matched = re.fullmatch(form, text)
    if matched is None or of_spark is None:
        return "out_of_range" if matched else "wrong_type"
    fraction = matched.groupdict().get("fraction") or ""
    in_years = re.match(r"(?!0000)[0-9]{4}-", of_spark)  # an offset may move a time out of them
    return "too_precise" if fraction[6:].strip("0") else of_spark if in_years else "out_of_range"


def _found(spark: SparkSession, texts: list[str]) -> dict[str, Any]:
    """By message: the record as plain Python, or reason and field."""
    decoded = _decoded(spark, [text.encode("utf-8", "surrogatepass") for text in texts])
    return {
        texts[n]: _plain(record) if is_record else [reason, field] for n, is_record, record, reason, field in decoded
    }


def _decoded(spark: SparkSession, values: list[bytes]) -> list[Row]:
    """By its number, each message's verdict, record, reason and field."""
    decoder = stream_decoder(stream_of(DDL))
    frame = spark.createDataFrame(list(enumerate(values)), "n int, _kdi_value binary").repartition(4)
    return decoder.decode(frame).select("n", DECODED, RECORD, f"{DOCUMENT}.reason", f"{DOCUMENT}.field").collect()


def _different(found: dict[str, Any], expected: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Three at most: message, found and expected."""
    return [(text, found[text], said) for text, said in expected.items() if found[text] != said][:3]


def _judged(text: str) -> Any:
    try:
        return judged(text)
    except Refused as refused:
        return list(refused.args)


def _plain(value: Any) -> Any:
    match value:
        case Row():
            return {name: _plain(each) for name, each in value.asDict().items()}
        case dict():
            return {key: _plain(each) for key, each in value.items()}
        case list():
            return [_plain(each) for each in value]
    return value
