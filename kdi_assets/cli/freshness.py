"""`kdi freshness`: how long messages took until they were in the table; reads the ledger, no broker and no Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.options import AsJson, Defs, StreamNames, selected_streams
from kdi_assets.cli.output import exit_code, print_json, print_refusal, table_text
from kdi_assets.errors import KdiError
from kdi_assets.settings import Settings
from kdi_assets.wording import duration

if TYPE_CHECKING:
    from kdi_assets.monitoring.freshness import Freshness
    from kdi_assets.stream.stream import Stream

HEAD = ("STREAM", "DRAINS", "MESSAGES", "P50", "P95", "P99", "LIMITS")


def freshness(
    streams: StreamNames = None,
    hours: Annotated[float, typer.Option(min=0.01, help="Hours to look back.")] = 24.0,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Show the time from a message's timestamp until it was in the table. Needs no Spark and no broker.

    P50, P95 and P99 are percentiles over messages, exact to 5 percent of a
    message's age at the beginning of its drain. LIMITS are `freshness` of the
    stream's document.

    Exit codes: 0 shown; 1 documents are wrong, or a table's log cannot be read;
    75 a retry helps.
    """
    from kdi_assets.monitoring.freshness import freshness_since

    lake, since = Settings.from_environment().lake, datetime.now(UTC) - timedelta(hours=hours)
    rows: list[tuple[str, ...]] = []
    refusals: list[KdiError] = []
    for stream in selected_streams(streams or (), defs):
        found: Freshness | None = None
        refusal: KdiError | None = None
        try:
            found = freshness_since(stream.table_uri(lake), stream.app_id, since)
        except KdiError as refused:
            refusal = refused
            refusals.append(refused)
        rows.append(_row(stream, found, "?" if refusal else "-"))
        if as_json:
            print_json(_fields(stream, found, refusal, hours))
    if not as_json:
        typer.echo(table_text(HEAD, rows, align="<>>>>><") if rows else "no document describes a stream")
        for each in refusals:
            print_refusal(each)
    if refusals:
        raise typer.Exit(exit_code(refusals))


def _row(stream: Stream, found: Freshness | None, unknown: str) -> tuple[str, ...]:
    limits = stream.freshness
    limits_text = f"warn {_seconds(limits.warn_seconds)}, fail {_seconds(limits.fail_seconds)}" if limits else "-"
    if found is None:
        return (stream.name, *5 * unknown, limits_text)
    percentiles = map(_seconds, (found.p50, found.p95, found.p99))
    return (stream.name, f"{found.drains:,}", f"{found.messages:,}", *percentiles, limits_text)


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)


def _fields(stream: Stream, found: Freshness | None, refusal: KdiError | None, hours: float) -> dict[str, object]:
    return {
        "stream": stream.name,
        "hours": hours,
        "drains": found.drains if found else None,
        "messages": found.messages if found else None,
        "p50_seconds": found.p50 if found else None,
        "p95_seconds": found.p95 if found else None,
        "p99_seconds": found.p99 if found else None,
        "warn_seconds": stream.freshness.warn_seconds if stream.freshness else None,
        "fail_seconds": stream.freshness.fail_seconds if stream.freshness else None,
        "error": refusal,
    }
