"""Planning: ranges and refusals; ledger and broker are plain values here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.kinesis_stream import KinesisStream
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.streams.drain.plan import needed_position_commit, refuse_lost_offsets
from kdi_assets.streams.drain.plan_errors import (
    BrokerEndBelowPosition,
    PositionBelowStart,
    RetentionPassedPosition,
    RowsWithoutPositions,
    StartOutOfRange,
    TableReplaced,
    TopicPartitionVanished,
    TopicRecreated,
)
from kdi_assets.streams.ledger.commit import next_entry
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.positions import LedgerState
from tests.unit.ledger.plans import NOW, P0, P1, P2, ledger, orders, plan, topic

ENTRY = LedgerEntry(7, "drain", "orders", "try", "orders", "topic-id", "table", positions={P0: 3})


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
def test_max_records_cuts_the_long_ranges_evenly(ends: tuple[int, ...], most: int, counts: list[int]) -> None:
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


@pytest.mark.parametrize(
    ("newest", "advised"),
    [
        ({"restored_to": 2}, True),
        ({"entry": replace(ENTRY, kind="restore")}, True),
        ({"entry": replace(ENTRY, kind="resolve", removed_by_date={NOW.date(): 3})}, True),
        ({"entry": replace(ENTRY, kind="resolve")}, False),
        ({"entry": ENTRY}, False),
    ],
    ids=["RESTORE", "answered RESTORE", "rewind", "another decision", "drain"],
)
def test_rows_that_an_older_version_has_are_not_given_up_first(newest: dict[str, Any], advised: bool) -> None:
    with pytest.raises(RetentionPassedPosition) as refused:
        refuse_lost_offsets(orders(), ledger({P0: 3}, **newest), {P0: 3}, topic({P0: (5, 9)}))

    run = refused.value.message_parts()[2]
    assert run.startswith("kdi history bronze/orders") == advised
    assert ("RESTORE TABLE delta.`/lake/bronze/orders` TO VERSION AS OF VERSION" in run) == advised
    assert run.endswith("--topic-partition orders/0 --until 5   (without options: in all topic partitions)")


def test_retention_that_reached_the_position_and_no_further_is_fine() -> None:
    assert plan(ledger({P0: 5}), topic({P0: (5, 6)})).ranges == (OffsetRange(P0, 5, 6),)


def test_a_last_stable_offset_below_the_position_is_only_an_open_transaction() -> None:
    assert plan(ledger({P0: 9}), topic({P0: (0, 4)}, open_offsets=5)).ranges == ()


@pytest.mark.parametrize(
    ("state", "held", "refusal", "said"),
    [
        (ledger({P0: 9}), {P0: (0, 4)}, BrokerEndBelowPosition, r"\[4, 9\) was drained"),
        (ledger({P0: 1, P1: 1}), {P0: (0, 1)}, TopicPartitionVanished, "orders/1"),
        (
            ledger({P0: 1}, table_id_matches=False),
            {P0: (5, 6)},
            TableReplaced,
            None,
        ),  # before its offsets are looked at
        (ledger({P0: 1}, topic_id_matches=False), {P0: (5, 6)}, TopicRecreated, None),
    ],
)
def test_what_does_not_fit_the_ledger_is_refused(
    state: LedgerState, held: dict[TopicPartition, tuple[int, int]], refusal: type[Exception], said: str | None
) -> None:
    with pytest.raises(refusal, match=said):
        plan(state, topic(held))


@pytest.mark.parametrize("ended", [True, False])
def test_only_a_shard_that_was_read_to_its_end_may_vanish(ended: bool) -> None:
    marks = {P0: Bookmark("9", ended=ended), P1: Bookmark("5")}
    entry = LedgerEntry(7, "drain", "orders", "v7", "orders", "topic", "table", {P0: 1, P1: 1}, bookmarks=marks)
    state, held = ledger({P0: 1, P1: 1}, entry=entry), topic({P1: (1, 3)})

    if not ended:
        with pytest.raises(TopicPartitionVanished, match="orders/0"):
            plan(state, held)
        return
    assert plan(state, held).positions_after == {P1: 3}
    moved: dict[str, Any] = {"positions": {P1: 3}, "bookmarks": {P1: Bookmark("7")}}
    assert next_entry(orders(), state, kind="drain", topic_id="topic", **moved).positions == {P0: 1, P1: 3}


@pytest.mark.parametrize("state", [{"table_id_matches": False}, {"ledger_version": None, "has_unknown_files": True}])
def test_a_table_of_kinesis_that_cannot_be_continued_is_answered_by_a_new_path(state: dict[str, Any]) -> None:
    """No decision sets the number of a record."""
    held, of_kafka = topic({P0: (0, 6)}), orders()
    region = KinesisRegion("main", "us-east-1")
    of_kinesis = KinesisStream(of_kafka.topic, of_kafka.table, of_kafka.record_ddl, of_kafka.date_expression, region)

    with pytest.raises((TableReplaced, RowsWithoutPositions), match="a new path"):
        needed_position_commit(of_kinesis, ledger({P0: 1}, **state), held)
    with pytest.raises((TableReplaced, RowsWithoutPositions), match="adopt"):
        needed_position_commit(of_kafka, ledger({P0: 1}, **state), held)


def test_a_shard_that_expired_unread_is_a_loss_and_not_another_topic() -> None:
    """Of the same stream, `new-topic` would read everything again."""
    held = replace(topic({P1: (1, 3)}), as_of=NOW)

    with pytest.raises(
        TopicPartitionVanished, match=r"retention removed orders/0.*\n.*\n.*bronze/orders accept-loss --yes"
    ):
        plan(ledger({P0: 1, P1: 1}), held)


def test_what_must_be_settled_first_is_said_with_its_positions() -> None:
    held = topic({P0: (3, 9)})

    nothing_there = needed_position_commit(orders(), None, held)
    restored = needed_position_commit(orders(), ledger({P0: 4}, restored_to=2), held)
    taken_over = needed_position_commit(orders(), ledger({P0: 6}, ledger_version=None), held)

    assert nothing_there is not None and (nothing_there.kind, nothing_there.positions) == ("start", {P0: 3})
    assert restored is not None and (restored.kind, restored.positions) == ("restore", {P0: 4})
    assert taken_over is not None and (taken_over.kind, taken_over.positions) == ("takeover", {P0: 6})
    assert needed_position_commit(orders(), ledger({P0: 4}), held) is None


@pytest.mark.parametrize(
    ("start", "state", "kind", "positions"),
    [
        ({0: 5, 2: 4}, None, "start", {P0: 5, P1: 2, P2: 4}),  # one without an offset begins at its earliest
        ({0: 5, 2: 4}, ledger({}, ledger_version=None), "start", {P0: 5, P1: 2, P2: 4}),
        ({0: 13}, None, "start", {P0: 13, P1: 2, P2: 4}),  # within an open transaction
        ({1: 7}, ledger({P0: 6, P2: 4}, ledger_version=None), "takeover", {P0: 6, P1: 7, P2: 4}),
        ({0: 2}, ledger({P0: 6, P1: 2, P2: 4}, ledger_version=None), "takeover", {P0: 6, P1: 2, P2: 4}),  # above it
    ],
)
def test_explicit_offsets_hold_where_no_position_is_yet(
    start: dict[int, int], state: LedgerState | None, kind: str, positions: dict[TopicPartition, int]
) -> None:
    held = topic({P0: (3, 9), P1: (2, 8), P2: (4, 4)}, open_offsets=4)

    needed = needed_position_commit(orders(start=start), state, held)

    assert needed is not None
    assert (needed.kind, needed.positions) == (kind, positions)
    assert kind != "start" or f"start: {start}" in needed.reason


@pytest.mark.parametrize("at", [2, 6])
def test_explicit_offsets_that_the_positions_reached_have_no_effect(at: int) -> None:
    """Also if the broker has deleted them since."""
    planned = plan(ledger({P0: 6}), topic({P0: (3, 9)}), stream=orders(start={0: at}))

    assert planned.ranges == (OffsetRange(P0, 6, 9),)


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ({0: 2}, r"says 2 for orders/0, which holds \[3, 13\)"),
        ({0: 14}, r"says 14 for orders/0, which holds \[3, 13\)"),
        ({0: 5, 7: 0}, "names orders/7, and the topic's last topic partition is orders/0"),
    ],
)
def test_explicit_offsets_that_the_topic_does_not_hold_begin_nowhere(start: dict[int, int], said: str) -> None:
    stream, held = orders(start=start), topic({P0: (3, 9)}, open_offsets=4)

    with pytest.raises(StartOutOfRange, match=said):
        needed_position_commit(stream, None, held)
    if 7 in start:
        with pytest.raises(StartOutOfRange, match=said):
            plan(ledger({P0: 6}), held, stream=stream)


@pytest.mark.parametrize(
    "refused",
    [lambda *asked: plan(asked[1], asked[2], stream=asked[0]), needed_position_commit],
    ids=["ours", "another writer's"],
)
def test_explicit_offsets_above_a_position_are_refused_and_skip_nothing(refused: Callable[..., object]) -> None:
    version = None if refused is needed_position_commit else 7

    with pytest.raises(PositionBelowStart) as below:
        refused(orders(start={0: 15}), ledger({P0: 5}, ledger_version=version), topic({P0: (0, 20)}))

    assert "`start` says 15 for orders/0, and its position is already 5" in str(below.value)
    assert "[5, 15) was not drained" in str(below.value)
    assert "accept-loss --topic-partition orders/0 --until 15" in str(below.value)
