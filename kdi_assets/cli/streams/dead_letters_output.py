"""Dead letters as text, and for ``--json``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.cli.output import (
    table_text,
    value_excerpt,
    value_text,
)
from kdi_assets.cli.streams.replay_output import place_text
from kdi_assets.documents.model.stream import Stream
from kdi_assets.wording import counted, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Row

    from kdi_assets.streams.replay.dead_letter_filter import DeadLetterGroup


def groups_text(stream: Stream, found: tuple[DeadLetterGroup, ...]) -> str:
    """The number of open dead letters, and a line for each state, reason and field."""
    if not found:
        return f"{stream.name}: no dead letters"
    rows = [(g.state, g.reason, printable(g.field), g.letters, g.first, g.last, place_text(g.example)) for g in found]
    head = ("STATE", "REASON", "FIELD", "LETTERS", "FIRST DATE", "LAST DATE", "EXAMPLE")
    open_ = sum(g.letters for g in found if g.state == "open")
    return f"{stream.name}: {counted(open_, 'open dead letter')}\n{table_text(head, rows, align='<<<><<<')}"


def letter_text(letter: Row, more: Sequence[str]) -> str:
    """A dead letter's coordinates, state and reason; on a second line, the beginning of its value."""
    place = f"{letter['topic']}/{letter['partition']} offset {letter['offset']}"
    place += "".join(f", {column.replace('_', ' ')} {letter[column]}" for column in more if letter[column] is not None)
    field = f" in {printable(letter['field'])}" if letter["field"] else ""
    value = letter["value"]
    if value is None:
        text = "(its message is withheld)" if letter["withheld"] else "(no value)"
    else:
        text = value_excerpt(value) + ("  (masked; key and headers are withheld)" if letter["withheld"] else "")
    return f"{place}, {letter['timestamp']}: {letter['state']}: {letter['reason']}{field}\n  {text}"


def letter_fields(letter: Row, more: Sequence[str]) -> dict[str, object]:
    """A dead letter for ``--json``, with its whole value as text.

    Returns:
        Two of the fields are versions of the stream's table: ``drained_by_version`` of the drain that wrote the dead
        letter, ``said_by_version`` of the commit that set its present state.
    """
    value = letter["value"]
    return {
        **{name: letter[name] for name in ("topic", "partition", "offset", "state", "reason", "field", "schema_id")},
        **{name: letter[name] for name in more},
        "timestamp": letter["timestamp"],
        "value": None if value is None else value_text(value),
        "withheld": letter["withheld"],
        "drained_by_version": letter["drained_by"],
        "said_by_version": letter["said_by"],
    }
