"""What a run does by its dates; and the dates that a user's asset shares with a table."""

from __future__ import annotations

from datetime import UTC, date, datetime

import dagster as dg
import pyarrow as pa
import pytest

from kdi_assets.components.table_run import RunDates, run_dates
from kdi_assets.documents.loading.errors import UnknownStream
from kdi_assets.downstream import dates_of
from kdi_assets.streams.ledger.dates import as_dates
from tests.conftest import CHECKOUT

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
    assert run_dates(first, last, requested=requested) == meant


def test_the_dates_of_a_stream_are_those_of_its_table_under_each_of_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_DEFS", str(CHECKOUT / "examples" / "downstream"))

    dates = {dates_of(name) for name in ("bronze/web_requests", "web_requests")}

    assert dates == {dg.DailyPartitionsDefinition("2020-01-01", end_offset=3, timezone="UTC")}
    with pytest.raises(UnknownStream, match="did you mean bronze/web_requests"):
        dates_of("bronze/web_request")


@pytest.mark.parametrize("text", [pa.string(), pa.large_string(), pa.string_view()])
def test_dates_of_a_log_are_dates_also_where_a_table_has_text(text: pa.DataType) -> None:
    given = pa.chunked_array([pa.array(["2026-01-05", None, "2026-01", "soon"], text)])

    assert as_dates(given).to_pylist() == [OLD, None, None, None]
    assert as_dates(pa.chunked_array([pa.array([OLD, None])])).to_pylist() == [OLD, None]
