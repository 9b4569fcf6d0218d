"""The streams of a folder: one loader for the command line and the code location, and one list of mistakes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path

from kdi_assets.components.mistakes import Mistakes, in_order
from kdi_assets.components.reading import Loaded, read_streams
from kdi_assets.errors import Terminal
from kdi_assets.stream import Stream

__all__ = [
    "AmbiguousStream",
    "Loaded",
    "UnknownStream",
    "defs_folder",
    "load_streams",
    "read_streams",
    "select_streams",
]


class UnknownStream(Terminal):
    """A command names a stream that no document describes."""

    name: str
    known: tuple[str, ...]

    def parts(self) -> tuple[str, str, str]:
        return (
            f"no stream is called {self.name}{self._guess()}",
            "nothing was started; no topic and no table was touched.",
            "the same command with one of: " + (", ".join(self.known) or "(no document describes a stream)"),
        )

    def _guess(self) -> str:
        """A known name that is close, as a whole or in its last part."""
        last_parts = {name.rpartition("/")[2]: name for name in self.known}
        close = get_close_matches(self.name, self.known, n=1)
        close += [last_parts[part] for part in get_close_matches(self.name.rpartition("/")[2], last_parts, n=1)]
        return f": did you mean {close[0]}?" if close else "."


class AmbiguousStream(Terminal):
    """A command names a stream by a topic or a table's last name that several streams share."""

    name: str
    candidates: tuple[str, ...]

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.name} may be any of {', '.join(self.candidates)}.",
            "nothing was started; no topic and no table was touched.",
            f"the same command with the table's whole path, e.g. {self.candidates[0]}",
        )


def defs_folder() -> Path:
    """The folder that ``KDI_DEFS`` names, else the package's own."""
    if folder := os.environ.get("KDI_DEFS"):
        return Path(folder)
    return Path(__file__).parent.parent / "defs"


def load_streams(folder: Path | None = None) -> Mapping[str, Stream]:
    """The streams of a folder, by name in alphabetical order; of ``defs_folder()`` if none is given.

    Raises:
        Mistakes: Documents are wrong; it names every mistake of every document.
        DefsFolderMissing: There is no such folder.
    """
    loaded = read_streams(folder or defs_folder())
    if loaded.mistakes:
        raise Mistakes(mistakes=in_order(loaded.mistakes))
    return dict(sorted(loaded.streams.items()))


def select_streams(streams: Mapping[str, Stream], names: Iterable[str]) -> list[Stream]:
    """The streams that are meant, each once, in the order of the names.

    Args:
        streams: By name, as ``load_streams`` answers them.
        names: A table's path, or its last part, or a topic, where that is unique.

    Raises:
        UnknownStream: A name fits no stream.
        AmbiguousStream: A name fits several, none of them by its whole path.
    """
    selected = {stream.name: stream for stream in (_select(streams, name) for name in names)}
    return list(selected.values())


def _select(streams: Mapping[str, Stream], name: str) -> Stream:
    if name in streams:
        return streams[name]
    fitting = [s for s in streams.values() if name == s.topic or s.table.endswith(f"/{name}")]
    if len(fitting) > 1:
        raise AmbiguousStream(name=name, candidates=tuple(sorted(s.name for s in fitting)))
    if not fitting:
        raise UnknownStream(name=name, known=tuple(sorted(streams)))
    return fitting[0]
