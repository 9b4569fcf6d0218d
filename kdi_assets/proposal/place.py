"""Where a proposed document goes: into a folder of its own, and never over anything."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kdi_assets.components.documents import parse
from kdi_assets.components.folder import FOLDER_TYPE, LOADED_NAMES, DefsFolderMissing, shown
from kdi_assets.components.reading import read_streams
from kdi_assets.errors import Terminal

NOTHING_WRITTEN = "nothing was written; the topic was only read."
_NAME = re.compile(r"[^A-Za-z0-9_]+")


@dataclass(eq=False, kw_only=True)
class DocumentThere(Terminal):
    """A file lies where the document would go, or in its way."""

    topic: str
    file: str
    why: str

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.file} {self.why}.",
            "it stays as it is, and nothing was written.",
            f"kdi new {self.topic} --stdout prints the document; put it where you want it",
        )


@dataclass(eq=False, kw_only=True)
class TableTaken(Terminal):
    """The documents that are there leave no room for the one that is proposed."""

    topic: str
    mistake: str

    def parts(self) -> tuple[str, str, str]:
        return (
            f"a document for topic {self.topic} would not pass beside those that are there: {self.mistake}",
            NOTHING_WRITTEN,
            f"kdi new {self.topic} --table another/path, or --stdout to see the document",
        )


def place(folder: Path, table: str, *, topic: str) -> Path:
    """The file for a stream's document.

    Raises:
        DefsFolderMissing: There is no such folder.
        DocumentThere: A document lies there, or one above hides what lies below it.
    """
    if not folder.is_dir():
        raise DefsFolderMissing(folder=str(folder))
    if above := _loaded(folder):
        types = {d.type for d in parse(above.read_text(encoding="utf-8", errors="replace"), shown(above)).documents}
        if FOLDER_TYPE not in types:
            why = "ends the search for documents in its folder, so none below it would be loaded"
            raise DocumentThere(topic=topic, file=shown(above), why=why)
    own = folder / _NAME.sub("_", table.rpartition("/")[2])
    if there := _loaded(own):
        raise DocumentThere(topic=topic, file=shown(there), why="is there already")
    return own / LOADED_NAMES[0]


def refuse_clash(folder: Path, file: Path, text: str, *, topic: str) -> None:
    """Refuse a document with which the folder's documents would have a mistake that they have not now.

    Raises:
        TableTaken: It would.
    """
    proposed = parse(text, shown(file))
    loaded = read_streams(folder, proposed=proposed)
    if mistake := next((m for m in loaded.mistakes if m.file == shown(file)), None):
        raise TableTaken(topic=topic, mistake=mistake.text())


def write(file: Path, text: str, *, topic: str) -> None:
    """Write a new file.

    Raises:
        DocumentThere: Somebody was quicker.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(text)
    except FileExistsError:
        raise DocumentThere(topic=topic, file=shown(file), why="is there already") from None


def _loaded(folder: Path) -> Path | None:
    return next((folder / name for name in LOADED_NAMES if (folder / name).is_file()), None)
