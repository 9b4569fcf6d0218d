"""What a run is to do, by its dates: drain what is new, replay what was, or both. No Dagster."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta


@dataclass(frozen=True, slots=True)
class RunDates:
    """What is meant by the dates that a run was asked for.

    Attributes:
        drains_under: The date that a drain is shown at; ``None``: the run does not drain.
        replays: The first and the last of the dates that it replays, both inclusive; ``None``: none.
    """

    drains_under: date | None = None
    replays: tuple[date, date] | None = None


def dates_meant(first: date, last: date, *, requested: datetime) -> RunDates:
    """Dates that were over when the run was requested are replayed; with a later one among them it drains.

    A date ahead drains as well: nothing of it can be replayed, and where rows may be dated ahead, "Latest" in Dagster's
    dialog is one.

    Args:
        first, last: The run's partition keys, both inclusive.
        requested: When the root run was requested: queued at 23:59, or retried tomorrow, it still drains.
    """
    today = requested.astimezone(UTC).date()
    drains_under = max(first, today) if last >= today else None
    replays = (first, min(last, today - timedelta(days=1))) if first < today else None
    return RunDates(drains_under, replays)
