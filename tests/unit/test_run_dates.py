"""What a run is to do, by the dates it was asked for and the moment of that."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from kdi_assets.components.run_date import RunDates, dates_meant

OLD, YESTERDAY, TODAY, AHEAD = date(2026, 1, 5), date(2026, 3, 9), date(2026, 3, 10), date(2026, 3, 12)
NOON, LATE = datetime(2026, 3, 10, 12, tzinfo=UTC), datetime(2026, 3, 9, 23, 59, 59, tzinfo=UTC)


@pytest.mark.parametrize(
    ("first", "last", "requested", "meant"),
    [
        pytest.param(TODAY, TODAY, NOON, RunDates(TODAY), id="today drains"),
        pytest.param(AHEAD, AHEAD, NOON, RunDates(AHEAD), id="a date ahead drains"),
        pytest.param(TODAY, AHEAD, NOON, RunDates(TODAY), id="today and ahead drains"),
        pytest.param(YESTERDAY, YESTERDAY, LATE, RunDates(YESTERDAY), id="requested yesterday for its own date drains"),
        pytest.param(OLD, OLD, NOON, RunDates(None, (OLD, OLD)), id="an older date is replayed"),
        pytest.param(OLD, YESTERDAY, NOON, RunDates(None, (OLD, YESTERDAY)), id="older dates are replayed at once"),
        pytest.param(OLD, AHEAD, NOON, RunDates(TODAY, (OLD, YESTERDAY)), id="both drains, and replays what was over"),
    ],
)
def test_a_run_drains_or_replays_by_its_dates(first: date, last: date, requested: datetime, meant: RunDates) -> None:
    assert dates_meant(first, last, requested=requested) == meant
