"""The result of a check, in words and in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kdi_assets.documents.model.limits import FreshnessLimits
from kdi_assets.errors import KdiError, Transient

Level = Literal["passed", "warn", "error"]
"""``error``: call someone; ``warn``: someone should look at it when there is time."""
Number = int | float


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    Attributes:
        description: One sentence, with the facts that decided.
        numbers: Values to plot over time.
        lists: Names, ranges or lines to read.
    """

    level: Level
    description: str
    numbers: Mapping[str, Number] = field(default_factory=dict)
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return self.level == "passed"


NO_TABLE = CheckResult("warn", "nothing was checked: there is no table before the first drain")


def not_checked(refusal: KdiError) -> CheckResult:
    """The result of a check that failed to run; a warning if a retry may help."""
    happened, safe, run = refusal.message_parts()
    level: Level = "warn" if isinstance(refusal, Transient) else "error"
    return CheckResult(level, happened, lists={"what is safe": (safe,), "what to run": (run,)})


def level_of_delay(seconds: float, limits: FreshnessLimits) -> Level:
    """What the limits say of something that waits for so long."""
    if seconds >= limits.fail_seconds:
        return "error"
    return "warn" if seconds >= limits.warn_seconds else "passed"
