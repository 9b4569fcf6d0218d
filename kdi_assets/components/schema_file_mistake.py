"""What is wrong with a file that a document names and that is no document."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class SchemaFileMistake(Exception):
    """A file that a format names cannot be used; ``field`` is that of the document."""

    field: str
    message: str
    right: str
