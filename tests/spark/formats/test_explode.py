"""One message to several rows: judged as a whole, shaped row by row."""

from __future__ import annotations

import hmac
import json
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.message_format import Text
from kdi_assets.documents.model.message_rules import Expectation, Explode, Mask
from kdi_assets.documents.model.stream import Stream
from kdi_assets.streams.rules.errors import ShapeMistake
from kdi_assets.streams.rules.shape import analyse
from kdi_assets.streams.rules.verdict import DEAD_LETTER, FILTERED, TOMBSTONE
from tests.judged import Judged, judged, stream_of

RECORD = (
    "id bigint, who string, basket struct<note: string, lines: array<struct<sku: string, qty: int, mail: string>>>, "
    "tags array<string>, counts map<string, int>"
)
DAY = date(2026, 3, 1)


def orders(**fields: Any) -> Stream:
    given = {"explode": Explode("item", "basket.lines"), "date_expression": f"DATE'{DAY}'", **fields}
    return stream_of(RECORD, **given)


def order(*lines: Any, **more: Any) -> str:
    return json.dumps(
        {"id": 1, "who": "Ann", "basket": {"note": "n", "lines": list(lines)}, "tags": ["a", "b"], **more}
    )


def told(found: Judged, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in found.rows]


A, B = {"sku": "a", "qty": 2, "mail": "a@x"}, {"sku": "b", "qty": 4, "mail": "b@x"}


