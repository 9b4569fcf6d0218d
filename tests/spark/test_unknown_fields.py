"""Fields that messages have and the record has not: found exactly, whatever the text is, and counted by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kdi_assets.drain.contract import NAMED
from kdi_assets.message_format import Csv, Text
from kdi_assets.stream import Contract, Expectation
from tests.judged import Judged, judged, stream_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    """They are told ahead of expectations, and behind whatever condemns a message without them."""
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
    """Pass: the frequent field is counted, as are all the messages; names and their lengths have an end."""
    made_up = [json.dumps({"often": 1, f"{n:04}" + "x" * 500: n}) for n in range(300)]
    of_one = json.dumps({f"k{n}": n for n in range(100)})

    unknown = judged(spark, stream_of("id bigint"), [*made_up, of_one]).counts.unknown.fields

    assert (unknown.messages, len(unknown.named), unknown.named["often"]) == (301, NAMED, 300)
    assert unknown.others == 300 + 1 + 30 - NAMED + 1
    assert max(map(len, unknown.named)) == 120
    assert unknown.listed(1) == f"often (300) and at least {99 + unknown.others} more"


def test_of_csv_and_text_no_field_is_unknown(spark: SparkSession) -> None:
    """A line with more columns than the record is a dead letter; text has no fields."""
    of_csv = judged(spark, stream_of("a int", format=Csv()), ["1", "1,2"])
    of_text = judged(spark, stream_of("", format=Text()), ['{"x":1}'])

    assert [len(of_csv.rows), len(of_csv.letters), len(of_text.rows)] == [1, 1, 1]
    assert not of_csv.counts.unknown.fields
    assert not of_text.counts.unknown.fields
