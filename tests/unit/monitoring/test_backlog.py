"""The meaning of a backlog: time to close, time to loss, and Burrow's status word."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest

from kdi_assets.documents.model.stream import DrainWhen, OffsetRange
from kdi_assets.messages.kafka.errors import TopicMissing
from kdi_assets.messages.kafka.topic_config import retention_of
from kdi_assets.messages.topic_state import Retention
from kdi_assets.operate.monitoring.backlog import (
    PATIENCE,
    Backlog,
    PartitionBacklog,
    PositionSample,
    State,
    status_word,
    worst,
)
from kdi_assets.operate.monitoring.partition_backlog import time_to_loss
from kdi_assets.streams.ledger.entry import LedgerEntry, RangeCounts
from kdi_assets.streams.ledger.recent_commits import (
    DEFAULT_PACE,
    LedgerCommit,
    Pace,
    bytes_per_offset,
    bytes_to_expect,
    pace,
)
from tests.unit.monitoring.backlogs import P0, P1

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
DAY = 86_400.0


def backlog(*partitions: PartitionBacklog, pace: Pace = DEFAULT_PACE) -> Backlog:
    held = dict(zip((P0, P1), partitions, strict=False))
    return Backlog("orders", held, sum(p.offsets for p in partitions), None, None, 0, pace=pace)


def a_drain(offsets: int, seconds: float, *, message_bytes: int = 0) -> LedgerCommit:
    counts, names = RangeCounts(OffsetRange(P0, 0, offsets)), ("orders", "a", "orders", "t", "u")
    told = {"ranges": (counts,), "planned_at": NOW, "message_bytes": message_bytes}
    entry = LedgerEntry(1, "drain", *names, {P0: offsets}, **told)  # type: ignore[arg-type]
    return LedgerCommit(entry, NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("lag", "rate", "retention", "left"),
    [
        (3600.0, 1.0, Retention(DAY, None), DAY - 3600),
        (2 * DAY, 1.0, Retention(DAY, None), 0.0),  # may go at any moment
        (10.0, 5.0, Retention(None, None), math.inf),
        (10.0, 5.0, Retention(None, 100_000), (1000 - 50) / 5.0),  # room for 1000, 50 are used
        (10.0, 5.0, Retention(60.0, 100_000), 50.0),  # the sooner of both
        (None, None, Retention(DAY, None), None),
        (None, None, Retention(None, 100_000), None),
        (10.0, 5.0, None, None),  # without the right to see it, it is unknown
    ],
)
def test_time_to_loss_is_by_age_and_size(
    lag: float | None, rate: float | None, retention: Retention | None, left: float | None
) -> None:
    assert time_to_loss(50, lag, rate, retention, stored_bytes=100.0) == left


def test_a_stream_is_as_near_to_loss_as_its_nearest_topic_partition() -> None:
    near, far = (PartitionBacklog(0, 10, 0, lag_seconds=1.0, time_to_loss_seconds=left) for left in (60.0, 900.0))

    assert backlog(far, near).time_to_loss_seconds == 60.0


def test_time_to_close_counts_what_arrives_meanwhile() -> None:
    arriving = PartitionBacklog(0, 10_000, 0, lag_seconds=20.0, arrival_rate=500.0)

    assert backlog(arriving, pace=Pace(2.0, 1000.0)).time_to_close_seconds == (2.0 + 10.0) / (1 - 0.5)
    assert backlog(arriving, pace=Pace(2.0, 500.0)).time_to_close_seconds == math.inf
    assert backlog(PartitionBacklog(10, 10, 0)).time_to_close_seconds == 0.0
    assert backlog(PartitionBacklog(None, 10, 0)).time_to_close_seconds is None


def test_small_drains_tell_the_fixed_part_and_large_ones_the_rate() -> None:
    assert pace([]) == DEFAULT_PACE
    assert pace([a_drain(10, 1.5), a_drain(20, 1.2)]) == Pace(1.2, DEFAULT_PACE.offsets_per_second)
    assert pace([a_drain(10, 1.0), a_drain(100_000, 3.0)]) == Pace(1.0, 50_000.0)


def test_the_size_of_an_offset_is_taken_from_the_drains_that_tell_it() -> None:
    assert bytes_per_offset([a_drain(100, 1.0, message_bytes=30_000), a_drain(900, 1.0)]) == 300.0
    assert bytes_per_offset([a_drain(900, 1.0)]) is None


def test_who_must_not_expect_too_little_takes_the_newest_drain_or_all_of_them() -> None:
    light, heavy = a_drain(100, 1.0, message_bytes=1_000), a_drain(100, 1.0, message_bytes=9_000)

    assert bytes_to_expect([light, light, heavy, a_drain(5, 1.0)]) == 90.0
    assert bytes_to_expect([heavy, light]) == 50.0
    assert bytes_to_expect([a_drain(5, 1.0)]) is None


@pytest.mark.parametrize(
    ("when", "seconds"),
    [
        (DrainWhen(), 70.0),
        (DrainWhen(None, None, cron="0 * * * *"), 3610.0),
        (DrainWhen(None, None, cron="0 9 * * 1-5"), 3 * DAY + 10),  # from Friday to Monday
        (DrainWhen(lag_seconds=None), None),
    ],
)
def test_patience_is_how_long_the_document_lets_a_message_wait(when: DrainWhen, seconds: float | None) -> None:
    assert when.patience_seconds(NOW) == seconds


USUAL = {"cleanup.policy": "delete", "retention.ms": "60000", "retention.bytes": "-1"}


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({}, Retention(60.0, None)),
        ({"retention.ms": "-1", "retention.bytes": "1000"}, Retention(None, 1000)),
        ({"cleanup.policy": "compact"}, Retention(None, None)),
        ({"cleanup.policy": "compact,delete"}, Retention(60.0, None)),
    ],
)
def test_retention_is_by_age_by_size_by_both_or_not_at_all(changed: dict[str, str], kept: Retention) -> None:
    assert retention_of({**USUAL, **changed}) == kept


@pytest.mark.parametrize(
    "config",
    [{}, {**USUAL, "retention.bytes": "None"}, TopicMissing(cluster="main", topic="t", bootstrap_servers="b:1")],
)
def test_what_is_not_told_is_unknown_and_no_error(config: dict[str, str] | TopicMissing) -> None:
    assert retention_of(config) is None


LIMIT = 60.0


def judged(
    *window: tuple[int, int | None],
    position: int,
    end: int,
    waiting: float | None = 5.0,
    patience: float | None = LIMIT,
) -> State:
    samples = [PositionSample(*one) for one in window]
    return status_word(samples, position=position, end=end, waiting_seconds=waiting, patience_seconds=patience)


@pytest.mark.parametrize(
    ("window", "position", "end", "word"),
    [
        ([(10, 30), (20, 40)], 20, 20, "OK"),  # nothing waits, whatever was before
        ([(10, 10), (20, 40)], 20, 60, "OK"),  # caught up within the window
        ([(10, 30), (20, 35)], 20, 34, "OK"),  # 20, 15, 14 left: it falls
        ([(10, 30), (20, 40)], 20, 40, "WARN"),  # 20 left each time, though the position moves
        ([(10, 30), (20, 50)], 20, 60, "WARN"),  # more each time
        ([(20, 30), (20, 40)], 20, 50, "STALL"),  # the stream commits, this one stays
        ([(20, 30), (10, 40)], 10, 50, "REWIND"),
        ([(20, 30), (20, 30)], 10, 50, "REWIND"),  # someone set it back since the last commit
        ([(20, None), (20, None)], 20, 50, "OK"),  # an older release did not record the topic's ends
        ([(20, 30)], 20, 50, "OK"),  # one commit shows no direction
        ([], 0, 50, "OK"),
    ],
)
def test_the_window_and_now_decide(window: list[tuple[int, int | None]], position: int, end: int, word: str) -> None:
    assert judged(*window, position=position, end=end) == word


def test_what_waits_thrice_as_long_as_the_document_allows_has_stopped_whatever_the_window_says() -> None:
    caught_up = [(10, 10), (20, 20)]

    assert judged(*caught_up, position=20, end=21, waiting=PATIENCE * LIMIT) == State.OK
    assert judged(*caught_up, position=20, end=21, waiting=PATIENCE * LIMIT + 1) == State.STOP
    assert judged(position=0, end=1, waiting=PATIENCE * LIMIT + 1) == State.STOP


def test_a_stream_that_promises_nothing_about_time_never_stops_by_the_clock() -> None:
    assert judged((10, 10), (20, 20), position=20, end=21, waiting=1e6, patience=None) == State.OK
    assert judged((10, 10), (20, 20), position=20, end=21, waiting=None) == State.OK


def test_a_stream_has_the_worst_word_of_its_topic_partitions() -> None:
    assert worst([State.OK, State.STALL, State.WARN]) is State.STALL
    assert worst([State.REWIND, State.WARN]) is State.REWIND
    assert worst([]) is None
