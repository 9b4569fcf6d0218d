"""What a plan is made of, as plain values: stream, ledger, topic."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from kdi_assets.documents.model.stream import Cluster, Stream, TopicPartition
from kdi_assets.messages.topic_state import BrokerOffsets, TopicState
from kdi_assets.streams.drain.plan import Plan, plan_drain
from kdi_assets.streams.ledger.positions import LedgerState

NOW = datetime(2026, 5, 5, tzinfo=UTC)
P0, P1, P2 = (TopicPartition("orders", n) for n in range(3))


def orders(**fields: Any) -> Stream:
    main = Cluster("main", "nowhere:1")
    given = {"topic": "orders", "table": "bronze/orders", "record_ddl": "a int", "date_expression": "x", **fields}
    return Stream(cluster=main, **given)


def ledger(positions: dict[TopicPartition, int], **fields: Any) -> LedgerState:
    ids = {f"orders-{tp.partition}": at - 1 for tp, at in positions.items()}
    known = {"table_id_matches": True, "topic_id_matches": True, "restored_to": None, "entry": None}
    given: dict[str, Any] = {"version": 7, "ledger_version": 7, "positions": positions, "transactions": ids, **known}
    return LedgerState(**{"uri": "/lake/bronze/orders", "table_id": "table", **given, **fields})


def topic(held: dict[TopicPartition, tuple[int, int]], *, open_offsets: int = 0) -> TopicState:
    offsets = {tp: BrokerOffsets(earliest, end, end + open_offsets) for tp, (earliest, end) in held.items()}
    return TopicState("orders", "topic-id", offsets)


def plan(state: LedgerState, held: TopicState, *, stream: Stream | None = None, **options: Any) -> Plan:
    return plan_drain(stream or orders(), ledger=state, topic=held, now=NOW, **options)
