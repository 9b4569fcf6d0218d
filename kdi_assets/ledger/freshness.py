"""Freshness: the time from a message's timestamp until it was in the table, as the ledger recorded it.

Ages are kept in buckets: small enough for a ledger entry, and they add up over many drains. A bucket is an eighth of an
octave: its middle is at most 5 % away from every age in it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.recent_commits import drains_since

SHARES = (0.5, 0.95, 0.99)
PER_OCTAVE = 8
LOWEST, HIGHEST = -3 * PER_OCTAVE, 28 * PER_OCTAVE
"""Of an eighth of a second, and of eight years; what is younger or older is in these."""


def middle(bucket: int) -> float:
    """The age in seconds that stands for a bucket; 0 for the lowest, which reaches down to it."""
    return 0.0 if bucket <= LOWEST else math.exp2((bucket + 0.5) / PER_OCTAVE)


def quantiles(waits: Iterable[tuple[Mapping[int, int], float]], shares: Iterable[float]) -> list[float] | None:
    """Quantiles of the time until messages were in the table, in seconds; ``None`` without any message.

    Args:
        waits: Per drain the ages of its messages when it was planned, and the seconds from there to its commit.
        shares: Each between 0 and 1, e.g. 0.95.
    """
    seconds: Counter[float] = Counter()
    for ages, until_commit in waits:
        for bucket, messages in ages.items():
            seconds[round(middle(bucket) + until_commit, 3)] += messages
    if not seconds:
        return None
    ordered = sorted(seconds.items())
    upto = list(accumulate(messages for _, messages in ordered))
    return [ordered[bisect_left(upto, share * upto[-1])][0] for share in shares]


@dataclass(frozen=True, slots=True)
class Freshness:
    """How long messages took, over some drains; ``None`` without a message that has a time.

    Attributes:
        drains: Commits that it is made of.
        messages: Those that have a timestamp; dead letters and tombstones are among them.
        p50: Half of the messages were in the table after so many seconds.
    """

    drains: int
    messages: int
    p50: float | None
    p95: float | None
    p99: float | None


def freshness_since(uri: str, app_id: str, moment: datetime) -> Freshness | None:
    """Of the drains that were committed since then and whose rows are there; ``None`` if there is no table.

    Drains of a release that did not record ages, and those that replaced rows, count as drains without messages.

    Raises:
        KdiError: The log cannot be read.
    """
    log = TableLog.open(uri)
    if log is None:
        return None
    return freshness((c.entry.ages, c.seconds) for c in drains_since(log, app_id, moment))


def freshness(waits: Iterable[tuple[Mapping[int, int], float]]) -> Freshness:
    """Of some drains.

    Args:
        waits: The ages of each one's messages when it was planned, and the seconds from there to its commit.
    """
    told = list(waits)
    p50, p95, p99 = quantiles(told, SHARES) or (None, None, None)
    return Freshness(len(told), sum(sum(ages.values()) for ages, _ in told), p50, p95, p99)
