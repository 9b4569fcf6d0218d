"""Tables that others wrote without coordinates: what is said of rows behind the checkpoint that is adopted."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kdi_assets.drain.adopt import adopted
from kdi_assets.drain.adopted_rows import AdoptedRows
from kdi_assets.drain.case import Case
from kdi_assets.ledger.log import TableLog
from kdi_assets.sources.kafka import BrokerOffsets, TopicState
from tests.table_by_hand import TOPIC, TP, TableByHand, orders

AGO = timedelta(minutes=1)


def the_case(log: Any, lake: str = "") -> Case:
    def nobody() -> None:
        raise AssertionError("no session is needed")

    topic = TopicState(TOPIC, "topic", {TP: BrokerOffsets(0, 50, 50)})
    return Case(orders(), lake, topic, log, "adopt", nobody)  # type: ignore[arg-type]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of query ``q``, which did batch 3 up to offset 20."""
    for folder, name, text in (
        ("offsets", "3", f"v1\n{{}}\n{json.dumps({TOPIC: {'0': 20}})}"),
        ("commits", "3", "v1\n{}"),
        (".", "metadata", '{"id": "q"}'),
    ):
        (tmp_path / "checkpoint" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "checkpoint" / folder / name).write_text(text)
    return tmp_path / "checkpoint"


def test_who_may_have_brought_rows_behind_the_checkpoint_is_said_where_rows_do_not_tell(
    lake: str, checkpoint: Path
) -> None:
    def reason() -> str:
        proposal = adopted(the_case(TableLog.existing(orders().table_uri(lake)), lake), str(checkpoint))
        assert (proposal.after, proposal.rows_until) == ({TP: 20}, {})
        return proposal.reason

    table = TableByHand(lake)
    unknown = reason()  # of `foreachBatch`: the table names no query
    table.commit({"txn": {"appId": "q", "version": 3}}, ago=AGO, operation="STREAMING UPDATE")
    table.commit(ago=AGO, operation="OPTIMIZE")
    alone = reason()
    table.commit(ago=AGO, operation="WRITE")
    table.commit(ago=AGO, operation="DELETE")

    assert unknown.endswith(
        "; no row of it says where the message stood: what another writer brought behind these offsets comes twice"
    )
    assert alone.endswith("which must never run again")
    assert "; commit 3 (WRITE) came behind that batch, and no row of it says where" in reason()


@pytest.mark.parametrize(
    ("kafka", "has"),
    [
        ({"partition": "integer", "offset": "long", "timestamp": "timestamp"}, True),
        ({"Partition": "integer", "OFFSET": "long", "timestamp": "timestamp", "key": "binary"}, True),
        ({"partition": "integer", "offset": "long"}, False),
        ({"partition": "integer", "offset": "long", "timestamp": "long"}, False),
        ({"partition": "integer", "offset": "long", "timestamp": {"type": "struct", "fields": []}}, False),
        ({}, False),
    ],
)
def test_coordinates_are_a_struct_of_three_of_their_types(kafka: dict[str, Any], has: bool) -> None:
    inner = {"type": "struct", "fields": [{"name": name, "type": kind} for name, kind in kafka.items()]}
    for schema in ({"fields": [{"name": "Kafka", "type": inner}]}, {"fields": [{"name": "kafka", "type": "string"}]}):
        rows = AdoptedRows(the_case(SimpleNamespace(schema=schema)), {TP: 20})
        assert rows.have_coordinates == (has and isinstance(schema["fields"][0]["type"], dict))
