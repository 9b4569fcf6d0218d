"""`kdi audit`: is every offset a row, a dead letter, filtered, a gap or a declared loss, and none twice?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.bounds import Typed, bounds_meant, typed
from kdi_assets.cli.given import (
    AsJson,
    Defs,
    OneSession,
    StreamName,
    one_session,
    stream_meant,
    topic_partition_meant,
)
from kdi_assets.cli.output import EXIT_DECIDE, counted, json_line, refusal_in_json
from kdi_assets.cli.spark_failures import spark_failures
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from kdi_assets.drain.compare import Comparison
    from kdi_assets.ledger.report import AuditReport
    from kdi_assets.stream import Stream


def audit(
    stream: StreamName,
    topic_partition: Annotated[
        str | None,
        typer.Option("--partition", "--topic-partition", metavar="TOPIC/NUMBER", help="Only this one; default: all."),
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="OFFSET|MOMENT", help="Begin here; a date is its midnight in UTC.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="OFFSET|MOMENT", help="End before this.")] = None,
    against_kafka: Annotated[
        bool, typer.Option("--against-kafka", help="Read what Kafka still holds again, and compare every message.")
    ] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Account for every offset from the first position to the current one.

    An offset needs --partition where the topic has several. A moment is
    translated by the broker: the first message at or behind it.

    Exit codes: 0 complete; 1 offsets are missing, twice or changed, or nothing
    was drained yet; 75 a retry helps.
    """
    chosen = stream_meant(stream, defs)
    asked = typed(topic_partition_meant(topic_partition, chosen), from_, to)
    with (
        refusal_in_json(chosen.name, as_json=as_json),
        one_session("audit") as session,
        session.watched(),
        spark_failures("audit", chosen),
    ):
        report, comparison = _audited(chosen, asked, session, against_kafka=against_kafka)
    if as_json:
        against = {"against_kafka": comparison.fields()} if comparison else {}
        json_line({**report.fields(), **against, "error": None})
    else:
        typer.echo("\n".join([report.line(), *_details(report), *(_compared(comparison) if comparison else ())]))
    if not report.complete or (comparison is not None and not comparison.agrees):
        raise typer.Exit(EXIT_DECIDE)


def _audited(
    stream: Stream, asked: Typed, session: OneSession, *, against_kafka: bool
) -> tuple[AuditReport, Comparison | None]:
    from kdi_assets.drain.compare import compare
    from kdi_assets.ledger.audit import audit as account
    from kdi_assets.ledger.audit import audited_history
    from kdi_assets.ledger.coverage import coverage

    lake, bounds = Settings.from_environment().lake, None
    if asked:
        bounds = bounds_meant(stream, asked, coverage(audited_history(stream, lake).entries).bounds())
    report = account(stream, lake=lake, session=session, bounds=bounds)
    return report, compare(stream, lake=lake, session=session, bounds=bounds) if against_kafka else None


def _details(report: AuditReport) -> list[str]:
    """What the line has no room for."""
    lines = [f"  missing: {hole}, {counted(hole.range.offset_count, 'offset')}" for hole in report.holes]
    lines += [f"  twice:   {double}, {counted(double.range.offset_count, 'offset')}" for double in report.doubles]
    lines += [f"  deleted: {deletion}" for deletion in report.deletions]
    lines += [f"  note:    {note}" for note in report.notes]
    if report.ghosts:
        lines.append(f"  note:    {counted(report.ghosts, 'letter')} of tries that never committed; they do not count")
    return lines


def _compared(comparison: Comparison) -> list[str]:
    lines = [f"  changed: {at}, {counted(at.range.offset_count, 'offset')}" for at in comparison.changed_at]
    lines += [f"  absent:  {at}, {counted(at.range.offset_count, 'offset')}" for at in comparison.absent_at]
    return [comparison.line(), *lines, *(f"  note:    {note}" for note in comparison.notes)]
