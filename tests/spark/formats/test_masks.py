"""Masks: the replacement of masked values in the table and in dead letters."""

from __future__ import annotations

import hmac
import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.message_format import Bytes, Csv
from kdi_assets.documents.model.message_rules import Mask
from kdi_assets.documents.model.stream import Stream
from kdi_assets.streams.rules.errors import MaskSecretMissing, ShapeMistake
from kdi_assets.streams.rules.shape import analyse
from tests.judged import Judged, Message, judged, stream_of

SECRET = "pepper, and more of it than a block of SHA-256 has, so that it is hashed itself before it is used"
HASH = Mask("hash", secret="MASK_TEST_SECRET")
OTHER_HASH = Mask("hash", secret="mask_test_secret")
LAST_FOUR = Mask("keep_last", keep=4)
RECORD = "user struct<email: string, id: bigint>, card string, ip string, session string, at date"
ORDERS = stream_of(
    RECORD,
    date_expression="at",
    columns={"mail_host": "split_part(user.email, '@', 2)"},
    filter="coalesce(card, '') <> 'test card'",
    mask={
        "USER.email": HASH,
        "user.id": OTHER_HASH,
        "card": LAST_FOUR,
        "ip": Mask("null"),
        "session": Mask("drop"),
    },
)
OUTSIDE = "1999-01-01"


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HASH.secret, SECRET)
    monkeypatch.setenv(OTHER_HASH.secret, "salt")


def message(**fields: Any) -> str:
    user = {"email": "ann@example.com", "id": 7}
    given = {"user": user, "card": "4111111111111234", "ip": "10.0.0.1", "session": "s3cret", "at": "2026-03-01"}
    return json.dumps({**given, **fields})


def hashed(text: str | bytes, secret: str = SECRET) -> str:
    """The hash as any other client computes it."""
    return hmac.new(secret.encode(), text if isinstance(text, bytes) else text.encode(), "sha256").hexdigest()


def told_of(found: Judged) -> str:
    """Everything that can be read in rows and dead letters."""
    return repr(found.rows) + repr(found.letters)


@pytest.mark.core
def test_the_table_has_what_each_mask_says_and_expressions_see_the_values(spark: SparkSession) -> None:
    nothing = {"email": None, "id": None}
    short = message(user=nothing, card="1234")

    found = judged(spark, ORDERS, [message(), short, message(user=None, card=None), message(card="test card")])

    usual, hidden, none = found.rows
    assert usual["user"] == {"email": hashed("ann@example.com"), "id": hashed("7", "salt")}
    assert (usual["card"], usual["ip"], "session" in usual) == ("************1234", None, False)
    assert (usual["mail_host"], str(usual["date"])) == ("example.com", "2026-03-01")
    assert (hidden["user"], hidden["card"]) == (nothing, "****")
    assert (none["user"], none["card"]) == (None, None)
    assert not any(clear in told_of(found) for clear in ("ann@", "4111", "10.0.0.1", "s3cret"))
    padded = bytes(b ^ 0x36 for b in b"salt")
    assert not any(told in found.plan for told in (SECRET, "salt", padded.hex(), padded.hex().upper()))


