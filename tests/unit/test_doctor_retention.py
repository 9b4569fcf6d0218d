"""How near to loss is a warning, and how near is wrong."""

from __future__ import annotations

import math

import pytest

from kdi_assets.doctor.finding import Verdict
from kdi_assets.doctor.kafka import LagUnknown, RetentionNear, retention
from kdi_assets.drain.backlog import Backlog, PartitionBacklog
from kdi_assets.sources.kafka_config import Retention
from kdi_assets.stream import KafkaCluster, Stream, TopicPartition

TP = TopicPartition("orders", 0)
STREAM = Stream("orders", "bronze/orders", "id bigint", "current_date()", KafkaCluster("main", "localhost:9092"))
DAY = 86_400.0
WEEK = Retention(7 * DAY, None)


def waiting(*, lag_seconds: float | None, time_to_loss_seconds: float | None, offsets: int = 100) -> Backlog:
    held = PartitionBacklog(
        position=50,
        end=50 + offsets,
        earliest=0,
        lag_seconds=lag_seconds,
        arrival_rate=1.0 if offsets else None,
        time_to_loss_seconds=time_to_loss_seconds,
    )
    return Backlog("bronze/orders", {TP: held}, offsets, lag_seconds, None, 0)


@pytest.mark.parametrize(
    ("lag_seconds", "time_to_loss_seconds", "verdict", "trouble"),
    [
        (DAY, 6 * DAY, Verdict.OK, None),
        (8 * DAY, math.inf, Verdict.OK, None),
        (4 * DAY, 3 * DAY, Verdict.WARNING, RetentionNear),
        (7 * DAY, 1.0, Verdict.WRONG, RetentionNear),
        (8 * DAY, -DAY, Verdict.WRONG, RetentionNear),
        (None, None, Verdict.WARNING, LagUnknown),
    ],
)
def test_the_verdict_is_by_the_time_that_is_left(
    lag_seconds: float | None, time_to_loss_seconds: float | None, verdict: Verdict, trouble: type | None
) -> None:
    finding = retention(STREAM, waiting(lag_seconds=lag_seconds, time_to_loss_seconds=time_to_loss_seconds), WEEK)

    assert finding.verdict is verdict
    assert isinstance(finding.trouble, trouble or type(None))
    if time_to_loss_seconds == -DAY:
        assert "8 d old, and retention may delete it at any moment" in str(finding.trouble)


def test_where_nothing_waits_the_retention_is_told() -> None:
    nothing = waiting(lag_seconds=None, time_to_loss_seconds=None, offsets=0)

    assert retention(STREAM, nothing, WEEK).found == "kept for 7 d; nothing waits"
    assert retention(STREAM, nothing, Retention(None, 3 << 30)).found == (
        "kept for ever, at most 3.0 GiB per topic partition; nothing waits"
    )
