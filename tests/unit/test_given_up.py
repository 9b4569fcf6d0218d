"""What is given up: offsets of which nothing is left, whoever has rows behind them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kdi_assets.drain import given_up as giving_up
from kdi_assets.drain.given_up import given_up, losses
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.history import LiveHistory
from kdi_assets.sources.kafka import BrokerOffsets, TopicState
from tests.table_by_hand import TOPIC, orders
from tests.unit.test_anew import P0, P1, r, said


def the_case(monkeypatch: pytest.MonkeyPatch, *entries: LedgerEntry, until: int) -> Any:
    """The position is 100, and the broker has the topic from 300 on."""
    monkeypatch.setattr(giving_up, "live_history", lambda *_, **__: LiveHistory(9, entries, 0, ()))
    return SimpleNamespace(
        ledger=SimpleNamespace(rows_until={P0: until}),
        before={P0: 100, P1: 5},
        topic=TopicState(TOPIC, "topic", {P0: BrokerOffsets(300, 700, 700), P1: BrokerOffsets(0, 5, 5)}),
        stream=orders(),
        lake="",
        log=SimpleNamespace(uri=""),
    )


def test_rows_behind_an_adopted_checkpoint_do_not_say_that_all_before_them_was_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another query began at 500."""
    case = the_case(monkeypatch, said(9, "resolve", 100, until=600), until=600)

    proposal = given_up(case, None, None)

    assert losses(case, proposal.after) == (r(100, 300),)
    assert proposal.reason == "200 offsets are given up and recorded as lost"


def test_what_a_drain_had_read_keeps_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    drained, back = said(8, "drain", 250, r(0, 250)), said(9, "resolve", 100, until=600)
    case = the_case(monkeypatch, drained, back, until=600)
    monkeypatch.setattr(giving_up, "_open_letters", lambda case, after: 0)

    proposal = given_up(case, None, None)

    assert losses(case, proposal.after) == (r(250, 300),)
    assert proposal.reason.endswith("; 150 more are not drained again and keep the rows that they have")
