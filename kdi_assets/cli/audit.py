"""`kdi audit`: is every offset a row, a dead letter, a tombstone, a gap or a declared loss, and none of them twice?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from kdi_assets.cli.given import AsJson, Defs, StreamName, one_session, stream_meant
from kdi_assets.cli.output import EXIT_DECIDE, counted, json_line, refusal_in_json
from kdi_assets.cli.spark_failures import spark_failures
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from kdi_assets.ledger.audit import AuditReport


def audit(stream: StreamName, defs: Defs = None, as_json: AsJson = False) -> None:
    """Account for every offset from the first position to the current one.

    Exit codes: 0 complete; 1 offsets are missing or twice, or nothing was drained
    yet; 75 a retry helps.
    """
    from kdi_assets.ledger.audit import audit as account

    chosen = stream_meant(stream, defs)
    with (
        refusal_in_json(chosen.name, as_json=as_json),
        one_session("audit") as session,
        session.watched(),
        spark_failures("audit", chosen),
    ):
        report = account(chosen, lake=Settings.from_environment().lake, session=session)
    if as_json:
        json_line(_fields(report))
    else:
        typer.echo("\n".join([report.line(), *_details(report)]))
    if not report.complete:
        raise typer.Exit(EXIT_DECIDE)


def _details(report: AuditReport) -> list[str]:
    """What the line has no room for."""
    lines = [f"  missing: {r}, {counted(r.offset_count, 'offset')}" for r in report.holes]
    lines += [f"  twice:   {r}, {counted(r.offset_count, 'offset')}" for r in report.doubles]
    lines += [f"  note:    {note}" for note in report.notes]
    if report.ghosts:
        lines.append(f"  note:    {counted(report.ghosts, 'letter')} of tries that never committed; they do not count")
    return lines


def _fields(report: AuditReport) -> dict[str, object]:
    own = asdict(report) | {"holes": report.holes, "doubles": report.doubles}
    return {
        "stream": own.pop("stream"),
        "complete": own.pop("complete"),
        "table_version": own.pop("version"),
        **own,
        "line": report.line(),
        "error": None,
    }
