"""What becomes of an option of kafka-delta-ingest."""

from __future__ import annotations

from dataclasses import dataclass

from kdi_assets.tools.predecessor.command import OPTIONS, Given

SHOWN_CHARACTERS = 120


@dataclass(frozen=True, slots=True)
class OptionNote:
    """One option, and what it is here.

    Attributes:
        option: As it is written, with its value; without the value if that may be a secret.
        where: File and line, or which argument; empty for a default.
        here: Our field and its value; or that there is none, and what to use instead.
        undecided: Whether someone must decide before documents are written.
    """

    option: str
    where: str
    here: str
    undecided: bool = False

    def text(self) -> str:
        """The option and the place where it is written."""
        return f"{self.option} ({self.where})" if self.where else self.option


def note(given: Given, here: str, *, shown: str | None = None) -> OptionNote:
    """A note of an option.

    Args:
        shown: Instead of the value, which may be a secret.
    """
    return OptionNote(_written(given, shown), given.where, here)


def undecided(given: Given, why: str, *, shown: str | None = None) -> OptionNote:
    """A note of an option that nothing here corresponds to until someone decides."""
    return OptionNote(_written(given, shown), given.where, why, undecided=True)


def _written(given: Given, shown: str | None) -> str:
    name = given.option.lstrip("-")
    if name in OPTIONS and OPTIONS[name].is_flag or given.value == "true":
        return given.option
    value = given.value if shown is None else shown
    value = value if len(value) <= SHOWN_CHARACTERS else f"{value[:SHOWN_CHARACTERS]}…"
    separator = "" if not given.option or not value else " " if given.option.startswith("-") else "="
    quoted = f"'{value}'" if " " in value and given.option.startswith("-") else value
    return f"{given.option}{separator}{quoted}"
