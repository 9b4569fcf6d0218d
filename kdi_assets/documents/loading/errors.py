"""Errors of documents."""

from __future__ import annotations

from difflib import get_close_matches

from kdi_assets.errors import AGAIN, Terminal

NOTHING_STARTED = "nothing was started; no topic and no table was touched."


class DocumentMistake(Terminal):
    """One mistake in one document.

    Attributes:
        file: The document's file, relative to the working directory if it lies below that.
        line: Counted from 1.
        field: Dotted path as written in the document, e.g. ``date_window.ahead``.
        message: What is wrong.
        right: What to write instead.
    """

    file: str
    line: int
    field: str
    message: str
    right: str

    def text(self) -> str:
        """The mistake in one line."""
        return f"{self.file}:{self.line} {self.field}: {self.message}; {self.right}"

    def message_parts(self) -> tuple[str, str, str]:
        return self.text(), NOTHING_STARTED, "kdi check"


class Mistakes(Terminal):
    """All mistakes in the documents of a folder, ordered by file and line; at least one."""

    mistakes: tuple[DocumentMistake, ...]

    def message_parts(self) -> tuple[str, str, str]:
        return "\n".join(mistake.text() for mistake in self.mistakes), NOTHING_STARTED, "kdi check"


class DefsFolderMissing(Terminal):
    """The folder of the YAML documents does not exist."""

    folder: str

    what_happened = "{folder} is not a folder, so no document of a stream can be read from it."
    what_is_safe = NOTHING_STARTED
    what_to_run = "the same command again   (with --defs, or KDI_DEFS, set to a folder that exists)"


class DefsFolderNotNamed(Terminal):
    """Nothing names the folder of the YAML documents, and an installed package has none of its own."""

    what_happened = "KDI_DEFS is not set, so no document of a stream can be read."
    what_is_safe = NOTHING_STARTED
    what_to_run = "the same command again   (with --defs, or KDI_DEFS, set to the folder of your documents)"


class UnknownStream(Terminal):
    """A command names a stream, or a refined or served table, that no document describes."""

    name: str
    known: tuple[str, ...]
    what: str = "stream"

    def message_parts(self) -> tuple[str, str, str]:
        run = f"{AGAIN}   (with one of: {', '.join(self.known)}; KDI_DEFS or --defs names another folder of documents)"
        if not self.known:
            run = "kdi new TOPIC   (it writes a document; KDI_DEFS or --defs names another folder of documents)"
        guess = self._guess() if self.known else f"; no document describes a {self.what}."
        return f"no {self.what} is called {self.name}{guess}", NOTHING_STARTED, run

    def _guess(self) -> str:
        """A known name that is similar, as a whole or in its last part."""
        last_parts = {name.rpartition("/")[2]: name for name in self.known}
        close = get_close_matches(self.name, self.known, n=1)
        close += [last_parts[part] for part in get_close_matches(self.name.rpartition("/")[2], last_parts, n=1)]
        return f": did you mean {close[0]}?" if close else "."


class NotAStream(Terminal):
    """A command about a stream names a refined table, which has no topic."""

    name: str
    upstreams: tuple[str, ...]

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"{self.name} is a refined table: it has no topic. It is made of {', '.join(self.upstreams)}.",
            NOTHING_STARTED,
            f"kdi refine {self.name}   (plan, status, freshness, doctor, replay, audit, history and upkeep take it "
            "too; erase and resolve take what it is made of)",
        )


class NotRefined(Terminal):
    """`kdi refine` names the table of a stream."""

    name: str

    what_happened = "{name} is the table of a stream: it is drained from a topic, and not refined."
    what_is_safe = NOTHING_STARTED
    what_to_run = "kdi drain {name}"


class AmbiguousStream(Terminal):
    """A command names a table by a topic, or by the last part of its path, that several documents share."""

    name: str
    candidates: tuple[str, ...]

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"{self.name} may be any of {', '.join(self.candidates)}.",
            NOTHING_STARTED,
            f"{AGAIN}   (with the table's whole path, e.g. {self.candidates[0]})",
        )
