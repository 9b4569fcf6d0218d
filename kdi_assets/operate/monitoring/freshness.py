"""Freshness: the seconds from a message's timestamp until its row was in the table, from the ledger entries.

Entries count ages in buckets, which are small and can be added over many drains. The middle of a bucket is at most 5 %
away from every age in it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

from kdi_assets.delta.log import TableLog
from kdi_assets.streams.ledger.entry import BUCKETS_PER_OCTAVE, LOWEST_BUCKET
from kdi_assets.streams.ledger.recent_commits import drains_since

QUANTILES = (0.5, 0.95, 0.99)


def bucket_seconds(bucket: int) -> float:
    """The middle of a bucket, in seconds; 0 for the lowest, which holds all younger messages."""
    return 0.0 if bucket <= LOWEST_BUCKET else math.exp2((bucket + 0.5) / BUCKETS_PER_OCTAVE)


def quantiles(drains: Iterable[tuple[Mapping[int, int], float]], wanted: Iterable[float]) -> list[float] | None:
    """Quantiles of the time until messages were in the table, in seconds; ``None`` without a message.

    Args:
        drains: Of each drain, the ages of its messages when it was planned, and the seconds from then to its commit.
        wanted: Each between 0 and 1, e.g. 0.95.
    """
    seconds: Counter[float] = Counter()
    for ages, until_commit in drains:
        for bucket, messages in ages.items():
            seconds[round(bucket_seconds(bucket) + until_commit, 3)] += messages
    if not seconds:
        return None
    ordered = sorted(seconds.items())
    upto = list(accumulate(messages for _, messages in ordered))
    return [ordered[bisect_left(upto, quantile * upto[-1])][0] for quantile in wanted]


@dataclass(frozen=True, slots=True)
class Freshness:
    """How long messages took until they were in the table.

    Attributes:
        drains: How many drains it covers.
        messages: Messages with a timestamp, dead letters and tombstones included.
        p50, p95, p99: Quantiles in seconds; ``None`` without a message that has a timestamp.
    """

    drains: int
    messages: int
    p50: float | None
    p95: float | None
    p99: float | None


def freshness_since(uri: str, app_id: str, moment: datetime) -> Freshness | None:
    """Freshness of the live drains that were committed at ``moment`` or later; ``None`` if there is no table.

    Drains of older releases that recorded no ages, and drains that replaced rows, count as drains without messages.

    Raises:
        KdiError: The log cannot be read.
    """
    log = TableLog.open(uri)
    if log is None:
        return None
    return freshness((c.entry.ages, c.seconds) for c in drains_since(log, app_id, moment))


def freshness(drains: Iterable[tuple[Mapping[int, int], float]]) -> Freshness:
    """Freshness of some drains.

    Args:
        drains: Of each, the ages of its messages when it was planned, and the seconds from then to its commit.
    """
    every = list(drains)
    p50, p95, p99 = quantiles(every, QUANTILES) or (None, None, None)
    return Freshness(len(every), sum(sum(ages.values()) for ages, _ in every), p50, p95, p99)