def test_dead_letters_hold_the_masked_document_or_no_value_and_never_key_and_headers(spark: SparkSession) -> None:
    located: list[str | bytes] = [
        message(at=OUTSIDE, more={"kept": [1, 2.5]}),
        message(at=5, CARD="4000111122223333"),
        message(at=OUTSIDE, user="ann@example.com"),
        message(at=OUTSIDE, card={"number": 4111222}, user={"EMAIL": ["ann@example.com"], "other": None}),
        b'{"note": "\xff", ' + message().encode()[1:],
    ]
    not_located: list[str | bytes] = [
        message()[:-9],
        message() + "x",
        f"[{message()}]",
        '{"card": "4111111111111234", "card": "4000111122223333"}',
        '"ann@example.com"',
        "",
        message().encode("utf-16"),
    ]

    found = judged(spark, ORDERS, [*located, *not_located])

    values = [letter["value"] for letter in found.letters]
    outside, wrong, no_user, odd, no_text = (json.loads(value) for value in values[: len(located)])
    assert outside == {
        "user": {"email": hashed("ann@example.com"), "id": hashed("7", "salt")},
        "card": "************1234",
        "ip": None,
        "at": OUTSIDE,
        "more": {"kept": [1, 2.5]},
    }
    assert (wrong["card"], wrong["CARD"]) == ("************1234", "************3333")
    assert no_user["user"] is None
    assert odd["user"] == {"EMAIL": hashed('["ann@example.com"]'), "other": None}
    assert odd["card"] == "**************222}"
    assert no_text["card"] == "************1234"
    assert values[len(located) :] == [None] * len(not_located)
    assert all(letter["reason"] for letter in found.letters)
    assert {(letter["key"], letter["headers"]) for letter in found.letters} == {(None, None)}
    assert not any(clear in told_of(found) for clear in ("ann@", "41111", "4000", "10.0.0.1", "s3cret"))


def test_what_cannot_be_found_in_a_message_is_withheld_unless_the_stream_keeps_it(spark: SparkSession) -> None:
    """Procedure: CSV, and a column made of the key; each once by default and once as the stream says."""
    line = "4111111111111234,1999-01-01"
    csv = stream_of("card string, at date", date_expression="at", mask={"card": LAST_FOUR}, format=Csv())
    made = replace(ORDERS, columns={"who": "CAST(kafka.key AS STRING)"}, mask={"who": HASH})
    kept = replace(csv, dead_letter_payload="keep")

    by_default = [judged(spark, csv, [line, "card"]), judged(spark, made, [message(at=OUTSIDE), message()])]
    by_word = judged(spark, kept, [line])

    for found in by_default:
        assert {(x["key"], x["value"], x["headers"]) for x in found.letters} == {(None, None, None)}
    assert by_default[1].rows[0]["who"] == hashed("the key")
    [letter] = by_word.letters
    assert (letter["key"], letter["value"], letter["headers"]) == (
        b"the key",
        line.encode(),
        [{"key": "h", "value": b"x"}],
    )


def test_masked_bytes_are_text_that_every_reader_opens(spark: SparkSession) -> None:
    words = {"hash": HASH, "last": LAST_FOUR}
    whole = b"\xff\x00 secret \xc3"
    columns = {"hash": "value", "last": "value"}

    found = judged(
        spark, stream_of("", format=Bytes(), columns=columns, mask={**words, "value": Mask("drop")}), [whole]
    )

    [row] = found.rows
    assert row["hash"] == hashed(whole)
    assert row["last"] == "*" * 7 + "et �"


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"columns": {"card": "upper(ip)"}}, "dead_letter_payload", "card is made by an expression"),
        ({"compression": "gzip"}, "dead_letter_payload", "found only in messages of plain JSON"),
        (
            {"format": Csv(), "record_ddl": "card string, at date"},
            "dead_letter_payload",
            "only in messages of plain JSON",
        ),
        (
            {"columns": {"user": "struct(user.email)"}, "mask": {"user.email": HASH}, "dead_letter_payload": None},
            "mask.user.email",
            "user is made by an expression, so nothing can be changed inside it",
        ),
    ],
)
def test_a_mask_that_cannot_hold_is_refused(spark: SparkSession, fields: dict[str, Any], field: str, said: str) -> None:
    asked: Stream = replace(
        ORDERS, **{"mask": {"card": HASH}, "columns": {}, "filter": "", "dead_letter_payload": "mask", **fields}
    )

    with pytest.raises(ShapeMistake, match=said) as refused:
        analyse(asked, spark)
    assert refused.value.field == field


def test_without_a_secret_nothing_is_read(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HASH.secret, "")

    with pytest.raises(MaskSecretMissing, match=r"USER\.email needs the secret in the environment variable MASK_TEST"):
        judged(spark, ORDERS, [Message(message())])
