"""The dates that an asset of the user's shares with a table."""

from __future__ import annotations

import dagster as dg
import pytest

from kdi_assets.components.load import UnknownStream
from kdi_assets.downstream import dates_of
from tests.conftest import CHECKOUT


def test_the_dates_of_a_stream_are_those_of_its_table_under_each_of_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_DEFS", str(CHECKOUT / "examples" / "downstream"))

    dates = {dates_of(name) for name in ("bronze/web_requests", "web_requests")}

    assert dates == {dg.DailyPartitionsDefinition("2020-01-01", end_offset=3, timezone="UTC")}
    with pytest.raises(UnknownStream, match="did you mean bronze/web_requests"):
        dates_of("bronze/web_request")
