"""What is wrong in a YAML document: file, line, field, and what would be right."""

from __future__ import annotations

from collections.abc import Iterable

from kdi_assets.errors import Terminal

NOTHING_STARTED = "nothing was started; no topic and no table was touched."


class DocumentMistake(Terminal):
    """One mistake in one document.

    Attributes:
        file: The document's file, relative to the working directory where it lies below it.
        line: Counted from 1.
        field: Dotted path as written in the document, e.g. ``date_window.ahead``.
        message: What is wrong.
        right: What would be right.
    """

    file: str
    line: int
    field: str
    message: str
    right: str

    def text(self) -> str:
        """The mistake in one line."""
        return f"{self.file}:{self.line} {self.field}: {self.message}; {self.right}"

    def parts(self) -> tuple[str, str, str]:
        return self.text(), NOTHING_STARTED, "kdi check"


class Mistakes(Terminal):
    """All mistakes of all documents of a folder, by file and line; never none."""

    mistakes: tuple[DocumentMistake, ...]

    def parts(self) -> tuple[str, str, str]:
        return "\n".join(mistake.text() for mistake in self.mistakes), NOTHING_STARTED, "kdi check"


def in_order(mistakes: Iterable[DocumentMistake]) -> tuple[DocumentMistake, ...]:
    """By file, line and field."""
    return tuple(sorted(mistakes, key=lambda mistake: (mistake.file, mistake.line, mistake.field)))
