"""The digest of offsets by arithmetic, one by one and in columns; for Spark's, `tests/spark/tables/test_offsets.py`."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages import coordinates
from kdi_assets.messages.coordinates import FEW_OFFSETS, digest_of

WITHOUT_NUMPY = """
import sys
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.coordinates import FEW_OFFSETS, digest_of

digest_of([OffsetRange(TopicPartition("t", 1), 7, 7 + FEW_OFFSETS)])
print("numpy" in sys.modules)
"""


def some_ranges(random: Random) -> list[OffsetRange]:
    """Ranges of any topic partitions, some at the highest offsets that there are."""
    starts = [random.choice([0, random.randrange(1 << 20), (1 << 63) - 100]) for _ in range(random.randrange(1, 6))]
    numbers = [random.choice([0, 1, random.randrange(1 << 31)]) for _ in starts]
    each = zip(numbers, starts, strict=True)
    return [OffsetRange(TopicPartition("t", number), start, start + random.randrange(50)) for number, start in each]


@pytest.mark.parametrize("seed", range(50))
def test_few_offsets_have_the_digest_that_they_have_in_columns(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = some_ranges(Random(seed))

    few = digest_of(ranges)
    monkeypatch.setattr(coordinates, "FEW_OFFSETS", -1)

    assert few == digest_of(ranges)


def test_no_ranges_have_the_digest_of_nothing() -> None:
    assert digest_of([]) == 0


def test_a_small_drain_needs_no_numpy_for_its_digest() -> None:
    ran = subprocess.run([sys.executable, "-c", WITHOUT_NUMPY], capture_output=True, text=True, check=True, timeout=60)

    assert ran.stdout == "False\n"
    assert FEW_OFFSETS >= 1000
