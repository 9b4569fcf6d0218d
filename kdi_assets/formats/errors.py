"""Errors of formats."""

from __future__ import annotations

from dataclasses import dataclass

from kdi_assets.errors import Terminal


@dataclass
class FormatMistake(Exception):
    """The stream's document asks of a format what it cannot do; ``field`` is the document's."""

    field: str
    message: str


class TooManySchemas(Terminal):
    """Messages have more schemas than those of a topic can have."""

    stream: str
    said: str

    what_happened = "{stream}: messages of one plan {said}"
    what_is_safe = "nothing was committed; positions stay as they are."
    what_to_run = (
        "kdi peek {stream} shows messages; correct `format:` in the stream's document, or make plans smaller by "
        "`max_records`, and run kdi check"
    )
