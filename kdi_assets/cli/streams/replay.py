"""`kdi replay`: make the rows of some dates again by the stream's current document, or show what would differ."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated

import typer

from kdi_assets.cli.followers.refined_output import replay_refined
from kdi_assets.cli.options import AsJson, Defs, TableName, Yes, day, refuse_reversed_dates, selected_table
from kdi_assets.cli.session import stream_session
from kdi_assets.cli.streams.replay_output import print_replay
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.settings import Settings

RowsFrom = Annotated[datetime, typer.Option("--from", metavar="DATE", parser=day, help="First date of rows, UTC.")]
RowsTo = Annotated[datetime, typer.Option("--to", metavar="DATE", parser=day, help="The last date, inclusive.")]
Into = Annotated[
    str | None,
    typer.Option("--into", metavar="TABLE", help="Only write old and new rows side by side to this new table."),
]
LeaveMissing = Annotated[bool, typer.Option("--leave-missing", help="Keep rows whose messages are gone.")]
AcceptDeadLetters = Annotated[
    bool, typer.Option("--accept-dead-letters", help="Replay whatever the number of new dead letters.")
]


def replay(
    stream: TableName,
    first: RowsFrom,
    last: RowsTo,
    into: Into = None,
    leave_missing: LeaveMissing = False,
    accept_dead_letters: AcceptDeadLetters = False,
    yes: Yes = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Read the messages of some dates again, and replace their rows by the stream's current document.

    The messages are those of the rows of these dates, and of the open dead
    letters produced on them. One commit replaces old rows with new ones, which
    may have other dates. Positions do not move, and drains may run meanwhile.

    The rows of a refined table are computed again from its upstream tables.

    Exit codes: 0 shown, or done with --yes; 1 someone must decide; 75 a retry helps.
    """
    chosen, lake = selected_table(stream, defs), Settings.from_environment().lake
    refuse_reversed_dates(first, last)
    _refuse_options(chosen, of_messages=leave_missing or accept_dead_letters, into=into, yes=yes)
    if isinstance(chosen, RefinedTableSpec):
        replay_refined(chosen, first.date(), last.date(), yes=yes, as_json=as_json)
    else:
        _replay_stream(
            chosen,
            first.date(),
            last.date(),
            into,
            lake=lake,
            yes=yes,
            as_json=as_json,
            leave_missing=leave_missing,
            accept_dead_letters=accept_dead_letters,
        )


def _replay_stream(
    stream: Stream,
    first: date,
    last: date,
    into: str | None,
    *,
    lake: str,
    yes: bool,
    as_json: bool,
    leave_missing: bool,
    accept_dead_letters: bool,
) -> None:
    from kdi_assets.streams.replay.replay_dates import replay_dates

    uri = "" if into is None else _new_table(into, stream.root(lake))
    with stream_session(stream, "replay", as_json=as_json) as session:
        done = replay_dates(
            stream,
            lake=lake,
            session=session,
            first=first,
            last=last,
            dry_run=not yes,
            into=uri,
            leave_missing=leave_missing,
            accept_dead_letters=accept_dead_letters,
        )
    print_replay(done, as_json=as_json, dry_run=not yes, into=into or "")


def _refuse_options(table: Stream | RefinedTableSpec, *, of_messages: bool, into: str | None, yes: bool) -> None:
    """Refuse options that the table does not take, or not together.

    Args:
        of_messages: Whether an option about the messages that are read again was given.
    """
    if isinstance(table, RefinedTableSpec):
        if into is not None or of_messages:
            hint = "--into, --leave-missing, --accept-dead-letters"
            raise typer.BadParameter("a refined table has no messages", param_hint=hint)
    elif into is not None and (yes or of_messages):
        raise typer.BadParameter("not with --into", param_hint="--yes, --leave-missing, --accept-dead-letters")


def _new_table(table: str, root: str) -> str:
    """The URI of a table to create below the root of the stream's lake.

    Raises:
        typer.BadParameter: The table exists.
    """
    from kdi_assets.delta.errors import NotADeltaTable
    from kdi_assets.delta.log import TableLog

    uri = f"{root}/{table.strip('/')}"
    try:
        exists = TableLog.open(uri) is not None
    except NotADeltaTable:
        exists = True
    if exists:
        raise typer.BadParameter(f"{uri} exists already; name another table, or drop it", param_hint="--into")
    return uri
