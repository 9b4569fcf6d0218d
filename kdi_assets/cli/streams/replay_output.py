"""What `kdi replay` and `kdi dead-letters replay | discard` print."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from kdi_assets.cli.output import UNCHANGED, print_result, table_text
from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.wording import counted, printable

if TYPE_CHECKING:
    from kdi_assets.streams.replay.report import LetterChange, ReplayReport
    from kdi_assets.streams.replay.row_diff import Example

_OUTCOMES = {
    "row": "rows",
    "dead_letter": "dead letters",
    "tombstone": "tombstones",
    "elsewhere": "routed to another table, unchanged",
}
_MOST_CHARACTERS, _MOST_MOVES = 160, 20


def print_replay(done: ReplayReport, *, as_json: bool, dry_run: bool, into: str = "") -> None:
    """Print what became of the messages, as lines or as one JSON object.

    Args:
        dry_run: Whether nothing was changed.
        into: The table of the comparison.
    """
    text = "\n".join(_lines(done, dry_run=dry_run, into=into))
    print_result(text, _fields(done, dry_run=dry_run, into=into), as_json=as_json)


def _fields(done: ReplayReport, *, dry_run: bool, into: str) -> dict[str, object]:
    own = {field.name: getattr(done, field.name) for field in fields(done) if field.name != "commit"}
    return {
        **own,
        **{name: [each._asdict() for each in own[name]] for name in ("examples", "moved", "letter_changes")},
        "messages": done.messages,
        "missing": {field.name: getattr(done.missing, field.name) for field in fields(done.missing)},
        "into": into or None,
        "done": not dry_run,
        "table_version": done.commit.version if done.commit else None,
    }


def _lines(done: ReplayReport, *, dry_run: bool, into: str) -> Iterator[str]:
    yield f"{done.stream}: {_outcomes(done)}"
    if done.letter_changes:
        changes = done.letter_changes
        rows = [(c.letters, _reason(c.reason, c.field), _new_state(c), place_text(c.example)) for c in changes]
        yield table_text(("LETTERS", "REASON", "NOW", "EXAMPLE"), rows, align="><<<")
    if done.changes:
        yield table_text(("CHANGE", "ROWS"), done.changes.items(), align="<>")
    if done.moved:
        yield table_text(("MOVED FROM", "TO", "ROWS"), done.moved[:_MOST_MOVES], align="<<>")
    yield from (line for example in done.examples for line in _example(example))
    yield from _unchanged(done)
    if into:
        yield f"Old and new rows are side by side in {into}; nothing else was changed."
    elif dry_run and done.messages:
        yield UNCHANGED
    elif done.commit:
        yield from (f"  {day}  {rows:,} rows" for day, rows in done.rows_by_date.items())
        yield f"Committed as v{done.commit.version}."
    elif done.messages:
        yield "Nothing is different; nothing was committed."


def _outcomes(done: ReplayReport) -> str:
    what, of = ("open dead letter", "") if done.first is None else ("message", f" of {done.first} to {done.last}")
    if not done.messages:
        return f"no {what}{of}"
    outcomes = ", ".join(f"{count:,} {_OUTCOMES.get(outcome, outcome)}" for outcome, count in done.outcomes.items())
    return f"{counted(done.messages, what)}{of}: {outcomes}"


def _unchanged(done: ReplayReport) -> Iterator[str]:
    missing = done.missing
    if missing.messages:
        lost = counted(missing.messages, "message")
        yield f"{lost} cannot be read again: {missing.rows:,} rows and {missing.letters:,} dead letters stay"
    if done.withheld:
        yield f"{counted(done.withheld, 'open dead letter')} without the whole message: unchanged"
    if done.waiting:
        yield f"{counted(done.waiting, 'open dead letter')} at or after the position: left to the next drain"
    if done.torn:
        yield f"{counted(done.torn, 'message')} with some rows deleted by someone: unchanged"
    if done.unplaced:
        yield f"{counted(done.unplaced, 'row')} without the coordinates of a message: unchanged"


def _new_state(change: LetterChange) -> str:
    return _reason(change.new_reason, change.new_field) if change.new_reason else change.outcome.replace("_", " ")


def _reason(reason: str, field: str) -> str:
    return printable(f"{reason} in {field}" if field else reason)


def _example(example: Example) -> Iterator[str]:
    """One row: the columns that differ if it is changed, else the whole row."""
    yield f"  {example.change} {place_text(example.at)}"
    if not (example.was and example.now):
        yield f"    {_short(example.was or example.now)}"
        return
    was, now = json.loads(example.was), json.loads(example.now)
    for column in dict.fromkeys((*was, *now)):
        if was.get(column) != now.get(column):
            yield f"    {column}: {_short(json.dumps(was.get(column)))} -> {_short(json.dumps(now.get(column)))}"


def _short(text: str) -> str:
    return printable(text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…")


def place_text(place: tuple[TopicPartition, int]) -> str:
    """A message's topic partition and offset, in few characters."""
    return f"{place[0]}@{place[1]}"