@pytest.mark.core
def test_each_element_is_a_row_in_the_place_of_its_array(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_SECRET", "pepper")
    asked = orders(
        columns={
            "per": "100 / item.qty",
            "item.who": "concat(who, item.sku)",
            "named": "transform(tags, t -> t || id)",
        },
        mask={
            "item.mail": Mask("keep_last", keep=1),
            "item.sku": Mask("hash", secret="MASK_SECRET"),
            "who": Mask("drop"),
        },
        tombstones="row",
    )

    found = judged(spark, asked, [order(A, B), order(), "{}", None])

    kafka = {"topic": "t", "partition": 0, "timestamp": found.rows[0]["kafka"]["timestamp"]}
    assert [row["kafka"] for row in found.rows] == [
        {**kafka, "offset": offset, "index": index, "count": count}
        for offset, index, count in [(0, 0, 2), (0, 1, 2), (1, 0, 1), (2, 0, 1), (3, 0, 1)]
    ]
    assert found.rows[1] == {
        "id": 1,
        "basket": {"note": "n"},
        "tags": ["a", "b"],
        "counts": None,
        "item": {"sku": hmac.new(b"pepper", b"b", "sha256").hexdigest(), "qty": 4, "mail": "**x", "who": "Annb"},
        "per": 25.0,
        "named": ["a1", "b1"],
        "kafka": {**kafka, "offset": 0, "index": 1, "count": 2},
        "date": DAY,
    }
    assert told(found, "per")[2:] == [(None,)] * 3
    assert (found.counts.messages, found.counts.became_rows, found.counts.rows) == (4, 4, 5)


def test_one_element_at_fault_makes_a_dead_letter_of_the_whole_message(spark: SparkSession) -> None:
    far = {**A, "sku": "far"}
    asked = orders(
        columns={"per": "100 / item.qty"},
        filter="id <> 7",
        date_expression="decode(item.sku, 'none', NULL, 'far', DATE'2999-01-01', DATE'2026-03-01')",
        expectations={"few": Expectation("size(basket.lines) < 3", then="dead_letter")},
    )
    zero, none = {**B, "qty": 0}, {**B, "sku": "none"}
    messages = [order(A, B), order(A, zero), order(none, A), order(A, far), order(A, A, A), order(zero, id=7), None]

    found = judged(spark, asked, messages)

    assert [(x["offset"], x["reason"], x["field"]) for x in found.letters] == [
        (1, "expression_failed", "columns.per"),
        (2, "no_date", "date"),
        (3, "date_outside_window", "date"),
        (4, "expectation_not_met", "expectations.few"),
    ]
    assert [bytes(x["value"]).decode() for x in found.letters] == messages[1:5]
    assert told(found, "per") == [(50.0,), (25.0,)]
    assert found.counts.not_rows == {(0, DEAD_LETTER): 4, (0, FILTERED): 1, (0, TOMBSTONE): 1}
    assert (found.counts.became_rows, found.counts.rows) == (1, 2)


def test_an_array_may_be_made_by_an_expression_and_one_that_raises_is_named(spark: SparkSession) -> None:
    made = Explode("n", "sequence(1, CAST(who AS INT))")
    found = judged(spark, orders(explode=made, columns={"twice": "2 * n"}), [order(who="3"), order(who="x"), order()])

    assert told(found, "n", "twice") == [(1, 2), (2, 4), (3, 6)]
    assert found.rows[0]["basket"]["lines"] == []
    assert [(x["reason"], x["field"]) for x in found.letters] == [("expression_failed", "explode.n")] * 2


ELEMENT = "struct<id: string, type: int>"
STRICT = "map('mode', 'FAILFAST')"
ARRAY = f"from_json(value, 'array<{ELEMENT}>', {STRICT})"
LINES = (
    f"transform(filter(split(value, '\\n'), line -> trim(line) <> ''), line -> from_json(line, '{ELEMENT}', {STRICT}))"
)


@pytest.mark.parametrize(
    ("array", "good", "empty", "bad"),
    [
        (
            ARRAY,
            '[{"id": "a", "type": 4}, {"id": "b", "type": 5}]',
            "[]",
            ['[{"id": "c", "type": "four"}]', '[{"id": "d", "type": 4}, {"id":', "{", "no JSON"],
        ),
        (
            LINES,
            '{"id": "a", "type": 4}\n{"id": "b", "type": 5}\n',
            "\n",
            ['{"id": "c", "type": 4}\n{"id": "d", "type": "four"}', '{"id": "e", "type": 4}\n{"id":', "no JSON"],
        ),
    ],
    ids=["a JSON array at the top", "JSON lines"],
)
def test_messages_that_are_many_json_objects_are_read_strictly(
    spark: SparkSession, array: str, good: str, empty: str, bad: list[str]
) -> None:
    """Pass: a row for each object; a message with one wrong or cut object is a dead letter as a whole."""
    columns = {"id": "item.id", "type": "item.type"}
    drop = {"value": Mask("drop"), "item": Mask("drop")}
    stream = stream_of("", format=Text(), explode=Explode("item", array), columns=columns, mask=drop)

    found = judged(spark, stream, [good, empty, *bad])

    assert told(found, "id", "type") == [("a", 4), ("b", 5), (None, None)]
    assert {*found.rows[0]} == {"id", "type", "kafka", "date"}
    assert [(x["offset"], x["reason"], x["field"]) for x in found.letters] == [
        (n + 2, "expression_failed", "explode.item") for n in range(len(bad))
    ]


@pytest.mark.parametrize(
    ("explode", "columns"),
    [
        (Explode("tags", "tags"), ["id", "who", "basket", "tags", "counts", "kafka", "date"]),
        (Explode("Tag", " `TAGS` "), ["id", "who", "basket", "Tag", "counts", "kafka", "date"]),
        (Explode("entry", "map_entries(counts)"), ["id", "who", "basket", "tags", "counts", "entry", "kafka", "date"]),
        (Explode("line", "basket.lines"), ["id", "who", "basket", "tags", "counts", "line", "kafka", "date"]),
    ],
)
def test_the_exploded_field_alone_is_no_column(spark: SparkSession, explode: Explode, columns: list[str]) -> None:
    table = analyse(orders(explode=explode), spark)

    assert table.names == columns
    assert "lines" in table["basket"].dataType.simpleString() or explode.name == "line"


def test_a_struct_that_had_only_the_array_is_left_out_with_it(spark: SparkSession) -> None:
    alone = replace(
        orders(), record_ddl="id int, basket struct<lines: array<int>>", explode=Explode("n", "basket.lines")
    )

    assert analyse(alone, spark).names == ["id", "n", "kafka", "date"]
    kept = replace(alone, columns={"basket.lines": "basket.lines"})
    assert analyse(kept, spark)["basket"].dataType.simpleString() == "struct<lines:array<int>>"


@pytest.mark.parametrize(
    ("fields", "field", "said"),
    [
        ({"explode": Explode("n", "id")}, "explode.n", "it gives bigint, and only an array has elements"),
        ({"explode": Explode("n", "counts")}, "explode.n", "map_entries() makes an array of it"),
        ({"explode": Explode("n", "array()")}, "explode.n", "its elements are always null"),
        ({"explode": Explode("who", "tags")}, "explode.who", "there is something called who already"),
        ({"explode": Explode("KAFKA", "tags")}, "explode.KAFKA", "there is something called KAFKA already"),
        ({"explode": Explode("tag", "shuffle(tags)")}, "explode.tag", "it gives something else each time"),
        ({"explode": Explode("d", "array(current_date())")}, "explode.d", "it asks the clock"),
        ({"columns": {"a": "item.nothing"}}, "columns.a", "No such struct field `nothing`"),
        ({"columns": {"a": "explode(tags)"}}, "columns.a", "generator"),
        ({"columns": {"a": "(SELECT max(1) + item.qty)"}}, "columns.a", ""),
        ({"columns": {"a": "sum(item.qty)"}}, "columns.a", ""),
        ({"filter": "item.qty > 0"}, "filter", "`item`.`qty` cannot be resolved"),
        ({"expectations": {"e": Expectation("item.qty > 0")}}, "expectations.e", "`item`.`qty` cannot be resolved"),
        ({"mask": {"basket.lines": Mask("drop")}}, "mask.basket.lines", "the table has no such column"),
        ({"mask": {"kafka.index": Mask("drop")}}, "mask.kafka.index", "are never masked"),
        (
            {"mask": {"item.sku": Mask("drop")}, "dead_letter_payload": "mask"},
            "dead_letter_payload",
            "item.sku is made",
        ),
    ],
)
def test_what_elements_do_not_allow_is_named(
    spark: SparkSession, fields: dict[str, Any], field: str, said: str
) -> None:
    with pytest.raises(ShapeMistake) as refused:
        analyse(orders(**fields), spark)

    assert refused.value.field == field
    assert said in refused.value.message
