"""Which runs drain: those whose date was not over yet when they were first requested. No Dagster."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from kdi_assets.errors import Terminal


@dataclass(eq=False, kw_only=True)
class ReplayNotThere(Terminal):
    """A run asks for a date that was over; that will replay the date, and does not yet."""

    stream: str
    date: str
    requested: datetime

    def parts(self) -> tuple[str, str, str]:
        today = self.requested.astimezone(UTC).date()
        return (
            f"{self.stream}: this run asks for {self.date}, but it was requested on {today} (UTC). A run drains under "
            "the date of its request; replaying an older date is not there yet.",
            "nothing was read and nothing was written; late rows reach their dates with every drain.",
            f"materialize the date {datetime.now(UTC).date()}, or kdi drain {self.stream}",
        )


def refuse_replay(stream: str, date: str, *, requested: datetime) -> None:
    """Let a run through that drains.

    A date ahead drains as well: nothing of it can be replayed, and where rows may be dated ahead, "Latest" in Dagster's
    dialog is one.

    Args:
        date: The run's partition key.
        requested: When the root run was requested: queued at 23:59, or retried tomorrow, it still drains.

    Raises:
        ReplayNotThere: The date was over (UTC) at that moment.
    """
    if date < requested.astimezone(UTC).date().isoformat():  # ISO dates sort as what they mean
        raise ReplayNotThere(stream=stream, date=date, requested=requested)
