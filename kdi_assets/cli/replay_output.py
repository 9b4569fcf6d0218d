"""What `kdi replay` and `kdi dead-letters replay | discard` print of what became of messages, or would."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from kdi_assets.cli.output import answer, columns, counted, printable
from kdi_assets.stream.stream import TopicPartition

if TYPE_CHECKING:
    from kdi_assets.replay.report import LetterChange, ReplayReport
    from kdi_assets.replay.row_diff import Example

_OUTCOMES = {
    "row": "rows",
    "dead_letter": "dead letters",
    "tombstone": "tombstones",
    "elsewhere": "another table's by their route, and left as they were",
}
_LONG, _MOST_MOVES = 160, 20


def tell(
    done: ReplayReport, *, as_json: bool, looked: bool, into: str = "", to_do_it: str = "without --dry-run it is done"
) -> None:
    """Print what became of messages, as lines or as one JSON object.

    Args:
        looked: Whether nothing was done.
        into: The table that was made to compare.
        to_do_it: What does it then.
    """
    text = "\n".join(_lines(done, looked=looked, into=into, to_do_it=to_do_it))
    answer(text, _fields(done, looked=looked, into=into), as_json=as_json)


def _fields(done: ReplayReport, *, looked: bool, into: str) -> dict[str, object]:
    said = {field.name: getattr(done, field.name) for field in fields(done) if field.name != "commit"}
    tables = {name: [each._asdict() for each in said[name]] for name in ("examples", "moved", "letter_changes")}
    missing = {field.name: getattr(done.missing, field.name) for field in fields(done.missing)}
    version = done.commit.version if done.commit else None
    whole = {**said, **tables, "messages": done.messages, "missing": missing, "into": into or None}
    return {**whole, "done": not looked, "table_version": version}


def _lines(done: ReplayReport, *, looked: bool, into: str, to_do_it: str) -> Iterator[str]:
    yield f"{done.stream}: {_became(done)}"
    if done.letter_changes:
        rows = [(c.letters, _why(c.reason, c.field), _now(c), at(c.example)) for c in done.letter_changes]
        yield columns(("LETTERS", "REASON", "NOW", "EXAMPLE"), rows, align="><<<")
    if done.changes:
        yield columns(("CHANGE", "ROWS"), done.changes.items(), align="<>")
    if done.moved:
        yield columns(("MOVED FROM", "TO", "ROWS"), done.moved[:_MOST_MOVES], align="<<>")
    yield from (line for example in done.examples for line in _example(example))
    yield from _left_alone(done)
    if into:
        yield f"Old and new rows lie side by side in {into}; nothing else was changed."
    elif looked and done.messages:
        yield f"Nothing was changed; {to_do_it}."
    elif done.commit:
        yield from (f"  {day}  {rows:,} rows" for day, rows in done.rows_by_date.items())
        yield f"Committed as v{done.commit.version}."
    elif done.messages:
        yield "Nothing is different; nothing was committed."


def _became(done: ReplayReport) -> str:
    what, of = ("open dead letter", "") if done.first is None else ("message", f" of {done.first} to {done.last}")
    if not done.messages:
        return f"no {what}{of} that this could be done with"
    became = ", ".join(f"{count:,} {_OUTCOMES.get(outcome, outcome)}" for outcome, count in done.outcomes.items())
    return f"{counted(done.messages, what)}{of}: {became}"


def _left_alone(done: ReplayReport) -> Iterator[str]:
    missing = done.missing
    if missing.messages:
        lost = counted(missing.messages, "message")
        yield f"Kafka no longer holds {lost}: {missing.rows:,} rows and {missing.letters:,} dead letters stay"
    if done.withheld:
        yield f"{counted(done.withheld, 'open dead letter')} without all of its message: left alone"
    if done.waiting:
        yield f"{counted(done.waiting, 'open dead letter')} at or behind the position: left to the next drain"
    if done.torn:
        yield f"{counted(done.torn, 'message')} of which someone deleted some rows: left alone"
    if done.unplaced:
        yield f"{counted(done.unplaced, 'row')} that do not say where their message stood: left alone"


def _now(change: LetterChange) -> str:
    return _why(change.new_reason, change.new_field) if change.new_reason else change.outcome.replace("_", " ")


def _why(reason: str, field: str) -> str:
    return printable(f"{reason} in {field}" if field else reason)


def _example(example: Example) -> Iterator[str]:
    """One row: of what is changed the columns that differ, else all of it."""
    yield f"  {example.change} {at(example.at)}"
    if not (example.was and example.now):
        yield f"    {_short(example.was or example.now)}"
        return
    was, now = json.loads(example.was), json.loads(example.now)
    for column in dict.fromkeys((*was, *now)):
        if was.get(column) != now.get(column):
            yield f"    {column}: {_short(json.dumps(was.get(column)))} -> {_short(json.dumps(now.get(column)))}"


def _short(text: str) -> str:
    return printable(text if len(text) <= _LONG else f"{text[:_LONG]}…")


def at(place: tuple[TopicPartition, int]) -> str:
    """Where a message stood, in few characters."""
    return f"{place[0]}@{place[1]}"
