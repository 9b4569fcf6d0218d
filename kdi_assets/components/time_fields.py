"""The fields of a stream that speak of time: which dates its rows may have, and when it is drained."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from kdi_assets.components import checks
from kdi_assets.components.strict import Fields
from kdi_assets.stream import DrainWhen


class DateWindowFields(Fields):
    """Event dates that rows may have; a message outside them becomes a dead letter."""

    start: Annotated[date, BeforeValidator(checks.day)] = Field(
        default=date(2020, 1, 1), description="The first date allowed (UTC).", examples=["2020-01-01"]
    )
    ahead: Annotated[str, BeforeValidator(checks.ahead)] = Field(
        default="2 days",
        description="How many days after today (UTC) the last date allowed lies.",
        examples=["2 days", "0 days"],
    )

    @property
    def ahead_days(self) -> int:
        return int(self.ahead.split()[0])

    @model_validator(mode="after")
    def _not_empty(self) -> DateWindowFields:
        last = datetime.now(UTC).date() + timedelta(days=self.ahead_days)
        if self.start > last:
            raise checks.wrong(f"no date is allowed: it starts {self.start} and ends {last}", "an earlier start")
        return self


class DrainWhenFields(Fields):
    """A sensor starts a run as soon as one of the limits is reached."""

    backlog_messages: int | None = Field(
        default=None,
        strict=True,
        ge=1,
        description="Offsets waiting in the topic, over all topic partitions; 1000 unless there is a cron.",
        examples=[1000],
    )
    lag_seconds: float | None = Field(
        default=None,
        strict=True,
        ge=0,
        description="Age in seconds of the oldest message not yet drained; 60 unless there is a cron.",
        examples=[60],
    )
    backlog_bytes: int | None = Field(
        default=None,
        strict=True,
        ge=1,
        description="Bytes of keys and values waiting, uncompressed, estimated from what was drained last.",
        examples=[100_000_000],
    )
    cron: Annotated[str | None, AfterValidator(checks.cron)] = Field(
        default=None,
        description="Times (UTC) at which whatever waits is drained. With a cron, the other limits count only where"
        " they are named.",
        examples=["0 * * * *"],
    )
    time_to_loss_seconds: float = Field(
        default=3600,
        strict=True,
        ge=0,
        description="A run starts when retention is this close to deleting a message that waits, whatever else is said"
        " here; where retention is short, at half of it.",
        examples=[3600],
    )
    min_gap_seconds: float = Field(
        default=10,
        strict=True,
        ge=0,
        description="Time between two requests for runs: the longer, the fewer and larger the files.",
        examples=[10],
    )

    def drain_when(self) -> DrainWhen:
        """The limits that these fields describe."""
        usual = DrainWhen() if self.cron is None else DrainWhen(None, None)
        return DrainWhen(
            backlog_messages=usual.backlog_messages if self.backlog_messages is None else self.backlog_messages,
            lag_seconds=usual.lag_seconds if self.lag_seconds is None else self.lag_seconds,
            backlog_bytes=self.backlog_bytes,
            cron=self.cron,
            time_to_loss_seconds=self.time_to_loss_seconds,
            min_gap_seconds=self.min_gap_seconds,
        )
