"""Messages that are what they claim: good ones would become rows, each bad kind would not, a seed repeats itself."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime

import pytest

from kdi_assets.sources.generator import BAD_KINDS, Traffic, WebRequests
from kdi_assets.sources.publisher import BATCH, batch_sizes

NOON = datetime(2026, 3, 24, 12, 0, tzinfo=UTC)
WINDOW = (date(2020, 1, 1), date(2026, 3, 26))


def why_not_a_row(value: bytes) -> str:
    """What a strict reader objects to; empty for a message that is a row."""
    try:
        record = json.loads(value.decode())
        day = date.fromisoformat(record["meta"]["producer"]["timestamp"][:10])
    except (ValueError, KeyError) as objection:
        return type(objection).__name__
    if type(record["status"]) is not int or not 0 <= record["status"] < 2**31:
        return "status"
    return "" if WINDOW[0] <= day <= WINDOW[1] else "window"


@pytest.mark.parametrize("kind", BAD_KINDS)
def test_a_bad_message_would_not_be_a_row(kind: str) -> None:
    (good,) = WebRequests(Traffic()).batch(1, now=NOON)
    assert good is not None

    assert why_not_a_row(good) == ""
    assert why_not_a_row(BAD_KINDS[kind](good)) != ""


def test_a_seed_gives_the_same_messages_whatever_the_size_of_the_batches() -> None:
    traffic = Traffic(bad=0.05, tombstones=0.05, seed=7)
    at_once = WebRequests(traffic).batch(300, now=NOON)
    in_parts = WebRequests(traffic)

    assert [value for size in (1, 199, 100) for value in in_parts.batch(size, now=NOON)] == at_once
    assert WebRequests(Traffic(bad=0.05, tombstones=0.05, seed=8)).batch(300, now=NOON) != at_once


@pytest.mark.parametrize(
    ("count", "rate", "sizes"),
    [(1, None, {1}), (2 * BATCH + 1, None, {BATCH, 1}), (95, 100, {10, 5}), (1000, 500, {50}), (3, 0.5, {1})],
)
def test_batches_add_up_and_keep_a_rate_in_tenths_of_a_second(count: int, rate: float | None, sizes: set[int]) -> None:
    found = list(batch_sizes(count, rate))

    assert (sum(found), set(found)) == (count, sizes)
