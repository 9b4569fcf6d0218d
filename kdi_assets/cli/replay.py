"""`kdi replay`: messages of dates become what today's definition makes of them; or a look at what would differ."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.options import DATE, AsJson, Defs, StreamName, refuse_empty_span, stream_meant
from kdi_assets.cli.replay_output import tell
from kdi_assets.cli.session import session_over
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from kdi_assets.stream.stream import Stream


def replay(
    stream: StreamName,
    first: Annotated[
        datetime, typer.Option("--from", metavar="DATE", formats=[DATE], help="The first date of the rows, UTC.")
    ],
    last: Annotated[datetime, typer.Option("--to", metavar="DATE", formats=[DATE], help="The last date, inclusive.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be different.")] = False,
    into: Annotated[
        str | None,
        typer.Option(metavar="TABLE", help="Make this table of the lake, old and new rows side by side, and no more."),
    ] = None,
    leave_missing: Annotated[
        bool, typer.Option("--leave-missing", help="Leave rows as they are whose messages Kafka no longer holds.")
    ] = False,
    accept_dead_letters: Annotated[
        bool, typer.Option("--accept-dead-letters", help="Replay however many become dead letters.")
    ] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Read the messages of dates again, by the stream's definition of now.

    They are the messages that rows of these dates were made of, and the open
    dead letters produced on them. Their old rows go and the new ones come, on
    whatever dates they have now, in one commit. Positions do not move, and
    drains may run meanwhile.

    Exit codes: 0 done, or looked at; 1 someone must decide; 75 a retry helps.
    """
    from kdi_assets.replay.replay_dates import replay_dates

    chosen, lake = stream_meant(stream, defs), Settings.from_environment().lake
    refuse_empty_span(first, last)
    begin, end = first.date(), last.date()
    if (dry_run or into is not None) and (leave_missing or accept_dead_letters):
        raise typer.BadParameter("a look replays nothing", param_hint="--leave-missing and --accept-dead-letters")
    compares = None if into is None else _unused(into, chosen, lake)
    with session_over(chosen, "replay", as_json=as_json) as session:
        done = replay_dates(
            chosen,
            lake=lake,
            session=session,
            first=begin,
            last=end,
            dry=dry_run,
            into=compares or "",
            leave_missing=leave_missing,
            accept_dead_letters=accept_dead_letters,
        )
    tell(done, as_json=as_json, looked=bool(dry_run or compares), into=into or "")


def _unused(table: str, stream: Stream, lake: str) -> str:
    """Where a table of the lake is to lie.

    Raises:
        typer.BadParameter: There is one.
    """
    from kdi_assets.ledger.delta_log import TableLog
    from kdi_assets.ledger.errors import NotADeltaTable

    uri = f"{lake.rstrip('/')}/{table.strip('/')}"
    try:
        there = TableLog.open(uri) is not None
    except NotADeltaTable:
        there = True
    if there:
        raise typer.BadParameter(f"{uri} is there already; name another, or drop it", param_hint="--into")
    return uri
