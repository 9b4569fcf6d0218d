"""What a value becomes that lands as it is: text, checked, or bytes."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import TYPE_CHECKING

import pytest

from kdi_assets.message_format import Bytes, Text
from tests.verdicts import Verdicts, verdicts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.core

TEXTS = ["", " ", "plain", "über 🚲", '{"a": 1}', "two\nlines\r\n", "nul \0 inside", "\ufeffmark", "\ufffd"]
NO_TEXTS = [b"\xff", b"cut off \xf0\x9f", b"\xc0\x80", b"surrogate \xed\xa0\x80", b"\x00\xffbinary"]


@pytest.fixture(scope="module")
def as_text(spark: SparkSession) -> Verdicts:
    return verdicts_of(spark, Text(), [*TEXTS, *NO_TEXTS])


@pytest.fixture(scope="module")
def as_bytes(spark: SparkSession) -> Verdicts:
    return verdicts_of(spark, Bytes(), [*TEXTS, *NO_TEXTS], ddl="body binary COMMENT 'as it came'")


@pytest.mark.parametrize("message", TEXTS)
def test_text_stays_as_it_is(as_text: Verdicts, message: str) -> None:
    verdict = as_text[message]

    assert verdict.decoded
    assert json.loads(verdict.record or "") == {"value": message}


@pytest.mark.parametrize("message", NO_TEXTS)
def test_what_is_no_utf8_is_no_text(as_text: Verdicts, message: bytes) -> None:
    assert as_text[message] == (False, "invalid_utf8", None, None)


@pytest.mark.parametrize("message", [*(text.encode() for text in TEXTS), *NO_TEXTS])
def test_bytes_stay_as_they_are_in_the_column_that_is_declared(as_bytes: Verdicts, message: bytes) -> None:
    verdict = as_bytes[message]

    assert verdict.decoded
    assert json.loads(verdict.record or "") == {"body": b64encode(message).decode()}
