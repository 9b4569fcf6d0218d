"""A table that is missing or has no positions: where a drain starts, and where it refuses to."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from kdi_assets.drain.refusals import RowsWithoutPositions, TableMissing
from kdi_assets.drain.settle import Settlement
from kdi_assets.drain.survey import survey
from kdi_assets.sources.kafka import BrokerOffsets, TopicState
from tests.table_by_hand import TOPIC, TP, TableByHand, data_file, orders, position

pytestmark = pytest.mark.scenario("table replaced, dropped or cloned")

NOW = timedelta()


def settlement(lake: str) -> Settlement | None:
    """What a drain of ten waiting messages would commit first."""
    return survey(orders(), lake, TopicState(TOPIC, "topic", {TP: BrokerOffsets(0, 10, 10)})).settlement


@pytest.mark.parametrize("statistics", [None, {"numRecords": 10}, {"maxValues": {"kafka": {"offset": 9}}}])
def test_data_files_without_positions_are_refused_whatever_their_statistics_say(
    lake: str, statistics: dict[str, object] | None
) -> None:
    file = data_file(1, datetime.now(UTC).date(), rows=10)
    file["add"]["stats"] = json.dumps(statistics) if statistics else None
    TableByHand(lake).commit(file, ago=NOW)

    with pytest.raises(RowsWithoutPositions, match=r"no positions.*\n.*\n.*kdi resolve .* adopt"):
        settlement(lake)


def test_an_empty_table_starts_and_one_with_positions_of_another_writer_is_taken_over(lake: str) -> None:
    table = TableByHand(lake)
    empty = settlement(lake)
    table.commit(data_file(1, datetime.now(UTC).date(), rows=5), position(TOPIC, 5), ago=NOW)
    ingested = settlement(lake)

    assert empty and ingested
    assert (empty.kind, empty.positions) == ("start", {TP: 0})
    assert (ingested.kind, ingested.positions) == ("takeover", {TP: 5})


@pytest.mark.parametrize("beside", ["_dead_letters", "_ledger", "_removed"])
def test_a_missing_table_is_not_made_again_while_what_belongs_to_it_lies_beside_its_place(
    lake: str, beside: str
) -> None:
    neighbour = orders().table_uri(lake) + beside
    write_deltalake(neighbour, pa.table({"id": [1]}))

    with pytest.raises(TableMissing, match=rf"{beside} lies beside.*\n.*\n.*put the table back; or, .* mv "):
        settlement(lake)
    Path(neighbour).rename(f"{lake}/elsewhere")
    started = settlement(lake)

    assert started and started.creates
