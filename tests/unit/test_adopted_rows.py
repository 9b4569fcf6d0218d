"""Tables that others wrote without coordinates: what is said of rows behind the checkpoint that is adopted."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kdi_assets.drain.adopt import adopted
from kdi_assets.drain.adopted_rows import AdoptedRows
from kdi_assets.drain.beyond import Beyond, Standing
from kdi_assets.drain.case import Case, NothingToResolve
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
    ("beyond", "said"),
    [
        (
            Beyond(rows={TP: 2}, ends={TP: 51}),
            "2 rows lie at or behind .* of orders/0 up to offset 51, and it ends at 50",
        ),
        (
            Beyond(untold=3),
            "3 rows at or behind these offsets have no timestamp to tell whether they are of an older topic",
        ),
    ],
)
def test_rows_behind_the_checkpoint_that_may_be_of_another_topic_are_refused(
    monkeypatch: pytest.MonkeyPatch, beyond: Beyond, said: str
) -> None:
    kafka = {"partition": "integer", "offset": "long", "timestamp": "timestamp"}
    log = SimpleNamespace(schema=schema_of(kafka), version=7)
    monkeypatch.setattr(Standing, "look", lambda standing: beyond)
    case = replace(the_case(log), session=lambda: None)  # type: ignore[arg-type,return-value]  # nobody looks

    with pytest.raises(NothingToResolve, match=said):
        AdoptedRows(case, {TP: 20}).beyond()


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
    assert AdoptedRows(the_case(SimpleNamespace(schema=schema_of(kafka))), {TP: 20}).have_coordinates == has


def test_a_column_that_is_no_struct_holds_no_coordinates() -> None:
    schema = {"fields": [{"name": "kafka", "type": "string"}]}

    assert not AdoptedRows(the_case(SimpleNamespace(schema=schema)), {TP: 20}).have_coordinates


def schema_of(kafka: dict[str, Any]) -> dict[str, Any]:
    """Of a table with a column of these."""
    inner = {"type": "struct", "fields": [{"name": name, "type": kind} for name, kind in kafka.items()]}
    return {"fields": [{"name": "Kafka", "type": inner}]}
