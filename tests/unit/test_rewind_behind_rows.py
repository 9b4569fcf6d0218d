"""Rewind behind the rows where the log no longer tells of rows that stayed behind a position that was set back."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kdi_assets.drain.beyond import Beyond, Standing
from kdi_assets.drain.case import Case
from kdi_assets.drain.resolve import decide
from kdi_assets.drain.rewind import Target, rewound
from kdi_assets.ledger.anew import ENDLESS
from kdi_assets.ledger.log import TableLog
from kdi_assets.ledger.state import partition_id, standing_txn_id, table_txn_id, topic_txn_id, version_id
from kdi_assets.sources.kafka import BrokerOffsets, TopicState
from kdi_assets.stream import OffsetRange, TopicPartition
from tests.table_by_hand import TOPIC, TableByHand, orders

P0, P1 = (TopicPartition(TOPIC, n) for n in range(2))
TOPIC_NOW = TopicState(TOPIC, "topic", {tp: BrokerOffsets(0, 50, 50) for tp in (P0, P1)})
AGO = timedelta(minutes=1)


@pytest.fixture
def rewound_to_8(lake: str) -> TableByHand:
    """Version 1: a decision set topic partition 0 back to 8, and left rows up to 29; the other one stands at 20."""
    table = TableByHand(lake)
    said = {partition_id(TOPIC, 0): 7, partition_id(TOPIC, 1): 19}
    names = (version_id(TOPIC), topic_txn_id(TOPIC, "topic"), table_txn_id(TOPIC, "t"), standing_txn_id(TOPIC))
    ids = said | dict.fromkeys(names, 1)
    table.commit(*({"txn": {"appId": name, "version": at}} for name, at in ids.items()), ago=AGO, userMetadata="{}")
    return table


def the_case(lake: str, monkeypatch: pytest.MonkeyPatch) -> Case:
    monkeypatch.setattr(Case, "behind_rows", lambda case: {P0: 30, P1: 20})
    stream = orders()
    log = TableLog.existing(stream.table_uri(lake))

    def nobody() -> None:
        raise AssertionError("no session is needed")

    return Case(stream, lake, TOPIC_NOW, log, "rewind", nobody)  # type: ignore[arg-type]


def forget(table: TableByHand, version: int) -> None:
    """As someone's clean-up of the log does, behind a checkpoint."""
    DeltaTable(str(table.log.parent)).create_checkpoint()
    Path(table.log / f"{version:020}.json").unlink()


def test_positions_stay_in_front_of_rows_that_were_to_be_drained_again(
    lake: str, rewound_to_8: TableByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewound_to_8.commit(ago=AGO, operation="OPTIMIZE")
    forget(rewound_to_8, 1)
    case = the_case(lake, monkeypatch)

    proposal = rewound(case, Target())

    assert case.ledger is None
    assert (proposal.after, proposal.rows_until) == ({P0: 8, P1: 20}, {P0: 30})
    assert f"these are drained again: {P0} [8, 30)" in proposal.reason
    monkeypatch.setattr("kdi_assets.drain.resolve.read_topic", lambda cluster, topic: TOPIC_NOW)
    monkeypatch.setattr(Standing, "look", lambda standing: Beyond(rows={P0: 22}, ends={P0: 30}))
    decision, removing = (
        decide(case.stream, lake, "rewind", rows=rows, session=lambda: None)  # type: ignore[arg-type,return-value]
        for rows in ("keep", "remove")
    )
    assert (decision.after, decision.rows_until) == (proposal.after, proposal.rows_until)
    assert (removing.after, removing.rows_until) == (proposal.after, {})
    assert removing.removes == {P0: OffsetRange(P0, 8, ENDLESS)}


def test_what_is_not_drained_again_behind_a_restore_is_said(
    lake: str, rewound_to_8: TableByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewound_to_8.commit(ago=AGO, operation="RESTORE")
    rewound_to_8.commit(ago=AGO, operation="OPTIMIZE")
    forget(rewound_to_8, 2)

    proposal = rewound(the_case(lake, monkeypatch), Target())

    assert (proposal.after, proposal.rows_until) == ({P0: 30, P1: 20}, {})
    assert "rewind there once more" in proposal.reason
