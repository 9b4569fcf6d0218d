"""`kdi freshness`: how long messages took until they were in the table; from the ledger, without a JVM or a broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.given import AsJson, Defs, StreamNames, streams_meant
from kdi_assets.cli.output import columns, error_fields, exit_code, json_line, refuse
from kdi_assets.errors import KdiError
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from kdi_assets.ledger.freshness import Freshness
    from kdi_assets.stream import Stream

HEAD = ("STREAM", "DRAINS", "MESSAGES", "P50", "P95", "P99", "LIMITS")


def freshness(
    streams: StreamNames = None,
    hours: Annotated[float, typer.Option(min=0.01, help="Of the drains of so many hours until now.")] = 24.0,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Show the time from a message's timestamp until it was in the table. Needs no Spark and no broker.

    P50, P95 and P99 are over messages, to within 5 per cent of the age that a
    message had when its drain began; LIMITS are those of `freshness` in the
    stream's document.

    Exit codes: 0 it could look; 1 documents are wrong, or a table's log cannot
    be read; 75 a retry helps.
    """
    chosen, lake = streams_meant(streams or (), defs), Settings.from_environment().lake
    since = datetime.now(UTC) - timedelta(hours=hours)
    seen = [(stream, _seen(stream, lake, since)) for stream in chosen]
    refusals = [found for _, found in seen if isinstance(found, KdiError)]
    if as_json:
        for stream, found in seen:
            json_line(_fields(stream, found, hours))
    else:
        typer.echo(columns(HEAD, list(_rows(seen)), align="<>>>>><") if seen else "no document describes a stream")
        for refusal in refusals:
            refuse(refusal)
    if refusals:
        raise typer.Exit(exit_code(refusals))


def _seen(stream: Stream, lake: str, since: datetime) -> Freshness | KdiError | None:
    from kdi_assets.ledger.freshness import freshness_since

    try:
        return freshness_since(stream.table_uri(lake), stream.app_id, since)
    except KdiError as refusal:
        return refusal


def _rows(seen: Sequence[tuple[Stream, Freshness | KdiError | None]]) -> Iterator[tuple[str, ...]]:
    for stream, found in seen:
        limits = stream.freshness
        said = f"warn {_span(limits.warn_seconds)}, fail {_span(limits.fail_seconds)}" if limits else "-"
        if isinstance(found, KdiError):
            yield (stream.name, *"?????", said)
        elif found is None:
            yield (stream.name, *"-----", said)
        else:
            spans = (_span(found.p50), _span(found.p95), _span(found.p99))
            yield (stream.name, f"{found.drains:,}", f"{found.messages:,}", *spans, said)


def _span(seconds: float | None) -> str:
    from kdi_assets.cli.output import duration

    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)


def _fields(stream: Stream, found: Freshness | KdiError | None, hours: float) -> dict[str, object]:
    known = None if isinstance(found, KdiError) else found
    return {
        "stream": stream.name,
        "hours": hours,
        "drains": known.drains if known else None,
        "messages": known.messages if known else None,
        "p50_seconds": known.p50 if known else None,
        "p95_seconds": known.p95 if known else None,
        "p99_seconds": known.p99 if known else None,
        "warn_seconds": stream.freshness.warn_seconds if stream.freshness else None,
        "fail_seconds": stream.freshness.fail_seconds if stream.freshness else None,
        "error": error_fields(found) if isinstance(found, KdiError) else None,
    }
