"""What `kdi dead-letters` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.cli.output import clock, columns, counted, decoded, printable, shown
from kdi_assets.cli.replay_output import at
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import Row

    from kdi_assets.replay.dead_letter_filter import DeadLetterGroup


def listed(stream: Stream, found: tuple[DeadLetterGroup, ...]) -> str:
    """The number of open letters, and a table with a line for each state, reason and field."""
    if not found:
        return f"{stream.name}: no dead letters"
    rows = [(g.state, g.reason, printable(g.field), g.letters, g.first, g.last, at(g.example)) for g in found]
    head = ("STATE", "REASON", "FIELD", "LETTERS", "FIRST DATE", "LAST DATE", "EXAMPLE")
    open_ = sum(g.letters for g in found if g.state == "open")
    table = columns(head, rows, align="<<<><<<")
    return f"{stream.name}: {counted(open_, 'open dead letter')}\n{table}"


def letter_text(letter: Row) -> str:
    """Where a letter's message lay and why it is no row; below, the beginning of its value, control characters escaped.

    Args:
        letter: As ``dead_letters_with_state`` gives it, with its message.
    """
    place = f"{letter['topic']}/{letter['partition']} offset {letter['offset']}"
    when = clock(letter["timestamp"], date=True)
    field = f" in {printable(letter['field'])}" if letter["field"] else ""
    value = letter["value"]
    if value is None:
        text = "(its message is withheld)" if letter["withheld"] else "(no value)"
    else:
        text = shown(value) + ("  (masked; key and headers are withheld)" if letter["withheld"] else "")
    return f"{place}, {when}: {letter['state']}: {letter['reason']}{field}\n  {text}"


def letter_fields(letter: Row) -> dict[str, object]:
    """The same for ``--json``, with the whole value as text: bytes that are no UTF-8 as ``\\x..``.

    Returns:
        ``drained_by_version`` and ``said_by_version`` are versions of the stream's table: of the drain that wrote the
        letter, and of the commit that spoke of it last.
    """
    value = letter["value"]
    return {
        **{name: letter[name] for name in ("topic", "partition", "offset", "state", "reason", "field", "schema_id")},
        "timestamp": letter["timestamp"],
        "value": None if value is None else decoded(value),
        "withheld": letter["withheld"],
        "drained_by_version": letter["drained_by"],
        "said_by_version": letter["said_by"],
    }
