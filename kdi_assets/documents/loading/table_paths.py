"""The paths in the lake that the tables of the documents use; no table may lie in another one's way."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePosixPath

from kdi_assets.documents.loading.errors import DocumentMistake
from kdi_assets.documents.loading.yaml_documents import YamlDocument

BESIDE_STREAM = ("dead_letters", "ledger", "removed", "erased")
BESIDE_REFINED_TABLE = ("deletes",)
"""Tables beside a table: its path, ``_`` and one of these names."""


class TablePaths:
    """The paths that tables use; no table may lie at or below a path of another document."""

    def __init__(self) -> None:
        self._used: dict[str, str] = {}
        self._folders: dict[str, str] = {}

    def add(self, table: str, document: YamlDocument, *, beside: Collection[str]) -> list[DocumentMistake]:
        """Reserve the paths of a document's table and the tables beside it, or return the clash."""
        place = document.place("table")
        names = (f"{table}_{name}" for name in beside)
        own = {table: f"the table of {place}", **dict.fromkeys(names, f"kept for the table of {place}")}
        for path in own:
            other = next((p for p in (path, *_parents(path)) if p in self._used), self._folders.get(path))
            if other is not None:
                clash = "is already" if path == other else f"clashes with {other},"
                message = f"{path} {clash} {self._used[other]}"
                return [document.mistake("table", message, "a path that no other table uses")]
        self._used |= own
        self._folders |= dict.fromkeys(_parents(table), table)  # the tables beside it lie in the same folders
        return []


def _parents(path: str) -> list[str]:
    return [str(parent) for parent in PurePosixPath(path).parents][:-1]
