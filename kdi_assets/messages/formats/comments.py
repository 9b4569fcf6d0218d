"""Comments of a record's fields, by what a schema says of them; the table's columns have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COMMENT = "comment"
"""Spark's name in a field's metadata."""


def described(metadata: Mapping[str, Any], comment: object) -> dict[str, Any]:
    """A field's metadata with a comment; unchanged if there is no text."""
    text = " ".join(comment.split()) if isinstance(comment, str) else ""
    return {**metadata, COMMENT: text} if text else dict(metadata)
