"""What a check found, in words and in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kdi_assets.errors import KdiError, Transient

Level = Literal["passed", "warn", "error"]
"""``error``: someone should be called; ``warn``: someone should look when there is time."""
Number = int | float


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check found.

    Attributes:
        said: One sentence, with what decided.
        numbers: What can be plotted over time.
        lists: What is read: names, ranges, lines.
    """

    level: Level
    said: str
    numbers: Mapping[str, Number] = field(default_factory=dict)
    lists: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return self.level == "passed"


NO_TABLE = CheckResult("passed", "there is no table yet")


def refused(refusal: KdiError) -> CheckResult:
    """The finding of a check that could not be made: what a retry may heal calls nobody."""
    happened, safe, run = refusal.message_parts()
    level: Level = "warn" if isinstance(refusal, Transient) else "error"
    return CheckResult(level, happened, lists={"what is safe": (safe,), "what to run": (run,)})
