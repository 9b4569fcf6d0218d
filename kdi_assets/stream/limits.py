"""What a stream allows and asks for: dates of its rows, when it is drained, freshness, checks. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from kdi_assets.stream.field_types import Day, Days, Declared, Seconds, Share, wrong


@dataclass(frozen=True, slots=True)
class DateWindow(Declared):
    """Event dates that rows may have: ``[start, today + ahead_days]``, both inclusive, in UTC."""

    start: Annotated[Day, Field(examples=["2020-01-01"])] = date(2020, 1, 1)
    """The first date allowed (UTC); a message outside the window becomes a dead letter."""
    ahead_days: Annotated[
        Days, Field(validation_alias="ahead", json_schema_extra={"default": "2 days"}, examples=["2 days", "0 days"])
    ] = 2
    """How many days after today (UTC) the last date allowed lies."""

    @model_validator(mode="after")
    def _not_empty(self) -> DateWindow:
        if self.start > (last := self.last(datetime.now(UTC))):
            raise wrong(f"no date is allowed: it starts {self.start} and ends {last}", "an earlier start")
        return self

    def last(self, now: datetime) -> date:
        """The last date allowed at ``now``; a plan pins ``now``, so that a retry judges the same way."""
        return now.astimezone(UTC).date() + timedelta(days=self.ahead_days)


def _cron(value: str | None) -> str | None:
    from croniter import CroniterBadDateError, croniter

    if value is None:
        return None
    if not (len(value.split()) == 5 and croniter.is_valid(value)):
        raise wrong(f"{value!r} is not a cron expression", 'five fields, e.g. "0 * * * *" for every hour (UTC)')
    try:
        longest_interval(value, datetime.now(UTC))
    except CroniterBadDateError:
        raise wrong(f"{value!r} names no day that there is", 'e.g. "0 * * * *" for every hour (UTC)') from None
    return value


@dataclass(frozen=True, slots=True)
class DrainWhen(Declared):
    """When a sensor starts a run: as soon as one of the limits is reached; ``None`` is no limit."""

    backlog_messages: Annotated[int | None, Field(strict=True, ge=1, examples=[1000])] = 1000
    """Offsets waiting in the topic, over all topic partitions; none with a cron."""
    lag_seconds: Annotated[float | None, Field(strict=True, ge=0, examples=[60])] = 60
    """Age in seconds of the oldest message not yet drained; none with a cron."""
    backlog_bytes: Annotated[int | None, Field(strict=True, ge=1, examples=[100_000_000])] = None
    """Bytes of keys and values waiting, uncompressed, estimated from what was drained last."""
    cron: Annotated[str | None, AfterValidator(_cron), Field(examples=["0 * * * *"])] = None
    """Times (UTC) at which whatever waits is drained. With a cron, the other limits count only where they are named."""
    time_to_loss_seconds: Annotated[float, Field(strict=True, ge=0, examples=[3600])] = 3600
    """A run starts when retention is this close to deleting a message that waits, whatever else is said here; where
    retention is short, at half of it. It waits neither for the gap nor for a cron."""
    min_gap_seconds: Annotated[float, Field(strict=True, ge=0, examples=[10])] = 10
    """Time between two requests for runs: the longer, the fewer and larger the files."""

    @model_validator(mode="before")
    @classmethod
    def _a_cron_replaces_the_usual_limits(cls, written: object) -> object:
        if isinstance(written, dict) and written.get("cron") is not None:
            return {"backlog_messages": None, "lag_seconds": None, **written}
        return written

    def patience_seconds(self, now: datetime) -> float | None:
        """How long a message may have to wait; ``None`` if no limit speaks of time."""
        waits = [self.lag_seconds, longest_interval(self.cron, now) if self.cron else None]
        told = [wait for wait in waits if wait is not None]
        return min(told) + self.min_gap_seconds if told else None


def longest_interval(cron: str, now: datetime) -> float:
    """Seconds between the times of a cron expression, the longest among the next fifty: it may spare weekends."""
    from croniter import croniter

    times = islice(croniter(cron, now).all_next(float), 50)
    return max(after - before for before, after in pairwise(times))


def last_time(cron: str, now: datetime) -> datetime:
    """The last time of a cron expression at or before ``now`` (UTC)."""
    from croniter import croniter

    # From a moment later: asked at such a time itself, it answers the one before.
    last: datetime = croniter(cron, now.astimezone(UTC) + timedelta(microseconds=1)).get_prev(datetime)
    return last


@dataclass(frozen=True, slots=True)
class FreshnessLimits(Declared):
    """How old a message may be that is not in the table yet."""

    warn_seconds: Annotated[Seconds, Field(validation_alias="warn", examples=["5 minutes"])]
    """From this age on it is late."""
    fail_seconds: Annotated[Seconds, Field(validation_alias="fail", examples=["30 minutes"])]
    """From this age on someone is to be called."""

    @model_validator(mode="after")
    def _in_order(self) -> FreshnessLimits:
        if self.fail_seconds <= self.warn_seconds:
            said = f"fails after {self.fail_seconds:.0f} s and warns after {self.warn_seconds:.0f} s"
            raise wrong(said, "a longer fail than warn")
        return self


CheckName = Literal[
    "every_offset_accounted_for",
    "no_duplicate_coordinates",
    "schema_as_declared",
    "positions_never_go_back",
    "dead_letter_rate",
    "dates_in_window",
    "backlog_after_drain",
    "table_health",
    "expectations",
    "fresh",
]
"""The checks of a table; the first three may need Spark."""
COSTLY: tuple[CheckName, ...] = ("every_offset_accounted_for", "no_duplicate_coordinates", "schema_as_declared")
"""They may need Spark, and the first reads the whole table."""
READING_ROWS: tuple[CheckName, ...] = ("every_offset_accounted_for", "no_duplicate_coordinates")


@dataclass(frozen=True, slots=True)
class Checks(Declared):
    """What the stream asks of its checks."""

    blocking: Annotated[tuple[CheckName, ...], Field(examples=[["every_offset_accounted_for", "dead_letter_rate"]])] = (
        "every_offset_accounted_for",
    )
    """Checks whose error fails the run and keeps what is downstream from being built. Those that need no Spark are
    made with every drain."""
    dead_letter_rate: Annotated[Share, Field(examples=[0.01])] = 0.01
    """Share of dead letters among the messages of the last 24 hours above which the check warns; ten times as many,
    or half of all, are an error."""
