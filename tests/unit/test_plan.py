"""Planning: which ranges, and which refusals; ledger and broker are plain values here."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kdi_assets.drain.plan import Plan, PositionBelowStart, StartOutOfRange, plan_drain
from kdi_assets.drain.refusals import (
    BrokerEndBelowPosition,
    RetentionPassedPosition,
    TableReplaced,
    TopicPartitionVanished,
    TopicRecreated,
)
from kdi_assets.drain.settle import Settlement, unsettled
from kdi_assets.ledger.state import LedgerState
from kdi_assets.sources.kafka import BrokerOffsets, TopicState
from kdi_assets.stream import KafkaCluster, OffsetRange, Stream, TopicPartition

NOW = datetime(2026, 5, 5, tzinfo=UTC)
P0, P1, P2 = (TopicPartition("orders", n) for n in range(3))


def orders(**fields: Any) -> Stream:
    main = KafkaCluster("main", "nowhere:1")
    given = {"topic": "orders", "table": "bronze/orders", "record_ddl": "a int", "date_expression": "x", **fields}
    return Stream(cluster=main, **given)


def ledger(positions: dict[TopicPartition, int], **fields: Any) -> LedgerState:
    given: dict[str, Any] = {
        "uri": "/lake/bronze/orders",
        "version": 7,
        "table_id": "table",
        "ledger_version": 7,
        "positions": positions,
        "transactions": {f"orders-{tp.partition}": at - 1 for tp, at in positions.items()},
        "restored_to": None,
        "knows_table": True,
        "knows_topic": True,
        "entry": None,
        **fields,
    }
    return LedgerState(**given)


def topic(held: dict[TopicPartition, tuple[int, int]], *, open_offsets: int = 0) -> TopicState:
    offsets = {tp: BrokerOffsets(earliest, end, end + open_offsets) for tp, (earliest, end) in held.items()}
    return TopicState("orders", "topic-id", offsets)


def plan(state: LedgerState, held: TopicState, *, stream: Stream | None = None, **options: Any) -> Plan:
    return plan_drain(stream or orders(), ledger=state, topic=held, now=NOW, **options)


def test_a_plan_reads_from_the_positions_to_the_last_stable_offsets() -> None:
    planned = plan(ledger({P0: 10, P1: 5}), topic({P0: (0, 12), P1: (0, 5)}, open_offsets=4))

    assert planned.ranges == (OffsetRange(P0, 10, 12),)
    assert planned.positions_after == {P0: 12, P1: 5}
    assert planned.version == 7


def test_a_plan_reads_no_further_than_it_is_told_and_each_plan_is_an_attempt_of_its_own() -> None:
    state, held = ledger({P0: 0}), topic({P0: (0, 100)})

    first, second = (plan(state, held, until={P0: 60}) for _ in range(2))

    assert first.ranges == second.ranges == (OffsetRange(P0, 0, 60),)
    assert first.attempt_id != second.attempt_id


@pytest.mark.parametrize(("ends", "most", "counts"), [((10, 1000, 1000), 110, [10, 50, 50]), ((10, 10, 10), 1, [1])])
def test_max_records_takes_short_ranges_whole_and_cuts_long_ones_evenly(
    ends: tuple[int, ...], most: int, counts: list[int]
) -> None:
    tps = (P0, P1, P2)
    held = topic({tp: (0, end) for tp, end in zip(tps, ends, strict=True)})

    planned = plan(ledger(dict.fromkeys(tps, 0)), held, stream=orders(max_records=most))

    assert [r.offset_count for r in planned.ranges] == counts


def test_max_bytes_is_a_number_of_offsets_by_what_an_offset_weighs() -> None:
    held, stream = topic({P0: (0, 10), P1: (0, 1000)}), orders(max_records=500, max_bytes=1000)
    state = ledger({P0: 0, P1: 0})

    by_bytes = plan(state, held, stream=stream, offset_bytes=9.0)
    by_records = plan(state, held, stream=stream, offset_bytes=1.5)
    heavy = plan(state, held, stream=stream, offset_bytes=5_000_000.0)

    assert ([r.offset_count for r in by_bytes.ranges], by_bytes.expected_bytes) == ([10, 101], 999)
    assert by_records.offset_count == 500
    assert heavy.offset_count == 1, "it goes on, one by one"
    assert plan(state, held, stream=stream).expected_bytes is None


def test_a_topic_partition_that_appeared_starts_at_zero_and_not_at_earliest() -> None:
    assert plan(ledger({P0: 3}), topic({P0: (0, 3), P1: (0, 4)})).ranges == (OffsetRange(P1, 0, 4),)
    with pytest.raises(RetentionPassedPosition, match=r"\[0, 2\) of orders/1"):
        plan(ledger({P0: 3}), topic({P0: (0, 3), P1: (2, 4)}))


def test_retention_that_passed_the_position_is_refused_with_the_range_and_the_command() -> None:
    with pytest.raises(RetentionPassedPosition) as refused:
        plan(ledger({P0: 17000}), topic({P0: (18500, 20000)}))

    assert "[17000, 18500) of orders/0, at most 1,500 messages" in str(refused.value)
    assert "kdi resolve bronze/orders accept-loss --topic-partition orders/0 --until 18500" in str(refused.value)


def test_retention_that_reached_the_position_and_no_further_is_fine() -> None:
    assert plan(ledger({P0: 5}), topic({P0: (5, 6)})).ranges == (OffsetRange(P0, 5, 6),)


def test_a_last_stable_offset_below_the_position_is_only_an_open_transaction() -> None:
    assert plan(ledger({P0: 9}), topic({P0: (0, 4)}, open_offsets=5)).ranges == ()


@pytest.mark.parametrize(
    ("state", "held", "refusal", "said"),
    [
        (ledger({P0: 9}), {P0: (0, 4)}, BrokerEndBelowPosition, r"\[4, 9\) was drained"),
        (ledger({P0: 1, P1: 1}), {P0: (0, 1)}, TopicPartitionVanished, "orders/1"),
        (ledger({P0: 1}, knows_table=False), {P0: (5, 6)}, TableReplaced, None),  # before its offsets are looked at
        (ledger({P0: 1}, knows_topic=False), {P0: (5, 6)}, TopicRecreated, None),
    ],
)
def test_what_does_not_fit_the_ledger_is_refused(
    state: LedgerState, held: dict[TopicPartition, tuple[int, int]], refusal: type[Exception], said: str | None
) -> None:
    with pytest.raises(refusal, match=said):
        plan(state, topic(held))


def test_what_must_be_settled_first_is_said_with_its_positions() -> None:
    held = topic({P0: (3, 9)})

    nothing_there = unsettled(orders(), None, held)
    restored = unsettled(orders(), ledger({P0: 4}, restored_to=2), held)
    taken_over = unsettled(orders(), ledger({P0: 6}, ledger_version=None), held)

    assert nothing_there is not None and (nothing_there.kind, nothing_there.positions) == ("start", {P0: 3})
    assert restored is not None and (restored.kind, restored.positions) == ("restore", {P0: 4})
    assert taken_over is not None and (taken_over.kind, taken_over.positions) == ("takeover", {P0: 6})
    assert unsettled(orders(), ledger({P0: 4}), held) is None


def settled(stream: Stream, state: LedgerState | None, held: TopicState) -> Settlement:
    settlement = unsettled(stream, state, held)
    assert settlement is not None
    return settlement


def test_explicit_offsets_begin_where_they_say_and_what_they_do_not_name_at_its_earliest() -> None:
    held = topic({P0: (3, 9), P1: (2, 8), P2: (4, 4)})

    for table_without_positions in (None, ledger({}, ledger_version=None)):
        start = settled(orders(start={0: 5, 2: 4}), table_without_positions, held)

        assert (start.kind, start.positions) == ("start", {P0: 5, P1: 2, P2: 4})
        assert "start: {0: 5, 2: 4}" in start.reason


@pytest.mark.parametrize("at", [2, 10])
def test_an_explicit_offset_that_the_topic_does_not_hold_begins_nowhere(at: int) -> None:
    with pytest.raises(StartOutOfRange, match=rf"says {at} for orders/0, which holds \[3, 9\)"):
        unsettled(orders(start={0: at}), None, topic({P0: (3, 9)}))


def test_an_explicit_offset_may_be_the_end_or_lie_in_an_open_transaction() -> None:
    held = topic({P0: (3, 9)}, open_offsets=4)

    assert settled(orders(start={0: 13}), None, held).positions == {P0: 13}
    with pytest.raises(StartOutOfRange, match=r"\[3, 13\)"):
        unsettled(orders(start={0: 14}), None, held)


def test_offsets_for_a_topic_partition_that_is_not_there_are_refused_whenever_they_are_seen() -> None:
    stream, held = orders(start={0: 5, 7: 0}), topic({P0: (0, 9)})

    said = "names orders/7, and the topic's last topic partition is orders/0"
    with pytest.raises(StartOutOfRange, match=said):
        unsettled(stream, None, held)
    with pytest.raises(StartOutOfRange, match=said):
        plan(ledger({P0: 6}), held, stream=stream)


def test_explicit_offsets_beside_positions_of_another_writer_hold_where_it_left_none() -> None:
    held = topic({P0: (3, 9), P1: (2, 8)})

    taken_over = settled(orders(start={1: 7}), ledger({P0: 6}, ledger_version=None), held)

    assert (taken_over.kind, taken_over.positions) == ("takeover", {P0: 6, P1: 7})


def test_explicit_offsets_that_the_positions_reached_have_no_effect() -> None:
    """Also where the broker has deleted them meanwhile."""
    held, stream = topic({P0: (3, 9)}), orders(start={0: 2})

    assert settled(stream, ledger({P0: 6}, ledger_version=None), held).positions == {P0: 6}
    assert plan(ledger({P0: 6}), held, stream=stream).ranges == (OffsetRange(P0, 6, 9),)
    assert plan(ledger({P0: 6}), held, stream=orders(start={0: 6})).ranges == (OffsetRange(P0, 6, 9),)


@pytest.mark.parametrize("writer", ["ours", "another"])
def test_explicit_offsets_above_a_position_are_refused_and_skip_nothing(writer: str) -> None:
    held, stream = topic({P0: (0, 20)}), orders(start={0: 15})

    with pytest.raises(PositionBelowStart) as refused:
        if writer == "ours":
            plan(ledger({P0: 5}), held, stream=stream)
        else:
            unsettled(stream, ledger({P0: 5}, ledger_version=None), held)

    assert "`start` says 15 for orders/0, and its position is 5 already" in str(refused.value)
    assert "[5, 15) was not drained" in str(refused.value)
    assert "accept-loss --topic-partition orders/0 --until 15" in str(refused.value)
