"""Files of schemas that a document names."""

from __future__ import annotations

import json
from pathlib import Path

from kdi_assets.components.folder import shown
from kdi_assets.components.schema_file_mistake import SchemaFileMistake
from kdi_assets.message_format import SchemaFile


def read_schema(path: Path, field: str) -> SchemaFile:
    """The schema in a file.

    Args:
        field: Names the file; below ``format``.

    Raises:
        SchemaFileMistake: The file is not there, or is no JSON.
    """
    try:
        text = path.read_text(encoding="utf-8")
        json.loads(text)
    except OSError as error:
        raise file_mistake(
            field, f"{shown(path)}: {error.strerror}", "a path from the folder of this document"
        ) from error
    except ValueError as error:
        raise file_mistake(field, f"{shown(path)} is no JSON: {error}", "a schema") from error
    return SchemaFile(shown(path), text)


def file_mistake(field: str, message: str, right: str) -> SchemaFileMistake:
    """What is wrong with what a field below ``format`` names."""
    return SchemaFileMistake(f"format.{field}", message, right)
