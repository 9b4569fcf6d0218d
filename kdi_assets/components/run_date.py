"""What a run is to do, by its dates: drain what is new, replay what was, or both. No Dagster."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from kdi_assets.errors import Terminal


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

    Both is done in that order: what waits may be of the same dates, and is decoded by the definition of now either way.
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


@dataclass(eq=False, kw_only=True)
class ReplayNotThere(Terminal):
    """A run asks for dates that were over; that will replay them, and does not yet."""

    stream: str
    first: date
    last: date
    requested: datetime

    def parts(self) -> tuple[str, str, str]:
        today = self.requested.astimezone(UTC).date()
        asked = f"{self.first}" if self.first == self.last else f"{self.first} to {self.last}"
        return (
            f"{self.stream}: this run asks for {asked}, but it was requested on {today} (UTC). A run drains under "
            "the date of its request; replaying an older date is not there yet.",
            "nothing was read and nothing was written; late rows reach their dates with every drain.",
            f"materialize the date {datetime.now(UTC).date()}, or kdi drain {self.stream}",
        )
