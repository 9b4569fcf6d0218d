"""`kdi dead-letters view`: the dead letters as kafka-delta-ingest's tables of them had them."""

from __future__ import annotations

from typing import Annotated

import typer

from kdi_assets.cli.given import AsJson, Defs, StreamName, stream_meant
from kdi_assets.cli.output import json_line, refusal_in_json
from kdi_assets.settings import Settings


def view(
    stream: StreamName,
    name: Annotated[
        str, typer.Option(help="Of the view; in a schema (audit.letters) it stays. Default: TABLE_dead_letters.")
    ] = "",
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """A statement for Spark that makes a view of four columns.

    base64_bytes, json_string, error and timestamp, as kafka-delta-ingest's
    dead letter tables have them. It shows every dead letter that counts by
    the table's newest version, and those of later drains when it is made
    anew. Needs neither Spark nor a broker.

    Exit codes: 0 printed; 1 the log cannot be read; 75 a retry helps.
    """
    from kdi_assets.ledger.history import live_history
    from kdi_assets.ledger.letters_view import condemning, select_sql, view_sql

    chosen, lake = stream_meant(stream, defs), Settings.from_environment().lake
    with refusal_in_json(chosen.name, as_json=as_json):
        history = live_history(chosen.table_uri(lake), chosen.app_id, archive_uri=chosen.archive_uri(lake))
        commits = condemning(history) if history else ()
        statement = view_sql(
            name or f"{chosen.table.rpartition('/')[2]}_dead_letters", select_sql(chosen, lake, commits)
        )
    if not as_json:
        version = f"version {history.version}" if history else "no version yet"
        typer.echo(f"-- {chosen.name}: the dead letters that count by {version} of its table\n{statement};")
        return
    json_line(
        {
            "stream": chosen.name,
            "table_version": history.version if history else None,
            "dead_letters_table": chosen.dead_letters_uri(lake),
            "condemned_by": [{"attempt_id": c.attempt_id, "version": c.version, "at": c.at} for c in commits],
            "statement": statement,
            "error": None,
        }
    )
