"""Exactly the offsets that a refusal names are given up, or nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kdi_assets.drain import given_up as giving_up
from kdi_assets.drain.case import NothingToResolve
from kdi_assets.drain.given_up import given_up, losses
from kdi_assets.ledger.history import LiveHistory
from kdi_assets.sources.kafka import BrokerOffsets, TopicState
from kdi_assets.stream import OffsetRange, TopicPartition
from tests.table_by_hand import TOPIC, orders

P0 = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("start", "said"),
    [(300, "what lies between is to be drained first"), (50, "what lies before the position is not given up")],
)
def test_a_loss_is_declared_from_the_position_on_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch, start: int, said: str
) -> None:
    monkeypatch.setattr(giving_up, "live_history", lambda *_, **__: LiveHistory(9, (), 0, ()))
    case: Any = SimpleNamespace(
        ledger=SimpleNamespace(),
        before={P0: 100},
        topic=TopicState(TOPIC, "topic", {P0: BrokerOffsets(80, 700, 700)}),
        stream=orders(),
        lake="",
        log=SimpleNamespace(uri=""),
        no=lambda detail, then="": NothingToResolve(stream="orders", action="accept-loss", detail=detail, then=then),
    )

    with pytest.raises(NothingToResolve, match=said):
        given_up(case, P0, 301, start=start)
    exactly = given_up(case, P0, 301, start=100)

    assert losses(case, exactly.after) == (OffsetRange(P0, 100, 301),)
    assert exactly.reason == "201 offsets are given up and recorded as lost; the broker still holds up to 201 of them"
