"""Dictionaries of columns in the files of drains, as their footers show them, and other readers of these files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kdi_assets.delta.log import TableLog
from kdi_assets.streams.audit.audit import audit
from kdi_assets.streams.drain import distinct_columns as rule
from kdi_assets.streams.drain import execute_plan
from kdi_assets.streams.drain.drain import drain
from tests.memory_source import MemoryMessage
from tests.oracle import read_back
from tests.readers import by_duckdb
from tests.spark.test_memory_source import NOON, P0, World

MESSAGES = 6_000
RECORD = "id string, sparse string, place struct<city: string, street: string>, tags array<string>"
Values = Callable[[int], object]


def nine(o: int) -> str:
    return f"value {o % 9}"


def distinct(o: int) -> str:
    return f"value {hash((o, o)):x}"


def few(o: int) -> str | None:
    return None if o % 8 else distinct(o)


class Requests(World):
    """A stream whose drains of ``MESSAGES`` are large ones."""

    def __init__(self, spark: SparkSession, lake: str) -> None:
        super().__init__(spark, lake)
        self.stream = replace(self.stream, record_ddl=RECORD)

    def drained(self, id: Values, *, city: Values = nine, sparse: Values = few) -> dict[str, bool]:
        """Drain new messages; whether each column has a dictionary in the largest new file."""
        log = self.source.log[P0]
        first = len(log)
        for o in range(first, first + MESSAGES):
            place = {"city": city(o), "street": f"street {hash((o, 1)):x}"}
            tags = [f"tag {hash((o, n)):x}" for n in range(2)]
            record = {"id": id(o), "sparse": sparse(o), "place": place, "tags": tags}
            log[o] = MemoryMessage(json.dumps(record), NOON + timedelta(seconds=o))
        uri = self.stream.table_uri(self.lake)
        before = table.file_uris if (table := TableLog.open(uri)) else frozenset()
        drain(self.stream, lake=self.lake, session=lambda: self.spark)
        return dictionaries(max(TableLog.existing(uri).file_uris - before, key=os.path.getsize))


def dictionaries(file: str) -> dict[str, bool]:
    group = pq.read_metadata(file).row_group(0)
    columns = [group.column(i) for i in range(group.num_columns)]
    assert {c.compression for c in columns} == {"ZSTD"}
    return {c.path_in_schema: c.has_dictionary_page for c in columns}


@pytest.fixture
def requests(spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch) -> Requests:
    monkeypatch.setattr(rule, "WORTH_IT", MESSAGES)
    monkeypatch.setattr(rule, "LARGE_DRAIN_OFFSETS", MESSAGES)
    return Requests(spark, lake)


def test_coordinates_that_differ_are_written_plain_and_what_repeats_with_a_dictionary(requests: Requests) -> None:
    """Purpose: a dictionary of times of neighbouring messages would pay by Parquet's rule, and make the file larger."""
    found = requests.drained(nine)

    assert all(found[column] for column in ("kafka.partition", "kafka.topic", "id", "place.city"))
    assert not found["kafka.offset"] and not found["kafka.timestamp"]
    assert len(read_back(requests.stream, requests.lake).rows) == MESSAGES


def test_what_the_newest_large_drain_kept_no_dictionary_of_is_written_plain_until_the_week_ends(
    requests: Requests, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: distinct ids, then ids that repeat: now in the same week, then seven days later by the plan's clock.
    Pass: only the first drain and that of the next week try a dictionary of ids; rows, audit and readers stay exact.
    """
    asked, later = rule.distinct_columns, timedelta(0)
    monkeypatch.setattr(
        execute_plan, "distinct_columns", lambda stream, plan: asked(stream, replace(plan, now=plan.now + later))
    )

    first = requests.drained(distinct)
    same_week = requests.drained(nine, city=distinct)
    later = timedelta(days=7)
    next_week = requests.drained(nine)

    assert (first["id"], same_week["id"], next_week["id"]) == (False, False, True)
    assert (first["place.city"], same_week["place.city"], next_week["place.city"]) == (True, False, True)
    for columns in (first, same_week, next_week):
        assert not columns["place.street"] and not columns["tags.list.element"]
    ids = sorted([*map(distinct, range(MESSAGES)), *map(nine, range(MESSAGES, 3 * MESSAGES))])
    uri = requests.stream.table_uri(lake)
    by_delta_rs = DeltaTable(uri).to_pyarrow_table(columns=["id"])
    assert sorted(by_delta_rs["id"].to_pylist()) == ids
    assert sorted(by_delta_rs.to_pandas()["id"]) == ids
    assert by_duckdb(uri, "id")["id"].to_pylist() == ids
    assert sorted(row["id"] for row in requests.spark.read.format("delta").load(uri).select("id").collect()) == ids
    assert audit(requests.stream, lake=lake, session=lambda: requests.spark).complete


def test_a_column_with_few_values_so_far_keeps_its_dictionary(requests: Requests) -> None:
    """Procedure: 750 distinct values among nulls, which no dictionary pays for; then a value in each row."""
    assert not requests.drained(distinct)["sparse"]

    second = requests.drained(distinct, sparse=nine)

    assert second["sparse"] and not second["id"]
