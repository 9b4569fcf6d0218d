"""Ages of messages in buckets, and what becomes of them over many drains."""

from __future__ import annotations

import math

import pytest

from kdi_assets.ledger.ages import HIGHEST, LOWEST, PER_OCTAVE, middle, quantiles


@pytest.mark.parametrize("seconds", [0.2, 1.0, 7.3, 60.0, 3600.0, 86_400.0 * 30])
def test_the_middle_of_a_bucket_is_within_five_per_cent_of_every_age_in_it(seconds: float) -> None:
    bucket = math.floor(math.log2(seconds) * PER_OCTAVE)

    assert LOWEST < bucket < HIGHEST
    assert middle(bucket) == pytest.approx(seconds, rel=0.05)


def test_messages_without_a_time_give_no_quantiles() -> None:
    assert quantiles([({}, 2.0)], [0.5]) is None
