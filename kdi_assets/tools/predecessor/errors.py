"""Errors of `kdi import-kdi`."""

from __future__ import annotations

from kdi_assets.errors import AGAIN, Terminal

NOTHING_WRITTEN = "nothing was written; the table was only read."


class CommandNotRead(Terminal):
    """The command line of kafka-delta-ingest cannot be read.

    Attributes:
        where: File and line, or the argument.
    """

    where: str
    why: str
    right: str

    what_happened = "{where}: {why}"
    what_is_safe = NOTHING_WRITTEN
    what_to_run = "{right}"


class NotTranslated(Exception):
    """An expression has no translation; the argument says why, and what to do."""


class Undecided(Terminal):
    """Parts of the command line have no translation, so its documents are not complete."""

    undecided: tuple[str, ...]

    def message_parts(self) -> tuple[str, str, str]:
        return (
            "not everything can be translated:\n" + "\n".join(f"  {line}" for line in self.undecided),
            NOTHING_WRITTEN,
            f"{AGAIN}   (without these options; then write by hand into the document what they did)",
        )
