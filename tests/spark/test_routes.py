"""Routes: the table of a message, in a topic that several tables share; each table is judged by itself."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.message_format import Avro, Csv, SchemaFile, Text
from kdi_assets.documents.model.message_rules import Rest, Route, TombstonePolicy
from kdi_assets.documents.model.stream import Stream
from kdi_assets.streams.ledger.entry import FieldCounts
from kdi_assets.streams.rules.errors import ShapeMistake
from kdi_assets.streams.rules.shape import analyse
from tests.formats.avro_bytes import datum
from tests.judged import Message, judged, stream_of

DDL = "kind string, id int, n string"
ORDER, REFUND, BOTH = (f'{{"kind":"{kind}","id":1,"n":"1"}}' for kind in ("order", "refund", "both"))
OTHER, NO_KIND, BAD = '{"kind":"?","id":1,"n":"1"}', '{"id":1,"n":"1"}', '{"kind":"order"'
WITH_MORE = '{"kind":"order","id":1,"n":"1","more":{"x":1}}'
RAISES, UNSUITED = '{"kind":"order","id":0,"n":"1"}', '{"kind":"order","id":1,"n":"no"}'
MESSAGES: Sequence[Message | bytes | str | None] = (ORDER, REFUND, BOTH, OTHER, NO_KIND, BAD, RAISES, UNSUITED, None)


def group(rest: Rest = "dead_letters", **fields: Any) -> dict[str, Stream]:
    """Orders and refunds, whose condition raises where the id is 0, and a third table with the rest."""
    conditions = {"orders": "kind IN ('order', 'both')", "refunds": "kind IN ('refund', 'both') OR 1 / id > 2"}
    made = {name: Route(when) for name, when in conditions.items()}
    made["others"] = Route("kind = 'other'", rest, conditions)
    stream = stream_of(DDL, columns={"number": "CAST(n AS INT)"}, **fields)
    return {name: replace(stream, table=name, route=route) for name, route in made.items()}


def outcomes(spark: SparkSession, stream: Stream, messages: Sequence[Message | bytes | str | None]) -> dict[int, str]:
    """The outcome of each message by its offset: a row, or a reason and its field; nothing if it leaves no trace.

    The counts must equal what is there.
    """
    seen = judged(spark, stream, messages)
    found = {row["kafka"]["offset"]: "row" for row in seen.rows}
    found |= {letter["offset"]: " ".join(filter(None, (letter["reason"], letter["field"]))) for letter in seen.letters}
    assert (seen.counts.rows, seen.counts.dead_letters) == (len(seen.rows), len(seen.letters))
    assert seen.counts.rows + sum(seen.counts.not_rows.values()) == seen.counts.messages == len(messages)
    return found


@pytest.mark.core
def test_a_message_is_a_row_where_a_condition_takes_it_and_else_a_dead_letter_of_the_rest(spark: SparkSession) -> None:
    """Pass: a message with two true conditions is in both tables; one whose condition raises is also kept with the
    rest.
    """
    found = {name: outcomes(spark, stream, MESSAGES) for name, stream in group().items()}

    assert found["orders"] == {0: "row", 2: "row", 6: "row", 7: "expression_failed columns.number"}
    assert found["refunds"] == {1: "row", 2: "row"}
    more = judged(spark, group()["orders"], [ORDER, WITH_MORE]).counts.unknown.fields
    assert more == FieldCounts(1, {"more": 1})
    assert found["others"] == {
        3: "unrouted",
        4: "unrouted",
        5: "malformed_json",
        6: "expression_failed route.when of refunds",
    }


def test_a_rest_of_rows_takes_what_nobody_takes_and_undecoded_messages_are_its_letters(spark: SparkSession) -> None:
    others = group("rows")["others"]
    nothing_else = replace(others, route=replace(others.route or Route(), when=""))

    for stream in (others, nothing_else):
        assert outcomes(spark, stream, MESSAGES) == {
            3: "row",
            4: "row",
            5: "malformed_json",
            6: "expression_failed route.when of refunds",
        }
    assert outcomes(spark, others, ['{"kind":"other","id":1,"n":"no"}', BOTH]) == {
        0: "expression_failed columns.number"
    }


def test_filter_and_expectations_are_asked_of_what_is_routed_here_alone(spark: SparkSession) -> None:
    orders = replace(group()["orders"], filter="CAST(n AS INT) > 0")

    assert outcomes(spark, orders, MESSAGES) == {0: "row", 2: "row", 6: "row", 7: "expression_failed filter"}
    assert outcomes(spark, replace(orders, filter="id > 5"), MESSAGES) == {}


def test_tombstones_are_nobodys_or_routed_by_their_keys_or_letters_of_the_rest(spark: SparkSession) -> None:
    messages: list[Message | bytes | str | None] = [Message(None, key=b"order"), Message(None, key=b"x"), ORDER]
    by_key = "kind = 'order' OR CAST(kafka.key AS STRING) = 'order'"

    def found(policy: TombstonePolicy) -> list[dict[int, str]]:
        stream = stream_of(DDL, tombstones=policy)
        routes = Route(by_key), Route(rest="dead_letters", others={"orders": by_key})
        return [outcomes(spark, replace(stream, route=route), messages) for route in routes]

    assert found("skip") == [{2: "row"}, {}]
    assert found("row") == [{0: "row", 2: "row"}, {1: "unrouted"}]
    assert found("dead_letter") == [{2: "row"}, {0: "tombstone", 1: "tombstone"}]


def test_messages_of_every_kind_of_decoder_are_routed(spark: SparkSession) -> None:
    """Pass: those of a decoder with its own document, of one without, and compressed ones."""
    fields = [{"name": "kind", "type": "string"}, {"name": "id", "type": "int"}]
    schema = {"type": "record", "name": "Event", "fields": fields}
    order, other = ({"kind": kind, "id": 1} for kind in ("order", "?"))
    kinds: list[tuple[str, dict[str, Any], list[Message | bytes | str | None]]] = [
        (
            "",
            {"format": Avro(SchemaFile("event.avsc", json.dumps(schema)))},
            [datum(schema, order), datum(schema, other)],
        ),
        ("kind string, id int", {"format": Csv()}, ["order,1", "?,1"]),
        ("kind string", {"format": Text()}, ["order", "?"]),
        (
            "kind string, id int",
            {"compression": "gzip"},
            [gzip.compress(json.dumps(e).encode()) for e in (order, other)],
        ),
    ]

    for ddl, said, messages in kinds:
        stream = stream_of(ddl, **said, route=Route("kind = 'order'", "dead_letters"))
        found = outcomes(spark, stream, [*messages, b"\xff", None])
        assert found.pop(2) in ("malformed_avro", "invalid_utf8", "not_gzip"), said
        assert found == {0: "row", 1: "unrouted"}, said


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("knd = 'order'", "`knd` cannot be resolved"),
        ("kind", "it gives string; a condition is true or false"),
        ("rand() < 0.5", "something else each time"),
        ("kafka.timestamp < now()", "it asks the clock"),
        ("count(*) OVER () > 1", "a window function looks at other messages"),
        ("explode(array(true))", "explode"),
    ],
)
def test_a_condition_that_is_none_or_changes_with_time_is_refused(spark: SparkSession, when: str, said: str) -> None:
    with pytest.raises(ShapeMistake) as own:
        analyse(stream_of(DDL, route=Route(when)), spark)
    with pytest.raises(ShapeMistake) as others:
        analyse(stream_of(DDL, route=Route(rest="rows", others={"orders": when})), spark)

    assert (own.value.field, others.value.field) == ("route.when", "route.when of orders")
    assert said.lower() in own.value.message.lower()
