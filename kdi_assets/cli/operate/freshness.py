"""`kdi freshness`: how long messages took until they were in the table, and how long rows wait for followers.

Reads logs and databases, no broker and no Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.options import AsJson, Defs, NamesOfAllKinds, selected_of_all_kinds
from kdi_assets.cli.output import NO_DOCUMENTS, exit_if_refused, print_json, print_progress, print_refusal, table_text
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.settings import Settings
from kdi_assets.wording import duration

if TYPE_CHECKING:
    from kdi_assets.documents.model.limits import FreshnessLimits
    from kdi_assets.operate.monitoring.follower_rows import FollowedTable
    from kdi_assets.operate.monitoring.freshness import Freshness

FOLLOWER_HEAD = ("TABLE", "KIND", "WAITS", "LIMITS", "FRESH")
HEAD = ("STREAM", "DRAINS", "MESSAGES", "P50", "P95", "P99", "LIMITS")


def freshness(
    tables: NamesOfAllKinds = None,
    hours: Annotated[float, typer.Option(min=0.01, help="Hours to look back, of streams.")] = 24.0,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Show the time from a message's timestamp until it was in the table, and how long new rows wait for refined and
    served tables. Needs no Spark and no broker.

    P50, P95 and P99 are percentiles over messages, exact to 5 percent of a
    message's age at the beginning of its drain. WAITS is the age of the oldest
    rows upstream that are not refined or served. LIMITS are `freshness` of the
    document. Tables in the embedded server are asked only while it runs.

    Exit codes: 0 shown; 1 documents are wrong, or a table's log or database
    cannot be read; 75 a retry helps.
    """
    chosen = selected_of_all_kinds(tables or (), defs)
    streams = [table for table in chosen if isinstance(table, Stream)]
    lines, refusals = _of_streams(streams, hours, as_json=as_json)
    parts = [table_text(HEAD, lines, align="<>>>>><")] if lines else []
    if followers := [table for table in chosen if not isinstance(table, Stream)]:
        lines, refused = _of_followers(followers, as_json=as_json)
        parts.append(table_text(FOLLOWER_HEAD, lines, align="<<><<"))
        refusals += refused
    if not as_json:
        typer.echo("\n\n".join(parts) or NO_DOCUMENTS)
        for each in refusals:
            print_refusal(each)
    exit_if_refused(refusals)


def _of_streams(
    streams: Sequence[Stream], hours: float, *, as_json: bool
) -> tuple[list[tuple[str, ...]], list[KdiError]]:
    from kdi_assets.operate.monitoring.freshness import freshness_since

    lake, since = Settings.from_environment().lake, datetime.now(UTC) - timedelta(hours=hours)
    lines: list[tuple[str, ...]] = []
    refusals: list[KdiError] = []
    for stream in streams:
        found: Freshness | None = None
        refusal: KdiError | None = None
        try:
            found = freshness_since(stream.table_uri(lake), stream.app_id, since)
        except KdiError as refused:
            refusal = refused
            refusals.append(refused)
        lines.append(_row(stream, found, "?" if refusal else "-"))
        if as_json:
            print_json(_fields(stream, found, refusal, hours))
    return lines, refusals


def _of_followers(tables: Sequence[FollowedTable], *, as_json: bool) -> tuple[list[tuple[str, ...]], list[KdiError]]:
    from kdi_assets.operate.monitoring.follower_rows import read_follower_rows
    from kdi_assets.operate.monitoring.status_row import freshness_level

    settings, now = Settings.from_environment(), datetime.now(UTC)
    rows = read_follower_rows(tables, lake=settings.lake, home=settings.home, now=now)
    lines: list[tuple[str, ...]] = []
    for row in rows:
        level = freshness_level(row)
        unknown = "-" if row.has_not_begun else "?"
        waits = unknown if row.waiting_seconds is None else _seconds(row.waiting_seconds)
        verdict = {"passed": "yes", "warn": "no: warn", "error": "no: fail"}[level] if level else "-"
        lines.append((row.name, row.kind.value, waits, _limits_text(row.limits), verdict))
        if as_json:
            print_json(
                {
                    "table": row.name,
                    "kind": row.kind,
                    "waiting_seconds": row.waiting_seconds,
                    "warn_seconds": row.limits.warn_seconds if row.limits else None,
                    "fail_seconds": row.limits.fail_seconds if row.limits else None,
                    "fresh": None if level is None else level == "passed",
                    "error": row.refusal,
                }
            )
    silent = [row.name for row in rows if not row.server_runs]
    if silent and not as_json:
        print_progress(f"not asked: {', '.join(silent)}; the embedded server does not run")
    return lines, [row.refusal for row in rows if row.refusal and not row.has_not_begun]


def _row(stream: Stream, found: Freshness | None, unknown: str) -> tuple[str, ...]:
    limits_text = _limits_text(stream.freshness)
    if found is None:
        return (stream.name, *5 * unknown, limits_text)
    percentiles = map(_seconds, (found.p50, found.p95, found.p99))
    return (stream.name, f"{found.drains:,}", f"{found.messages:,}", *percentiles, limits_text)


def _limits_text(limits: FreshnessLimits | None) -> str:
    return f"warn {_seconds(limits.warn_seconds)}, fail {_seconds(limits.fail_seconds)}" if limits else "-"


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
