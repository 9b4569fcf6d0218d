"""What one examination found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from kdi_assets.errors import KdiError, Terminal, Transient
from kdi_assets.wording import kind_in_words


class Verdict(StrEnum):
    """``WRONG`` stands in the way of a drain, ``WARNING`` will, or may, later."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"


class Words(KdiError):
    """What an examination itself has to say; its figures are the facts of the finding.

    Attributes:
        kind: What it is, in two or three words.
    """

    kind: str
    happened: str
    safe: str
    run: str

    def message_parts(self) -> tuple[str, str, str]:
        return self.happened, self.safe, self.run


class Trouble(Words, Terminal):
    """Something that a person must mend."""


class Unanswered(Words, Transient):
    """Something did not answer: a retry may help."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the table.

    Attributes:
        examination: Its name: one word.
        of: What was examined: a folder, a cluster, a topic, a stream.
        found: In a few words.
        facts: The same for programs: raw numbers, units in the keys.
        trouble: Of a warning and of what is wrong: what happened, what is safe, what to run.
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
    """Drains go on, as yet."""
    return Finding(examination, of, Verdict.WARNING, found or _kind(trouble), facts, trouble)


def wrong(examination: str, of: str, trouble: KdiError, found: str = "", /, **facts: object) -> Finding:
    """A drain would stop, or must not be believed."""
    return Finding(examination, of, Verdict.WRONG, found or _kind(trouble), facts, trouble)


def _kind(trouble: KdiError) -> str:
    return trouble.kind if isinstance(trouble, Words) else kind_in_words(trouble)
