"""What is planned and refused by what a source says; the source is in memory, the tables are written by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kdi_assets.documents.model.stream import OffsetRange, Stream
from kdi_assets.messages.topic_state import LastRead
from kdi_assets.operate.monitoring.backlog_reader import read_backlog
from kdi_assets.streams.drain.plan_errors import (
    BrokerEndBelowPosition,
    RetentionPassedPosition,
    TopicRecreated,
    TopicTruncated,
)
from kdi_assets.streams.drain.snapshot import check_last_read, expected_offset_bytes, take_snapshot
from tests.memory_source import Memory, MemoryMessage, MemorySource, MemoryUnanswered
from tests.table_by_hand import TP, TableByHand

NOW = datetime.now(UTC)


def source(offsets: range, **fields: Any) -> MemorySource:
    """A topic partition with a message a minute, the newest of now."""
    messages = {o: MemoryMessage(f"m{o}", NOW - timedelta(minutes=offsets.stop - 1 - o)) for o in offsets}
    return MemorySource({TP: messages}, **fields)


def reading(held: MemorySource, **fields: Any) -> Stream:
    given: dict[str, Any] = {"topic": "orders", "table": "bronze/orders", "record_ddl": "id bigint", **fields}
    return Stream(date_expression="current_date()", cluster=Memory("main", "memory", source=held), **given)


@pytest.mark.parametrize(
    ("start", "position"),
    [("earliest", 2), ("latest", 10), (NOW - timedelta(minutes=4), 5), (NOW + timedelta(days=1), 10)],
)
def test_a_start_becomes_the_source_s_offsets(lake: str, start: Any, position: int) -> None:
    stream = reading(source(range(2, 10), earliest={TP: 2}), start=start)

    planned = take_snapshot(stream, lake).position_commit

    assert planned is not None
    assert planned.positions == {TP: position}


def test_a_plan_reads_from_the_ledger_s_position_to_the_source_s_end(lake: str) -> None:
    TableByHand(lake).drain(5)
    stream = reading(source(range(5, 12), earliest={TP: 3}), max_bytes=1_000)

    snapshot = take_snapshot(stream, lake)
    plan = snapshot.plan(stream)

    assert plan is not None
    assert plan.ranges == (OffsetRange(TP, 5, 12),)
    assert expected_offset_bytes(stream, snapshot) is not None
    assert check_last_read(stream, snapshot) == [NOW - timedelta(minutes=6)]


@pytest.mark.parametrize(
    ("held", "refusal"),
    [
        (source(range(20), id="another"), TopicRecreated),
        (source(range(8, 20), earliest={TP: 8}), RetentionPassedPosition),
        (source(range(3)), BrokerEndBelowPosition),
        (source(range(20)), TopicTruncated),
        (source(range(20), silent=True), MemoryUnanswered),
    ],
)
def test_what_a_drain_must_not_go_on_from_is_refused(lake: str, held: MemorySource, refusal: type[Exception]) -> None:
    TableByHand(lake).drain(5, last_read={TP: LastRead(4, 0, "another message")})
    stream = reading(held)

    with pytest.raises(refusal):
        check_last_read(stream, take_and_plan(stream, lake))


def take_and_plan(stream: Stream, lake: str) -> Any:
    snapshot = take_snapshot(stream, lake)
    snapshot.plan(stream)
    return snapshot


def test_a_backlog_has_the_source_s_offsets_its_next_message_and_its_retention(lake: str) -> None:
    TableByHand(lake).drain(5)

    found = read_backlog(reading(source(range(12), seconds_kept=3_600.0)), lake)

    assert (found.refusal, found.offsets) == (None, 7)
    assert found.lag_seconds == pytest.approx(360, abs=300)
    assert found.time_to_loss_seconds == pytest.approx(3_240, abs=300)


def test_a_connection_that_no_source_has_is_an_error(lake: str) -> None:
    class Unknown:
        name = "main"

    stream = reading(source(range(1)))
    object.__setattr__(stream, "cluster", Unknown())

    with pytest.raises(TypeError, match="no source has connections of type Unknown"):
        take_snapshot(stream, lake)
