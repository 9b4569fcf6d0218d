"""Tables of Structured Streaming queries whose rows do not say where their message stood."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from kdi_assets.drain.adopt import adopted
from kdi_assets.drain.case import Case
from kdi_assets.ledger.log import TableLog
from kdi_assets.sources.kafka import BrokerOffsets, TopicState
from tests.table_by_hand import TOPIC, TP, TableByHand, orders

AGO = timedelta(minutes=1)


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


def test_what_another_writer_may_have_brought_is_said_where_rows_do_not_tell(lake: str, checkpoint: Path) -> None:
    def reason() -> str:
        log, topic = (
            TableLog.existing(orders().table_uri(lake)),
            TopicState(TOPIC, "id", {TP: BrokerOffsets(0, 50, 50)}),
        )

        def nobody() -> None:
            raise AssertionError("no session is needed")

        case = Case(orders(), lake, topic, log, "adopt", nobody)  # type: ignore[arg-type]
        proposal = adopted(case, str(checkpoint))
        assert proposal.after == {TP: 20}
        return proposal.reason

    table = TableByHand(lake)
    foreach_batch = reason()  # the table names no query
    table.commit({"txn": {"appId": "q", "version": 3}}, ago=AGO, operation="STREAMING UPDATE")
    table.commit(ago=AGO, operation="OPTIMIZE")
    alone = reason()
    table.commit(ago=AGO, operation="WRITE")
    table.commit(ago=AGO, operation="DELETE")

    assert foreach_batch.endswith("what another writer brought behind these offsets comes twice")
    assert alone.endswith("which must never run again")
    assert reason().endswith("what another writer brought behind these offsets comes twice")
