"""`docs/downstream.md` shows the example as it is tested."""

from __future__ import annotations

import re
from pathlib import Path

import dagster as dg
import pytest

from kdi_assets.components.load import UnknownStream
from kdi_assets.downstream import FAILED, dates_of

CHECKOUT = Path(__file__).parents[2]
PAGE = (CHECKOUT / "docs" / "downstream.md").read_text(encoding="utf-8")
FOLDER = CHECKOUT / "examples" / "downstream"


def test_the_page_shows_the_examples_file() -> None:
    shown, exchanged = re.findall(r"```python\n(.*?)\n```", PAGE, re.DOTALL)
    docstring, code = (FOLDER / "failed_requests.py").read_text(encoding="utf-8").split("\n\n", 1)

    assert docstring.startswith('"""')
    assert shown == code.strip("\n")
    assert f'.replace("{FAILED}", daily)' in exchanged


def test_the_dates_of_a_stream_are_those_of_its_table_under_each_of_its_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_DEFS", str(FOLDER))

    dates = {dates_of(name) for name in ("bronze/web_requests", "web_requests")}

    assert dates == {dg.DailyPartitionsDefinition("2020-01-01", end_offset=3, timezone="UTC")}
    with pytest.raises(UnknownStream, match="did you mean bronze/web_requests"):
        dates_of("bronze/web_request")
