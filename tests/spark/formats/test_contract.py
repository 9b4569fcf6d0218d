"""Fields of messages that the record does not have, for any text; and types that a column may become."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import date
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType

from kdi_assets.documents.model.message_format import Csv, Text
from kdi_assets.documents.model.message_rules import Contract, Expectation, Mask
from kdi_assets.streams.rules.errors import ShapeMistake
from kdi_assets.streams.rules.shape import analyse
from kdi_assets.streams.rules.table.table_schema import widened, widens
from kdi_assets.streams.rules.tally import NAMED
from tests.judged import Judged, judged, stream_of

DDL = (
    "id bigint, text string, at timestamp, who struct<name: string, born: date>, "
    "items array<struct<sku: string, price: decimal(10,2)>>, tags map<string, string>, by map<string, struct<n: int>>, "
    "plain array<int>"
)
STREAM = stream_of(DDL)
FULL = {
    "id": 1,
    "text": 'a "b": c',
    "at": "2026-01-01T00:00:00Z",
    "who": {"name": "x", "born": "2000-01-01"},
    "items": [{"sku": "s", "price": 1.5}, {"sku": None}],
    "tags": {"a": "1", "b": None},
    "by": {"x": {"n": 1}, "y": {}, "z": None},
    "plain": [1, None],
}
MESSAGES: dict[str, list[str]] = {
    json.dumps(FULL): [],
    json.dumps(FULL, separators=(",", ":")): [],
    json.dumps(FULL, indent=2, separators=(",", " : ")): [],
    '{"id":1,"id":2}': [],
    '{"id":null,"who":{"name":null}}': [],
    '{"text":"\\":null"}': [],
    '{"id":1,"plan":null}': [],
    "{}": [],
    '{"id":1,"plan":"gold"}': ["plan"],
    '{"plan":"gold"}': ["plan"],
    '{"id" :1,"plan" :"gold"}': ["plan"],
    '{"id"\t:1,"plan"\t:"gold"}': ["plan"],
    '{"id":1,"id":2,"plan":"gold"}': ["plan"],
    '{"id":null,"plan":1}': ["plan"],
    '{"id":  null,"plan":1}': ["plan"],
    '{"text":"\\":null","plan":1}': ["plan"],
    '{"text":"\\": null \\":null","plan":1}': ["plan"],
    '{"text":null,"plan":"\\":null"}': ["plan"],
    '{"ID":1}': ["ID"],
    '{"pl\\u0061n":1}': ["plan"],
    '{"plan":{"name":"gold"},"trial":[{"a":1}],"empty":{}}': ["empty", "plan", "trial"],
    '{"who":{"name":"x","mail":"y"}}': ["who.mail"],
    '{"items":[{"sku":"a"},{"sku":"b","of":{"a":1}},{"of":2}]}': ["items[].of"],
    '{"by":{"x":{"n":1,"m":2}},"tags":{"plan":"gold"}}': ["by[].m"],
    '{"id":7,"a.b":1,"":2,"new\\nline":3}': ['""', "a.b", "new line"],
}


@pytest.fixture(scope="module")
def of_all(spark: SparkSession) -> Judged:
    return judged(spark, STREAM, list(MESSAGES))


@pytest.mark.core
def test_every_field_that_the_record_has_not_is_counted_by_name_and_no_other(of_all: Judged) -> None:
    expected: dict[str, int] = {}
    for paths in MESSAGES.values():
        for path in paths:
            expected[path] = expected.get(path, 0) + 1

    unknown = of_all.counts.unknown.fields

    assert (dict(unknown.named), unknown.others) == (expected, 0)
    assert unknown.messages == sum(1 for paths in MESSAGES.values() if paths)
    assert [(list(MESSAGES)[x["offset"]], x["reason"], x["field"]) for x in of_all.letters] == []
    assert len(of_all.rows) == len(MESSAGES)


def test_only_what_would_be_a_row_is_asked(spark: SparkSession) -> None:
    stream = stream_of("id bigint", filter="id > 0", date_expression="to_date(kafka.timestamp)")
    messages = ['{"id":1,"x":1}', '{"id":0,"x":1}', '{"id":"a","x":1}', '{"x":1', None]

    counts = judged(spark, stream, messages).counts

    assert (counts.unknown.fields.named, counts.unknown.example) == ({"x": 1}, (0, 0))


def test_unknown_fields_make_dead_letters_where_the_contract_says_so(spark: SparkSession) -> None:
    """They come before expectations, and after every other reason of a message."""
    expected = {"small": Expectation("id < 5", "dead_letter")}
    stream = stream_of("id bigint, who struct<name: string>", expectations=expected, contract=Contract("discard_row"))
    messages = ['{"id":1}', '{"id":9,"x":1}', '{"id":1,"who":{"mail":2}}', '{"id":9}', '{"id":"a","x":1}']

    found = judged(spark, stream, messages)

    assert [row["id"] for row in found.rows] == [1]
    assert [(letter["offset"], letter["reason"], letter["field"]) for letter in found.letters] == [
        (1, "unknown_field", "x"),
        (2, "unknown_field", "who.mail"),
        (3, "expectation_not_met", "expectations.small"),
        (4, "wrong_type", "id"),
    ]
    assert found.counts.unknown.fields.named == {"who.mail": 1, "x": 1}
    assert found.counts.unmet["small"].count == 1


def test_names_that_messages_make_up_are_cut_and_said_to_be_more(spark: SparkSession) -> None:
    """Pass: the frequent field and every message are counted; the number of names and their lengths are limited."""
    made_up = [json.dumps({"often": 1, f"{n:04}" + "x" * 500: n}) for n in range(300)]
    of_one = json.dumps({f"k{n}": n for n in range(100)})

    unknown = judged(spark, stream_of("id bigint"), [*made_up, of_one]).counts.unknown.fields

    assert (unknown.messages, len(unknown.named), unknown.named["often"]) == (301, NAMED, 300)
    assert unknown.others == 300 + 1 + 30 - NAMED + 1
    assert max(map(len, unknown.named)) == 120
    assert unknown.listed(1) == f"often (300) and at least {99 + unknown.others} more"


@pytest.mark.parametrize("seed", range(3))
def test_the_fields_of_a_message_do_not_depend_on_those_of_messages_before(spark: SparkSession, seed: int) -> None:
    """Messages repeat the unknown fields of the last one, lack some, have more, in another order, twice, or null."""
    rng = Random(seed)
    texts = _messages_with_unknown_fields(rng, 600)
    expected = Counter(path for text in texts for path in _unknown_paths(json.loads(text)))

    unknown = judged(spark, stream_of("id bigint, who struct<name: string>"), texts).counts.unknown.fields

    assert (dict(unknown.named), unknown.others) == (dict(expected), 0)
    assert unknown.messages == sum(1 for text in texts if _unknown_paths(json.loads(text)))


def _messages_with_unknown_fields(rng: Random, count: int) -> list[str]:
    usual = [("plan", 1), ("who", {"mail": "x", "name": "n"}), ("region", "eu")]
    texts = []
    for number in range(count):
        fields: list[tuple[str, Any]] = [*usual] if rng.random() < 0.7 else []
        if rng.random() < 0.3:
            names = rng.choices(["plan", "region", "who", *(f"f{n}" for n in range(20))], k=rng.choice([1, 3, 45]))
            fields += [(name, {"mail": 1} if name == "who" else rng.choice([None, 1])) for name in names]
        if rng.random() < 0.1:
            rng.shuffle(fields)
        pairs = ",".join(f"{json.dumps(name)}:{json.dumps(value)}" for name, value in [("id", number), *fields])
        texts.append(f"{{{pairs}}}")
    return texts


def _unknown_paths(message: dict[str, Any]) -> list[str]:
    own = [name for name, value in message.items() if name not in ("id", "who") and value is not None]
    return own + (["who.mail"] if "mail" in (message.get("who") or {}) else [])


def test_of_csv_and_text_no_field_is_unknown(spark: SparkSession) -> None:
    """A line with more columns than the record is a dead letter; text has no fields."""
    of_csv = judged(spark, stream_of("a int", format=Csv()), ["1", "1,2"])
    of_text = judged(spark, stream_of("", format=Text()), ['{"x":1}'])

    assert [len(of_csv.rows), len(of_csv.letters), len(of_text.rows)] == [1, 1, 1]
    assert not of_csv.counts.unknown.fields
    assert not of_text.counts.unknown.fields


def test_what_is_left_out_is_rescued_with_its_place_and_value(spark: SparkSession) -> None:
    ddl = "id bigint, items array<struct<sku: string>>, by map<string, struct<n: int>>, who struct<name: string>"
    stream = stream_of(ddl, rescued="more")
    messages: dict[str, dict[str, object]] = {
        '{"id":1,"who":{"name":"x"},"items":[{"sku":"a"}]}': {},
        '{"id":1,"plan":null}': {},
        '{"plan":"gold","n":1.50,"o":{"a":[1,null]}}': {"plan": "gold", "n": 1.5, "o": {"a": [1, None]}},
        '{"items":[{"sku":"a"},{"sku":"b","of":1},{"of":2}]}': {"items[1].of": 1, "items[2].of": 2},
        '{"by":{"x.y":{"n":1,"m":2}}}': {'by["x.y"].m': 2},
        '{"who":{"mail":1},"who.mail":2,"":3,"items[1]":4}': {
            "who.mail": 1,
            '["who.mail"]': 2,
            '[""]': 3,
            '["items[1]"]': 4,
        },
        '{"u":1e400,"w":[1,1e400],"z":12345678901234567890123456789012345678901234567890,"plan":1}': {
            "u": "1e400",
            "w": "[1,1e400]",
            "z": "12345678901234567890123456789012345678901234567890",
            "plan": 1,
        },
        '{"u":"\\ud800","plan":1}': {"u": '"\\ud800"', "plan": 1},
        '{"items":{"sku":"a"},"items":[],"who":[1],"who":{},"plan":1}': {"plan": 1},
    }

    found = judged(spark, stream, list(messages))

    assert [json.loads(row["more"] or "{}") for row in found.rows] == list(messages.values())
    assert [row["more"] for row in found.rows[:2]] == [None, None]


def test_what_is_masked_is_not_rescued_in_any_spelling(spark: SparkSession) -> None:
    """Neither the field in another spelling, nor its parts, nor anything around it; dead letters hold none of it."""
    mask = {"mail": Mask("drop"), "who.phone": Mask("null"), "box": Mask("hash", secret="KDI_TEST_SECRET")}
    mask["friends"] = Mask("drop")
    ddl = (
        "id bigint, mail string, who struct<phone: string, name: string>, box string, friends array<struct<n: string>>"
    )
    stream = stream_of(ddl, rescued="more")
    hidden = (
        '{"id":1,"Mail":"s1","MAIL":{"x":"s2"},"Who":{"phone":"s3"},"who":{"Phone":"s4","age":5},"BOX":"s6","plan":7,'
        '"friends":[{"n":"s7","N":"s8","mail":"s9"}]}'
    )

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("KDI_TEST_SECRET", "s")
        found = judged(spark, replace(stream, mask=mask), [hidden, '{"id":1,"mail":"s1"}'])

    assert [row["more"] for row in found.rows] == ['{"plan":7,"who.age":5}', None]
    assert found.counts.unknown.fields.messages == 1
    made = replace(stream, mask={"x": Mask("drop")}, columns={"x": "mail"})
    with pytest.raises(ShapeMistake, match="it would keep what is masked: x is made by an expression"):
        analyse(made, spark)


def test_a_rescued_column_needs_a_name_of_its_own(spark: SparkSession) -> None:
    for name in ("id", "ID", "kafka"):
        with pytest.raises(ShapeMistake, match=f"{name} is a column already"):
            analyse(stream_of("id bigint", rescued=name), spark)
    assert analyse(stream_of("id bigint", rescued="more"), spark)["more"].dataType.simpleString() == "string"


TYPED = (
    "id int, name string NOT NULL, at timestamp, who struct<born: date, mail: string>, "
    "items array<struct<sku: string, n: int>>, tags map<string, int>, price decimal(4,2)"
)
SALVAGED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    '{"name":"a","id":1}': ({"id": 1}, {}),
    '{"name":"a","id":"x"}': ({}, {"id": "x"}),
    '{"name":"a","id":3000000000,"price":1.5}': ({"price": Decimal("1.50")}, {"id": 3000000000}),
    '{"name":"a","id":1,"price":1.234,"at":"soon"}': ({"id": 1}, {"price": 1.234, "at": "soon"}),
    '{"name":"a","who":{"born":"x","mail":"m"}}': ({"who": {"born": None, "mail": "m"}}, {"who.born": "x"}),
    '{"name":"a","id":2,"who":5}': ({"id": 2}, {"who": 5}),
    '{"name":"a","who":{"born":"x"},"who":{"born":"y"}}': ({"who": {"born": None, "mail": None}}, {"who.born": "y"}),
    '{"name":"a","id":"\\ud800"}': ({}, {"id": '"\\ud800"'}),
    '{"name":"a","items":[{"sku":"s","n":1},{"n":"x"}],"tags":{"a":1,"b":"y"},"id":3}': (
        {"id": 3},
        {"items": [{"sku": "s", "n": 1}, {"n": "x"}], "tags": {"a": 1, "b": "y"}},
    ),
    '{"name":"a","id":"x","plan":"gold","who":{"born":"2020-01-01","age":1}}': (
        {"who": {"born": date(2020, 1, 1), "mail": None}},
        {"id": "x", "plan": "gold", "who.age": 1},
    ),
}
BEYOND = {
    '{"name":1.5,"id":1}': ("wrong_type", "name"),
    '{"name":"a","id":"x"} x': ("trailing_text", None),
    '{"name":"a","id":': ("malformed_json", None),
    '[{"name":"a"}]': ("not_an_object", None),
    '{"id":"x"}': ("wrong_type", "id"),
    "": ("blank", None),
}


def test_a_value_that_does_not_suit_its_type_is_left_out_counted_and_rescued(spark: SparkSession) -> None:
    """Pass: in valid JSON the smallest declared field is null, and nothing else; a text that is no document, or lacks a
    required value, is a dead letter with its usual reason.
    """
    contract = Contract(types="discard_value")
    found = judged(spark, stream_of(TYPED, rescued="more", contract=contract), [*SALVAGED, *BEYOND, None])

    empty = dict.fromkeys(("id", "at", "who", "items", "tags", "price"))
    kept = [{name: row[name] for name in empty} for row in found.rows]
    assert kept == [{**empty, **row} for row, _ in SALVAGED.values()]
    assert [json.loads(row["more"] or "{}") for row in found.rows] == [more for _, more in SALVAGED.values()]
    assert [(x["reason"], x["field"]) for x in found.letters] == list(BEYOND.values())
    misfits = found.counts.misfits.fields
    assert (misfits.messages, misfits.named) == (
        9,
        {"id": 4, "price": 1, "at": 1, "who.born": 2, "who": 1, "items": 1, "tags": 1},
    )
    assert found.counts.unknown.fields.named == {"plan": 1, "who.age": 1}


def test_without_that_contract_such_a_message_is_a_dead_letter(spark: SparkSession) -> None:
    found = judged(spark, stream_of(TYPED, rescued="more"), list(SALVAGED))

    assert [len(found.rows), len(found.letters), found.counts.misfits.fields.messages] == [1, 9, 0]


pytestmark = pytest.mark.usefixtures("spark")  # it parses the types


@pytest.mark.parametrize(
    ("narrow", "wide", "may"),
    [
        ("tinyint", "bigint", True),
        ("int", "bigint", True),
        ("bigint", "int", False),
        ("int", "double", False),
        ("float", "double", True),
        ("date", "timestamp_ntz", True),
        ("date", "timestamp", False),
        ("decimal(4,2)", "decimal(9,3)", True),
        ("decimal(4,2)", "decimal(5,4)", False),
        ("string", "bigint", False),
    ],
)
def test_only_what_loses_no_value_is_wider(narrow: str, wide: str, may: bool) -> None:
    assert widens(DataType.fromDDL(narrow), DataType.fromDDL(wide)) is may


@pytest.mark.parametrize(
    ("declared", "told", "becomes"),
    [
        ("int", "bigint", "bigint"),
        ("int", "string", "int"),
        ("bigint", "decimal(20,0)", "bigint"),
        ("decimal(4,2)", "bigint", "decimal(21,2)"),
        ("decimal(30,20)", "decimal(38,0)", "decimal(30,20)"),
        ("array<int>", "array<bigint>", "array<bigint>"),
        ("array<struct<n: int, s: string>>", "array<struct<n: bigint, x: int>>", "array<struct<n: bigint, s: string>>"),
        ("map<string, int>", "struct<a: bigint>", "map<string, int>"),
    ],
)
def test_a_type_becomes_one_that_takes_its_own_values_and_the_new_ones(declared: str, told: str, becomes: str) -> None:
    found = widened(DataType.fromDDL(declared), DataType.fromDDL(told))

    assert found == DataType.fromDDL(becomes)
    assert found == DataType.fromDDL(declared) or not widens(found, DataType.fromDDL(declared))
