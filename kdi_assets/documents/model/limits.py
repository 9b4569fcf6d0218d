"""Limits of a stream: dates of its rows, when it is drained, freshness, checks. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from kdi_assets.documents.model.field_types import DayOrAuto, Days, Declared, Seconds, Share, wrong
from kdi_assets.documents.model.variables import VARIABLE_LIMIT, is_no_limit

EARLIEST = date(2020, 1, 1)


@dataclass(frozen=True, slots=True)
class DateWindow(Declared):
    """Event dates that rows may have: ``[start, today + ahead_days]``, both inclusive, in UTC."""

    start: Annotated[DayOrAuto, Field(examples=["2020-01-01", "auto"])] = EARLIEST
    """The first date allowed (UTC); a message outside the window becomes a dead letter. With `auto` it is 2020-01-01,
    but Dagster's partitions start with the oldest date of the table."""
    ahead_days: Annotated[
        Days, Field(validation_alias="ahead", json_schema_extra={"default": "2 days"}, examples=["2 days", "0 days"])
    ] = 2
    """How many days after today (UTC) the last date allowed lies."""

    @model_validator(mode="after")
    def _not_empty(self) -> DateWindow:
        if self.first > (last := self.last(datetime.now(UTC))):
            raise wrong(f"no date is allowed: it starts {self.first} and ends {last}", "an earlier start")
        return self

    @property
    def first(self) -> date:
        """The first date allowed."""
        return EARLIEST if self.start == "auto" else self.start

    def last(self, now: datetime) -> date:
        """The last date allowed at ``now``; a plan pins ``now``, so that a retry judges the same way."""
        return now.astimezone(UTC).date() + timedelta(days=self.ahead_days)


def cron_expression(value: str | None) -> str | None:
    """A validator of times: a cron expression of five fields, in UTC."""
    from croniter import CroniterBadDateError, croniter

    if value is None:
        return None
    if not (len(value.split()) == 5 and croniter.is_valid(value)):
        raise wrong(f"{value!r} is not a cron expression", 'five fields, e.g. "0 * * * *" for every hour (UTC)')
    try:
        longest_interval(value, datetime.now(UTC))
    except CroniterBadDateError:
        said = f"{value!r} never comes: it is not a calendar day"
        raise wrong(said, 'e.g. "0 * * * *" for every hour (UTC)') from None
    return value


@dataclass(frozen=True, slots=True)
class DrainWhen(Declared):
    """When a sensor starts a run: as soon as one limit is reached; ``None`` is no limit."""

    backlog_messages: Annotated[int | None, Field(strict=True, ge=1, examples=[1000]), VARIABLE_LIMIT] = 1000
    """The backlog over all topic partitions, in offsets; with a cron there is no default."""
    lag_seconds: Annotated[float | None, Field(strict=True, ge=0, examples=[60]), VARIABLE_LIMIT] = 60
    """Age in seconds of the oldest message not yet drained; with a cron there is no default."""
    backlog_bytes: Annotated[int | None, Field(strict=True, ge=1, examples=[100_000_000]), VARIABLE_LIMIT] = None
    """Bytes of keys and values in the backlog, uncompressed, estimated from the last drains."""
    cron: Annotated[str | None, AfterValidator(cron_expression), Field(examples=["0 * * * *"]), VARIABLE_LIMIT] = None
    """Times (UTC) at which the backlog is drained, whatever its size. The other limits then apply only if given."""
    time_to_loss_seconds: Annotated[float, Field(strict=True, ge=0, examples=[3600]), VARIABLE_LIMIT] = 3600
    """A run starts this many seconds before retention deletes a message of the backlog. If retention is short, it
    starts at half of it. This ignores min_gap_seconds and the cron."""
    min_gap_seconds: Annotated[float, Field(strict=True, ge=0, examples=[10]), VARIABLE_LIMIT] = 10
    """The shortest time between two requests for a run: a longer one makes fewer and larger files."""

    @model_validator(mode="before")
    @classmethod
    def _a_cron_replaces_the_usual_limits(cls, written: object) -> object:
        if isinstance(written, dict) and not is_no_limit(written.get("cron")):
            return {"backlog_messages": None, "lag_seconds": None, **written}
        return written

    def patience_seconds(self, now: datetime) -> float | None:
        """How long a message may wait until it is drained, in seconds; ``None`` if no limit is a time."""
        waits = [self.lag_seconds, longest_interval(self.cron, now) if self.cron else None]
        known = [wait for wait in waits if wait is not None]
        return min(known) + self.min_gap_seconds if known else None


def longest_interval(cron: str, now: datetime) -> float:
    """The longest interval in seconds among the next fifty times of a cron expression, which may skip weekends."""
    from croniter import croniter

    times = islice(croniter(cron, now).all_next(float), 50)
    return max(after - before for before, after in pairwise(times))


def time_has_come(cron: str, *, since: float, now: float) -> bool:
    """Whether a time of a cron expression (UTC) came after ``since``; both in seconds since the epoch."""
    return last_time(cron, now) > since


def last_time(cron: str, now: float) -> float:
    """The last time of a cron expression (UTC) at or before ``now``; both in seconds since the epoch."""
    from croniter import croniter

    # A microsecond later: at such a time itself, croniter returns the time before.
    moment = datetime.fromtimestamp(now, UTC) + timedelta(microseconds=1)
    last: float = croniter(cron, moment).get_prev(float)
    return last


@dataclass(frozen=True, slots=True)
class FreshnessLimits(Declared):
    """How old a message may be before it is in the table."""

    warn_seconds: Annotated[Seconds, Field(validation_alias="warn", examples=["5 minutes"])]
    """From this age on the check warns."""
    fail_seconds: Annotated[Seconds, Field(validation_alias="fail", examples=["30 minutes"])]
    """From this age on the check fails."""

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
    "cpu_seconds_a_day",
    "fresh",
]
"""The checks of a table; the first three may need Spark."""
COSTLY: tuple[CheckName, ...] = ("every_offset_accounted_for", "no_duplicate_coordinates", "schema_as_declared")
"""Checks that may need Spark; the first reads the whole table."""
READING_ROWS: tuple[CheckName, ...] = ("every_offset_accounted_for", "no_duplicate_coordinates")


@dataclass(frozen=True, slots=True)
class Checks(Declared):
    """Settings of the stream's checks."""

    blocking: Annotated[tuple[CheckName, ...], Field(examples=[["every_offset_accounted_for", "dead_letter_rate"]])] = (
        "every_offset_accounted_for",
    )
    """Checks whose error fails the run, so that nothing downstream is built."""
    dead_letter_rate: Annotated[Share, Field(examples=[0.01])] = 0.01
    """Share of dead letters among the messages of the last 24 hours. Above it the check warns; above ten times as many,
    or half of all messages, it is an error."""
    cpu_seconds_a_day: Annotated[float | None, Field(strict=True, gt=0, examples=[3600])] = None
    """A budget: CPU seconds that the drains of a day (UTC) may use. With more, the check `cpu_seconds_a_day` warns and
    an alert is sent; no drain stops. `kdi cost` shows what was used."""
