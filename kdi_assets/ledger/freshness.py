"""Freshness: the time from a message's timestamp until it was in the table, as the ledger recorded it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from kdi_assets.ledger.ages import quantiles
from kdi_assets.ledger.log import TableLog
from kdi_assets.ledger.recent import drains_since

SHARES = (0.5, 0.95, 0.99)


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
