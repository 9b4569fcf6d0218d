"""What Kafka still holds against rows and dead letters: deep types and maps too, and nothing but real differences."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from deltalake import DeltaTable, write_deltalake

from kdi_assets.drain.compare import Comparison, compare
from kdi_assets.drain.refusals import SchemaDisagrees
from kdi_assets.ledger.report import Hole
from kdi_assets.stream import DateWindow, OffsetRange, TopicPartition
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream

DEEP: dict[str, Any] = {
    "record_ddl": "id bigint, tags map<string, array<struct<a: int, b: timestamp>>>, price double, at date",
    "columns": {"half": "id / 2"},
    "date_expression": "at",
    "coordinates": "kafka",
}


def deep(number: int) -> str:
    tags = {"x": [{"a": number, "b": "2026-03-01T12:00:00.123456Z"}, {"a": None}], "y": []}
    return json.dumps({"id": number, "tags": tags, "price": number / 3, "at": f"2026-03-0{1 + number % 3}"})


def compared(web: DrivenStream) -> Comparison:
    return compare(web.stream, lake=web.lake, session=web.session)


def test_rows_letters_and_tombstones_agree_with_what_kafka_holds(driven: DrivenFactory) -> None:
    web = driven(partitions=2, **DEEP)
    tp = TopicPartition(web.stream.topic, 0)
    web.publisher.produce_all(web.stream.topic, [*map(deep, range(12)), None, "bad", None], partition=0)
    web.publisher.produce(web.stream.topic, "also bad", key="k", headers=[("h", b"\x00\xff"), ("n", None)], partition=1)
    web.publisher.flush()
    web.drain()

    agreed = compared(web)
    later = compare(
        replace(web.stream, date_window=DateWindow(start=date(2026, 3, 2))), lake=web.lake, session=web.session
    )
    DeltaTable(web.uri).delete("id < 2")
    deleted = compared(web)

    assert (agreed.messages, agreed.agreed, agreed.agrees) == (16, 16, True)
    assert agreed.ranges == (OffsetRange(tp, 0, 15), OffsetRange(TopicPartition(web.stream.topic, 1), 0, 1))
    assert later.agrees  # the window of dates has moved on; what lies there is what the messages say
    assert (deleted.agreed, deleted.agrees) == (16, True)


def test_what_was_changed_or_taken_is_named_with_the_commit_that_brought_it(driven: DrivenFactory) -> None:
    """Procedure: compare by another definition; update rows and a letter; then an overwrite leaves rows out."""
    web = driven(partitions=1, **DEEP)
    web.publisher.produce_all(web.stream.topic, [*map(deep, range(5)), "bad"], partition=0)
    web.drain()
    web.publisher.produce_all(web.stream.topic, map(deep, range(5, 8)), partition=0)
    web.drain()

    other = compared(web.with_definition(columns={"half": "id / 4"}))
    with pytest.raises(SchemaDisagrees):
        compared(web.with_definition(columns={"half": "id / 4", "third": "id / 3"}))
    spark = web.session()
    spark.sql(f"UPDATE delta.`{web.uri}` SET price = price + 1e-9 WHERE id IN (3, 4)")
    moment = "timestamp'2026-03-01 12:00:00.123457Z'"
    spark.sql(
        f"UPDATE delta.`{web.uri}` SET tags = map('x', array(named_struct('a', 6, 'b', {moment}), "
        "named_struct('a', NULL, 'b', NULL)), 'y', array()) WHERE id = 6"
    )
    DeltaTable(web.stream.dead_letters_uri(web.lake)).update(updates={"value": "CAST('other' AS BYTEA)"})
    report, comparison = web.audit(), compared(web)
    rows = DeltaTable(web.uri).to_pyarrow_table()
    write_deltalake(web.uri, rows.filter([i.as_py() not in (0, 1) for i in rows["id"]]), mode="overwrite")
    overwritten = compared(web)

    assert (other.changed, other.agreed) == (7, 2)  # of 0 both are 0
    assert any("definition" in note for note in other.notes)
    assert report.complete  # every offset is there, once
    assert (comparison.changed, comparison.agreed, comparison.absent) == (4, 5, 0)
    assert places(comparison.changed_at) == [(3, 6, 1), (7, 8, 2)]
    assert any("v3 UPDATE, v4 UPDATE" in note for note in comparison.notes)
    assert "4 changed" in comparison.line()
    assert (overwritten.absent, overwritten.changed) == (2, 4)
    assert places(overwritten.absent_at) == [(0, 2, 1)]


def places(holes: Sequence[Hole]) -> list[tuple[int, int, int]]:
    return [(at.range.start, at.range.end, at.version) for at in holes]
