"""What `kdi replay` prints of what became of messages, or would."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import typer

from kdi_assets.cli.output import columns, counted, json_line, printable

if TYPE_CHECKING:
    from kdi_assets.replay.compared import Example
    from kdi_assets.replay.replay_dates import Replayed

_OUTCOMES = {
    "row": "rows",
    "dead_letter": "dead letters",
    "tombstone": "tombstones",
    "elsewhere": "another table's by their route, and left as they were",
}
_LONG, _MOST_MOVES = 160, 20


def tell(done: Replayed, *, as_json: bool, looked: bool, into: str = "") -> None:
    """Print it, as lines or as one JSON object.

    Args:
        looked: Whether nothing was done.
        into: The table that was made to compare.
    """
    if as_json:
        json_line(_fields(done, looked=looked, into=into))
    else:
        typer.echo("\n".join(_lines(done, looked=looked, into=into)))


def _fields(done: Replayed, *, looked: bool, into: str) -> dict[str, Any]:
    missing = done.missing
    return {
        "stream": done.stream,
        "first": done.first,
        "last": done.last,
        "messages": done.messages,
        "outcomes": done.outcomes,
        "changes": done.changes,
        "moved": [m._asdict() for m in done.moved],
        "examples": [e._asdict() for e in done.examples],
        "rows_by_date": done.rows_by_date,
        "removed_by_date": done.removed_by_date,
        "missing": {
            "messages": missing.messages,
            "dead_letters": missing.letters,
            "rows_by_date": missing.rows_by_date,
        },
        "waiting": done.waiting,
        "torn": done.torn,
        "unplaced": done.unplaced,
        "into": into or None,
        "done": not looked,
        "table_version": done.commit.version if done.commit else None,
        "error": None,
    }


def _lines(done: Replayed, *, looked: bool, into: str) -> Iterator[str]:
    dates = f"{done.first}" if done.first == done.last else f"{done.first} to {done.last}"
    if not done.messages:
        yield f"{done.stream}: no message of {dates} that this could be done with"
    else:
        became = ", ".join(f"{count:,} {_OUTCOMES.get(outcome, outcome)}" for outcome, count in done.outcomes.items())
        yield f"{done.stream}: {counted(done.messages, 'message')} of {dates}: {became}"
    if done.changes:
        yield columns(("CHANGE", "ROWS"), ((change, f"{n:,}") for change, n in done.changes.items()), align="<>")
    if done.moved:
        most = ((f"{m.was}", f"{m.now}", f"{m.rows:,}") for m in done.moved[:_MOST_MOVES])
        yield columns(("MOVED FROM", "TO", "ROWS"), most, align="<<>")
    yield from (line for example in done.examples for line in _example(example))
    if done.missing.messages:
        lost = counted(done.missing.messages, "message")
        yield f"Kafka no longer holds {lost}: {done.missing.rows:,} rows and {done.missing.letters:,} dead letters stay"
    if done.waiting:
        yield f"{counted(done.waiting, 'message')} at or behind the position: left to the next drain"
    if done.torn:
        yield f"{counted(done.torn, 'message')} of which someone deleted some rows: left alone"
    if done.unplaced:
        yield f"{counted(done.unplaced, 'row')} that do not say where their message stood: left alone"
    if into:
        yield f"Old and new rows lie side by side in {into}; nothing else was changed."
    elif looked:
        yield "Nothing was changed; without --dry-run it is done."
    elif done.commit:
        yield f"Committed as v{done.commit.version}."
    elif done.messages:
        yield "Nothing is different; nothing was committed."


def _example(example: Example) -> Iterator[str]:
    """One row: of what is changed the columns that differ, else all of it."""
    tp, offset = example.at
    yield f"  {example.change} {tp}@{offset}"
    if not (example.was and example.now):
        yield f"    {_short(example.was or example.now)}"
        return
    was, now = json.loads(example.was), json.loads(example.now)
    for column in dict.fromkeys((*was, *now)):
        if was.get(column) != now.get(column):
            yield f"    {column}: {_short(json.dumps(was.get(column)))} -> {_short(json.dumps(now.get(column)))}"


def _short(text: str) -> str:
    return printable(text if len(text) <= _LONG else f"{text[:_LONG]}…")
