"""Which columns a drain writes without a dictionary, before anything is read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kdi_assets.delta.dictionaries import without_dictionary
from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.message_rules import Explode
from kdi_assets.streams.drain.distinct_columns import distinct_columns
from tests.table_by_hand import TableByHand
from tests.unit.ledger.plans import P0, ledger, orders, plan, topic

WEDNESDAY = datetime(2026, 5, 6, 12, tzinfo=UTC)
PART = "part-0.parquet"


class Drained:
    """A table whose drains were on Wednesday by default."""

    def __init__(self, lake: Path) -> None:
        self.by_hand = TableByHand(lake, now=WEDNESDAY)
        self.folder = self.by_hand.log.parent

    def drain(self, messages: int, columns: dict[str, Any], *, dictionaries: Collection[str], days: int = 0) -> None:
        """A drain some days before; only some columns of its file have a dictionary."""
        pq.write_table(pa.table(columns), self.folder / PART, use_dictionary=list(dictionaries))
        files = {WEDNESDAY.date(): [(self.folder / PART).stat().st_size]}
        self.by_hand.drain(messages, ago=timedelta(days=days), files=files)

    def distinct(self, *, offsets: int = 50_000, days: int = 0) -> Collection[str]:
        """What is asked of a drain of so many offsets, some days later."""
        log = TableLog.existing(str(self.folder))
        planned = plan(ledger({P0: 0}, log=log, uri=log.uri), topic({P0: (0, offsets)}))
        return distinct_columns(orders(), replace(planned, now=WEDNESDAY + timedelta(days=days)))


@pytest.fixture
def table(tmp_path: Path) -> Drained:
    return Drained(tmp_path)


def values(count: int) -> dict[str, Any]:
    """An id and a place in each of so many rows, the other ones empty."""
    texts = [f"value {n}" if n < count else None for n in range(10_000)]
    return {"id": texts, "place": pa.array([{"city": text, "street": text} for text in texts])}


COORDINATES = {"kafka.offset", "kafka.timestamp"}
LARGE = topic({P0: (0, 50_000)})


def test_coordinates_go_by_the_name_of_their_column_in_the_document() -> None:
    first = plan(ledger({P0: 0}, log=None), LARGE)

    named = distinct_columns(orders(coordinates="meta.kafka"), first)

    assert named == {"meta.kafka.offset", "meta.kafka.timestamp"}
    assert without_dictionary(named)["parquet.enable.dictionary#meta.kafka.offset"] == "false"
    kinesis = replace(orders(coordinates="kinesis"), cluster=KinesisRegion("eu", "eu-central-1"))
    assert "kinesis.sequence_number" in distinct_columns(kinesis, first)


def test_the_rows_of_one_message_repeat_its_coordinates() -> None:
    exploded = orders(explode=Explode("item", "items"))

    assert not distinct_columns(exploded, plan(ledger({P0: 0}, log=None), LARGE))


def test_the_newest_large_drain_shows_it_to_large_plans(table: Drained) -> None:
    """Procedure: a large drain; a newer one of few rows, whose columns all have dictionaries."""
    table.drain(10_000, values(10_000), dictionaries=["place.city"])
    pq.write_table(pa.table(values(100)), table.folder / "small.parquet")
    table.by_hand.drain(9_999, ago=timedelta(0))

    assert table.distinct() == COORDINATES | {"id", "place.street"}
    assert not table.distinct(offsets=49_999)


def test_a_drain_of_another_week_shows_nothing(table: Drained) -> None:
    table.drain(10_000, values(10_000), dictionaries=[])

    assert table.distinct(days=4) == COORDINATES | {"id", "place.city", "place.street"}, "Sunday"
    assert table.distinct(days=5) == COORDINATES


def test_a_column_with_few_values_shows_nothing(table: Drained) -> None:
    """Pass: nulls do not count; of 1,000 values the rule holds."""
    table.drain(10_000, values(999), dictionaries=[])
    assert table.distinct() == COORDINATES

    table.drain(10_000, values(1_000), dictionaries=[])
    assert "id" in table.distinct()


def test_a_file_that_is_damaged_or_gone_shows_nothing(table: Drained) -> None:
    table.drain(10_000, values(10_000), dictionaries=[])
    (table.folder / PART).unlink()

    assert table.distinct() == COORDINATES
