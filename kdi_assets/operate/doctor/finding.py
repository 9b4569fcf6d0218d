"""Findings of examinations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kdi_assets.errors import KdiError, Terminal, Transient
from kdi_assets.wording import kind_in_words

NOTHING_STARTED = "nothing was started; tables and positions stay as they are."


class Verdict(StrEnum):
    """``WRONG`` prevents a drain now, ``WARNING`` may do so later."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"


class Problem(KdiError):
    """A problem that an examination itself found; ``kind`` names it in two or three words."""

    kind: str
    happened: str
    safe: str
    run: str

    def message_parts(self) -> tuple[str, str, str]:
        return self.happened, self.safe, self.run


class Trouble(Problem, Terminal):
    """A person must fix it."""


class Unanswered(Problem, Transient):
    """Something did not answer; a retry may help."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table.

    Attributes:
        examination: Its name: one word.
        of: The examined folder, cluster, topic or stream.
        found: The result in a few words.
        facts: The result for programs: raw numbers, units in the keys.
        trouble: For a warning or an error: what happened, what is safe, what to run.
    """

    examination: str
    of: str
    verdict: Verdict
    found: str
    facts: Mapping[str, object] = field(default_factory=dict)
    trouble: KdiError | None = None


def fine(examination: str, of: str, found: str, **facts: object) -> Finding:
    """Nothing to do."""
    return Finding(examination, of, Verdict.OK, found, facts)


def warning(examination: str, of: str, trouble: KdiError, found: str = "", /, **facts: object) -> Finding:
    """Drains still work."""
    return Finding(examination, of, Verdict.WARNING, found or _kind(trouble), facts, trouble)


def wrong(examination: str, of: str, trouble: KdiError, found: str = "", /, **facts: object) -> Finding:
    """A drain would fail, or its result would not be reliable."""
    return Finding(examination, of, Verdict.WRONG, found or _kind(trouble), facts, trouble)


def _kind(trouble: KdiError) -> str:
    return trouble.kind if isinstance(trouble, Problem) else kind_in_words(trouble)
