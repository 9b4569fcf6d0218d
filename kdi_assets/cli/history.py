"""`kdi history`: the life of a stream: drains, replays, restores, decisions, upkeep."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.given import AsJson, Defs, StreamName, stream_meant
from kdi_assets.cli.output import clock, columns, json_line, printable, refusal_in_json
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from kdi_assets.ledger.life import Event


_MARKS = {True: "", False: "[undone]", None: "[undone?]"}


def history(
    stream: StreamName,
    count: Annotated[int, typer.Option(min=1, help="Commits at most, the newest.")] = 30,
    decisions: Annotated[bool, typer.Option("--decisions", help="Leave plain drains out.")] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """What happened to a stream's table, the newest first.

    Drains, replays, decisions, and what others did: RESTORE, OPTIMIZE, DELETE. A
    commit that a RESTORE undid is marked [undone], or [undone?] where nobody can
    say. Needs neither Spark nor a broker.

    Exit codes: 0 shown; 1 the log cannot be read; 75 a retry helps.
    """
    from kdi_assets.ledger.life import life

    chosen = stream_meant(stream, defs)
    with refusal_in_json(chosen.name, as_json=as_json):
        told = life(chosen, Settings.from_environment().lake)
        events = list(islice((e for e in told if not (decisions and e.what == "drain")), count))
    if as_json:
        json_line({"stream": chosen.name, "commits": [_fields(e) for e in events], "error": None})
    else:
        typer.echo(_text(events) if events else f"{chosen.name}: nothing happened yet; the table does not exist")


def _text(events: list[Event]) -> str:
    rows = []
    for e in events:
        when = clock(e.committed_at, date=True) if e.committed_at else "-"
        who = " by ".join(filter(None, [e.because and f'"{printable(e.because)}"', printable(e.decided_by)]))
        told = " ".join(filter(None, [printable(e.told), f"({who})" if who else "", _MARKS[e.live]]))
        rows.append((f"v{e.version}", when, e.what, told))
    return columns(("VERSION", "TIME", "WHAT", "TOLD"), rows, align="><<<")


def _fields(e: Event) -> dict[str, object]:
    moved = e.set_positions or {}
    return {
        "version": e.version,
        "committed_at": e.committed_at,
        "what": e.what,
        "live": e.live,
        "told": e.told,
        "decided_by": e.decided_by,
        "because": e.because,
        "run_id": e.run_id,
        "positions_before": {tp: was for tp, (was, _) in moved.items()},
        "positions_after": {tp: at for tp, (_, at) in moved.items()},
        "rows_by_date": e.entry.rows_by_date if e.entry else {},
        "removed_by_date": e.entry.removed_by_date if e.entry else {},
        "rows_kept_aside": e.entry.kept_aside if e.entry else 0,
        "dates": e.entry.dates if e.entry else None,
        "outcomes": e.entry.outcomes if e.entry else {},
        "declared_losses": e.entry.declared_losses if e.entry else [],
    }
