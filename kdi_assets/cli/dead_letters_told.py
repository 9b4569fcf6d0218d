"""What `kdi dead-letters` prints."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from kdi_assets.cli.output import clock, columns, counted, json_line, printable
from kdi_assets.stream import Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import Row

    from kdi_assets.replay.chosen import Group
    from kdi_assets.replay.deciding import Change, Decided

SHOWN_CHARACTERS = 500


def listed(stream: Stream, found: tuple[Group, ...]) -> str:
    """The number of open letters, and a table with a line for each state, reason and field."""
    if not found:
        return f"{stream.name}: no dead letters"
    rows = [
        (g.state, g.reason, printable(g.field), f"{g.letters:,}", f"{g.first}", f"{g.last}", _at(g.example))
        for g in found
    ]
    head = ("STATE", "REASON", "FIELD", "LETTERS", "FIRST DATE", "LAST DATE", "EXAMPLE")
    open_ = sum(g.letters for g in found if g.state == "open")
    table = columns(head, rows, align="<<<><<<")
    return f"{stream.name}: {counted(open_, 'open dead letter')}\n{table}"


def letter_text(letter: Row) -> str:
    """Where a letter's message lay and why it is no row; below, the beginning of its value, control characters escaped.

    Args:
        letter: As ``standing_letters`` gives it, with its message.
    """
    at = f"{letter['topic']}/{letter['partition']} offset {letter['offset']}, {clock(_utc(letter), date=True)}"
    field = f" in {printable(letter['field'])}" if letter["field"] else ""
    value = letter["value"]
    text = "(no value)" if value is None else bytes(value).decode("utf-8", "backslashreplace")
    if len(text) > SHOWN_CHARACTERS:
        text = f"{text[:SHOWN_CHARACTERS]} … ({len(text):,} characters)"
    if letter["withheld"]:
        text = "(its message is withheld)" if value is None else f"{text}  (masked; key and headers are withheld)"
    return f"{at}: {letter['state']}: {letter['reason']}{field}\n  {printable(text)}"


def letter_fields(letter: Row) -> dict[str, object]:
    """The same for ``--json``, with the whole value as text: bytes that are no UTF-8 as ``\\x..``.

    Returns:
        ``drained_by_version`` and ``said_by_version`` are versions of the stream's table: of the drain that wrote the
        letter, and of the commit that spoke of it last.
    """
    value = letter["value"]
    return {
        **{name: letter[name] for name in ("topic", "partition", "offset", "state", "reason", "field", "schema_id")},
        "timestamp": _utc(letter),
        "value": None if value is None else bytes(value).decode("utf-8", "backslashreplace"),
        "withheld": letter["withheld"],
        "drained_by_version": letter["drained_by"],
        "said_by_version": letter["said_by"],
    }


def _utc(letter: Row) -> datetime:
    moment: datetime = letter["timestamp"]
    return moment.astimezone(UTC)


def tell(done: Decided, *, as_json: bool, dry_run: bool, to_do_it: str = "without --dry-run it is done") -> None:
    """Print what became of letters, as lines or as one JSON object.

    Args:
        dry_run: Whether nothing was done yet.
        to_do_it: What does it then.
    """
    if as_json:
        json_line(
            {
                "stream": done.stream,
                "dead_letters": done.letters,
                "outcomes": done.outcomes,
                "withheld": done.withheld,
                "waiting": done.waiting,
                "rows_by_date": done.commit.rows_by_date if done.commit else {},
                "table_version": done.commit.version if done.commit else None,
                "done": not dry_run,
                "changes": [c._asdict() for c in done.changes],
                "error": None,
            }
        )
        return
    lines = [_outcomes(done)]
    if done.changes:
        lines.append(_changes(done.changes))
    if done.withheld:
        lines.append(f"{counted(done.withheld, 'open dead letter')} without all of its message: left alone")
    if done.waiting:
        lines.append(f"{counted(done.waiting, 'open dead letter')} at or behind the position: the next drain reads it")
    if dry_run and done.letters:
        lines.append(f"Nothing was changed; {to_do_it}.")
    elif done.commit:
        lines += [f"  {day}  {rows:,} rows" for day, rows in done.commit.rows_by_date.items()]
        lines.append(f"Committed as v{done.commit.version}.")
    typer.echo("\n".join(lines))


def _outcomes(done: Decided) -> str:
    if not done.letters:
        return f"{done.stream}: no open dead letter that this could be done with"
    named = {
        "row": "rows",
        "dead_letter": "still dead letters",
        "tombstone": "tombstones",
        "elsewhere": "of another table by their route, and still open here",
    }
    told = ", ".join(f"{count:,} {named.get(outcome, outcome)}" for outcome, count in sorted(done.outcomes.items()))
    return f"{done.stream}: of {counted(done.letters, 'dead letter')}: {told}"


def _changes(changes: tuple[Change, ...]) -> str:
    rows = [
        (
            f"{c.letters:,}",
            _why(c.reason, c.field),
            c.outcome.replace("_", " ") if not c.new_reason else _why(c.new_reason, c.new_field),
            _at(c.example),
        )
        for c in changes
    ]
    return columns(("LETTERS", "REASON", "NOW", "EXAMPLE"), rows, align="><<<")


def _at(example: tuple[TopicPartition, int]) -> str:
    return f"{example[0]}@{example[1]}"


def _why(reason: str, field: str) -> str:
    return printable(f"{reason} in {field}" if field else reason)
