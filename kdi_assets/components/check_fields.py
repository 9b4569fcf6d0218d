"""The fields of a stream that say what its checks ask for."""

from __future__ import annotations

from typing import Annotated, cast

from pydantic import BeforeValidator, Field, model_validator

from kdi_assets.components import checks
from kdi_assets.components.strict import Fields
from kdi_assets.stream import CheckName, Checks, FreshnessLimits

Duration = Annotated[str, BeforeValidator(checks.duration)]


class FreshnessFields(Fields):
    """How old a message may get before it is in the table."""

    warn: Duration = Field(description="From this age on it is late.", examples=["5 minutes"])
    fail: Duration = Field(description="From this age on someone is to be called.", examples=["30 minutes"])

    @model_validator(mode="after")
    def _in_order(self) -> FreshnessFields:
        if checks.seconds(self.fail) <= checks.seconds(self.warn):
            raise checks.wrong(f"fails after {self.fail} and warns after {self.warn}", "a longer fail than warn")
        return self

    def freshness(self) -> FreshnessLimits:
        """The limits that these fields describe."""
        return FreshnessLimits(checks.seconds(self.warn), checks.seconds(self.fail))


class ChecksFields(Fields):
    """Which of the table's checks block, and their limits."""

    blocking: list[Annotated[str, BeforeValidator(checks.check_name)]] = Field(
        default=list(Checks().blocking),
        description="Checks whose error fails the run and keeps what is downstream from being built. Those that need no"
        " Spark are made with every drain.",
        examples=[["every_offset_accounted_for", "dead_letter_rate"]],
    )
    dead_letter_rate: Annotated[float, BeforeValidator(checks.share)] = Field(
        default=Checks().dead_letter_rate,
        description="Share of dead letters among the messages of the last 24 hours above which the check warns; ten"
        " times as many, or half of all, are an error.",
        examples=[0.01],
    )

    def limits(self) -> Checks:
        """What these fields describe."""
        return Checks(tuple(cast(CheckName, name) for name in self.blocking), self.dead_letter_rate)
