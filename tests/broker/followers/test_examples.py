"""The demos of `examples/`: each compares its tables with a computation of its own, and ends with 0."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import CHECKOUT

SHOWN = {
    "customers": ["silver/customers, ", "silver/customers_history, "],
    "kinesis": ["30,000 messages put: ", "places of the rows on the stream: ", "requests in PostgreSQL: "],
    "impressions": ["impressions: equal", "dates that were touched: equal", "files of all other dates: equal"],
}


@pytest.mark.parametrize("name", SHOWN)
def test_an_example_shows_tables_that_equal_its_own_computation(name: str) -> None:
    """Purpose: what a reader copies from must work, whatever order its random messages have.
    Procedure: run it, with a seed of its own.
    Pass: exit code 0, and each comparison says that both are equal.
    """
    ended = subprocess.run(
        [sys.executable, "-m", f"demo.{name}"], cwd=CHECKOUT, capture_output=True, text=True, timeout=600
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    for text in SHOWN[name]:
        (line,) = [line for line in ended.stdout.splitlines() if text in line and line.endswith("equal")][-1:]
