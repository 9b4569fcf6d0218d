"""Digests of offsets without Spark: what ``bit_xor(xxhash64(partition, offset))`` answers, by arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kdi_assets.stream.stream import OffsetRange

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_AT_A_TIME = 1 << 20
_SEED = 42
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def digest_of(ranges: Sequence[OffsetRange]) -> int:
    """The digest of every offset in the ranges; 0 of none."""
    import numpy as np

    columns = zip(*((r.topic_partition.partition, r.start, r.end) for r in ranges), strict=True)
    return digest_of_columns(*(np.array(column, np.int64) for column in columns)) if ranges else 0


def digest_of_columns(partitions: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> int:
    """The same of ranges as columns; they are expanded a million offsets at a time, however many there are."""
    import numpy as np

    counts = ends - starts
    upto = np.cumsum(counts)
    digest = np.uint64(0)
    for first in range(0, int(upto[-1]) if len(upto) else 0, _AT_A_TIME):
        numbers = np.arange(first, min(first + _AT_A_TIME, int(upto[-1])))
        at = np.searchsorted(upto, numbers, side="right")
        offsets = starts[at] + numbers - (upto - counts)[at]
        digest ^= np.bitwise_xor.reduce(xxhash64(partitions[at], offsets))
    return int(digest.astype(np.int64))


def xxhash64(partitions: NDArray[np.int64], *numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Spark's ``xxhash64(INT, BIGINT, …)``: each hash is the seed of the next one.

    Source: Spark, ``XXH64.hashInt`` and ``XXH64.hashLong``. Unsigned numbers wrap around, as Java's do.
    """
    import numpy as np

    p1, p2, p3, p4 = map(np.uint64, (_P1, _P2, _P3, _P4))
    mixed = np.uint64(_SEED + _P5 + 4) ^ partitions.astype(np.uint64) * p1
    hashed = _finished(_rotated(mixed, 23) * p2 + p3)
    for each in numbers:
        mixed = hashed + np.uint64(_P5 + 8) ^ _rotated(each.astype(np.uint64) * p2, 31) * p1
        hashed = _finished(_rotated(mixed, 27) * p1 + p4)
    return hashed


def _rotated(numbers: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    import numpy as np

    return (numbers << np.uint64(bits)) | (numbers >> np.uint64(64 - bits))


def _finished(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    import numpy as np

    numbers = (numbers ^ (numbers >> np.uint64(33))) * np.uint64(_P2)
    numbers = (numbers ^ (numbers >> np.uint64(29))) * np.uint64(_P3)
    return numbers ^ (numbers >> np.uint64(32))
