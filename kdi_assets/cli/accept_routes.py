"""`kdi resolve STREAM accept-routes`: all tables of the route group change over to the conditions of the documents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kdi_assets.cli.given import one_session, streams_meant, whoami
from kdi_assets.cli.output import columns, json_line, refusal_in_json
from kdi_assets.cli.spark_failures import spark_failures
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from kdi_assets.drain.accept_routes import RouteDecision
    from kdi_assets.ledger.entry import LedgerEntry
    from kdi_assets.stream import Stream


def accept_routes(stream: Stream, defs: Path | None, *, because: str, yes: bool, as_json: bool) -> None:
    """Show, or with ``yes`` do it, and answer an object per table with ``as_json``."""
    from kdi_assets.drain.accept_routes import commit_routes, decide_routes

    with (
        refusal_in_json(stream.name, as_json=as_json),
        one_session("resolve") as session,
        session.watched(),
        spark_failures("resolve", stream),
    ):
        decision = decide_routes(stream, streams_meant((), defs), Settings.from_environment().lake)
        done = commit_routes(session(), decision, decided_by=whoami(), because=because) if yes else {}
    if as_json:
        for name in decision.members:
            json_line(_fields(name, decision, done.get(name)))
    else:
        typer.echo(_text(decision))
        versions = ", ".join(f"{name} v{entry.version}" for name, entry in done.items())
        typer.echo(f"Done: committed as {versions}." if done else "Nothing was changed; --yes does it.")


def _text(decision: RouteDecision) -> str:
    from kdi_assets.drain.route_change import in_words, positions_in_words

    rows = [
        (name, positions_in_words(table.positions), in_words(table.recorded, table.wanted) or "as in the documents")
        for name, table in sorted((name, one.table) for name, one in decision.members.items())
    ]
    lines = [columns(("TABLE", "POSITIONS", "DRAINED BY SO FAR"), rows, align="<<<")]
    lines.append("From these positions on, the route conditions of the documents hold.")
    if apart := decision.accepted.apart:
        lines.append(f"Messages between these offsets may then be in two tables, or in none: {apart}.")
    return "\n".join(lines)


def _fields(name: str, decision: RouteDecision, entry: LedgerEntry | None) -> dict[str, object]:
    table = decision.members[name].table
    return {
        "stream": name,
        "action": "accept-routes",
        "positions": table.positions,
        "changes": table.changes,
        "apart": bool(decision.accepted.apart),
        "done": entry is not None,
        "table_version": entry.version if entry else None,
        "error": None,
    }
