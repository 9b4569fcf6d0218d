"""Messages of the generator: a seed repeats itself, and batches keep a rate."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kdi_assets.sources.generator import Traffic, WebRequests
from kdi_assets.sources.publisher import BATCH, batch_sizes

NOON = datetime(2026, 3, 24, 12, 0, tzinfo=UTC)


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
