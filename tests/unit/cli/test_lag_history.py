"""The lag of the last hour in `kdi status --watch`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kdi_assets.cli.operate.lag_history import BARS, LagHistory
from kdi_assets.cli.operate.status import LAG_HEAD, text
from kdi_assets.messages.kafka.errors import BrokerUnreachable
from kdi_assets.operate.monitoring.stream_row import StreamRow
from tests.unit.cli.test_cli_streams import status

NOON = datetime(2026, 7, 1, 12, 0, 0, tzinfo=UTC)
SILENT = BrokerUnreachable(cluster="main", bootstrap_servers="localhost:1", detail="timed out")


def late(seconds: float | None) -> StreamRow:
    """The row of a stream with this lag; without one, nothing waits."""
    return status() if seconds is None else status(10, lag=seconds)


def after(minutes: int) -> datetime:
    return NOON + timedelta(minutes=minutes)


def test_a_bar_stands_for_the_greatest_lag_of_three_minutes() -> None:
    lags = LagHistory()

    for minutes, seconds in ((0, None), (3, 10.0), (4, 70.0), (5, 20.0), (6, 35.0), (9, None)):
        lags.add([late(seconds)], after(minutes))

    assert lags.line("bronze/orders", after(9)) == f"{BARS[0]}{BARS[7]}{BARS[4]}{BARS[0]} max 1m 10s"


def test_what_is_more_than_an_hour_ago_is_forgotten() -> None:
    lags = LagHistory()

    lags.add([late(900.0)], after(0))
    lags.add([late(7.0)], after(30))
    lags.add([late(None)], after(60))

    assert lags.line("bronze/orders", after(60)) == f"{BARS[7]}{' ' * 9}{BARS[0]} max 7s"


def test_an_unknown_lag_is_no_bar_and_no_lag_is_the_lowest() -> None:
    lags = LagHistory()

    lags.add([status(refusal=SILENT)], after(0))
    unknown = lags.line("bronze/orders", after(0))
    lags.add([late(None)], after(3))
    lags.add([late(None)], after(6))

    assert (unknown, lags.line("bronze/orders", after(6))) == ("?", BARS[0] * 2)


def test_only_a_watch_has_the_column() -> None:
    lags = LagHistory()
    lags.add([late(38.0)], NOON)

    watched, once = text([late(38.0)], [], NOON, lags), text([late(38.0)], [], NOON)

    head, line = watched.splitlines()
    assert head.endswith(LAG_HEAD) and line.endswith(f"{BARS[7]} max 38s")
    assert LAG_HEAD not in once


@pytest.mark.parametrize("seconds", [27.18584098929422, 349.8248076035231, 1e-9])
def test_the_greatest_lag_has_the_highest_bar_whatever_its_digits(seconds: float) -> None:
    lags = LagHistory()

    lags.add([late(seconds)], NOON)

    assert lags.line("bronze/orders", NOON).startswith(BARS[7])
