"""Which columns a drain writes without a dictionary, before anything is read."""

from __future__ import annotations

import pytest

from kdi_assets.delta.dictionaries import without_dictionary
from kdi_assets.documents.model.message_rules import Explode
from kdi_assets.streams.drain.distinct_columns import distinct_columns, distinct_coordinates
from tests.unit.ledger.plans import P0, ledger, orders, plan, topic


def test_coordinates_go_by_the_documents_name_of_their_column() -> None:
    named = distinct_coordinates(orders(coordinates="meta.kafka"))

    assert named == {"meta.kafka.offset", "meta.kafka.timestamp", "meta.kafka.sequence_number"}
    assert without_dictionary(named)["parquet.enable.dictionary#meta.kafka.offset"] == "false"


def test_the_rows_of_one_message_repeat_its_coordinates() -> None:
    assert not distinct_coordinates(orders(explode=Explode("item", "items")))


@pytest.mark.parametrize("offsets", [100_000, 100_001])
def test_without_a_table_there_is_no_drain_to_learn_from(offsets: int) -> None:
    state = ledger({P0: 0}, log=None)

    assert distinct_columns(orders(), plan(state, topic({P0: (0, offsets)}))) == frozenset()
