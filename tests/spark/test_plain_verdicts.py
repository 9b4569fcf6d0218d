"""What a value becomes that lands as it is: text, checked, or bytes."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING

import pytest

from kdi_assets.message_format import Bytes, Text
from tests.verdicts import Verdict, verdicts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.core

TEXTS = ["", " ", "plain", "über 🚲", '{"a": 1}', "two\nlines\r\n", "nul \0 inside", "\ufeffmark", "\ufffd"]
NO_TEXTS = [b"\xff", b"cut off \xf0\x9f", b"\xc0\x80", b"surrogate \xed\xa0\x80", b"\x00\xffbinary"]


def test_text_stays_as_it_is_and_what_is_no_utf8_is_no_text(spark: SparkSession) -> None:
    verdicts = verdicts_of(spark, Text(), [*TEXTS, *NO_TEXTS])

    assert {text: json.loads(verdicts[text].record or "null") for text in TEXTS} == {t: {"value": t} for t in TEXTS}
    assert {verdicts[value] for value in NO_TEXTS} == {Verdict(False, "invalid_utf8", None, None)}


def test_bytes_stay_as_they_are_in_the_column_that_is_declared(spark: SparkSession) -> None:
    values = [*(text.encode() for text in TEXTS), *NO_TEXTS]
    verdicts = verdicts_of(spark, Bytes(), values, ddl="body binary COMMENT 'as it came'")

    assert [json.loads(verdicts[v].record or "null") for v in values] == [
        {"body": b64encode(v).decode()} for v in values
    ]
