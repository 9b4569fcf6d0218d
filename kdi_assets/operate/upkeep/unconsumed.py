"""Which followers of a table have not consumed some dates yet. No JVM, and starts no server.

A follower is a table that a document makes of it: a refined or a served table, or a stream's announcements.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.served_table import Postgres, ServedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.kept_dates import dates_of_a_row
from kdi_assets.follow.refine.plan import plan_refinement
from kdi_assets.follow.serve.postgres.embedded import FOLDER, postgres_runs
from kdi_assets.follow.serve.status import read_served_status
from kdi_assets.follow.upstream import UpstreamChanges, changes_since
from kdi_assets.streams.announce.status import read_announced_statuses
from kdi_assets.wording import first_line


@dataclass(frozen=True, slots=True)
class Followers:
    """The refined and served tables of all documents, whatever they are made of.

    Attributes:
        home: Folder of the embedded server, and of DuckDB files with relative paths.
    """

    refined: tuple[RefinedTableSpec, ...]
    served: tuple[ServedTableSpec, ...]
    home: Path


def waiting_followers(
    document: Stream | RefinedTableSpec, dates: Collection[date], followers: Followers, lake: str, *, kept_from: date
) -> tuple[str, ...]:
    """The followers that have not consumed all dates before a date, or of which it is unknown, each with the reason.

    Args:
        dates: Of the rows that leave; none: nobody has to wait.
        kept_from: The first date that the table keeps then. Followers hear nothing of earlier dates any more, also of
            rows that stay. What came to later dates does not count.
    """
    if not dates:
        return ()
    found = [
        *_refined(document.table, kept_from, followers, lake),
        *_served(document.table, kept_from, followers, lake),
        *(_announced(document, kept_from, lake) if isinstance(document, Stream) else ()),
    ]
    return tuple(f"{name}: {why}" for name, why in found if why)


def _refined(path: str, kept_from: date, followers: Followers, lake: str) -> Iterator[tuple[str, str]]:
    for table in followers.refined:
        if path not in {upstream.table for upstream in table.upstreams}:
            continue
        if why := table.needs_other_dates:
            yield table.name, f"it {why}, so it cannot be computed without the dates that left"
            continue
        try:
            plan = plan_refinement(table, lake)
        except KdiError as refusal:
            yield table.name, first_line(refusal.message_parts()[0])
            continue
        if plan.kind == "rebuild":
            yield table.name, f"it must compute all rows again: {plan.why}"
        else:
            own = [u for u in plan.upstreams if u.table == path]
            # Dates that are kept here, and that it cannot compute without those before them.
            before = kept_from + timedelta(days=dates_of_a_row(table) - 1)
            yield table.name, next(filter(None, (_unconsumed(u, before) for u in own)), "")


def _served(path: str, kept_from: date, followers: Followers, lake: str) -> Iterator[tuple[str, str]]:
    for table in followers.served:
        if table.table != path:
            continue
        into = table.into
        if isinstance(into, Postgres) and not into.url and not postgres_runs(followers.home / FOLDER):
            yield table.name, "its database does not run"
            continue
        status = read_served_status(table, lake=lake, home=followers.home)
        if status.refusal:
            yield table.name, first_line(status.refusal.message_parts()[0])
        elif status.changes is None or not status.same_definition or status.consumed is None:
            yield table.name, status.why_behind or "it is unknown what it has"
        else:
            yield table.name, _unconsumed(status.changes, kept_from)


def _announced(stream: Stream, kept_from: date, lake: str) -> Iterator[tuple[str, str]]:
    if stream.announce is None or stream.status == "retired":
        return
    name = f"the announcements of {stream.name}"
    status = read_announced_statuses([stream], lake)[stream.name]
    if isinstance(status, KdiError):
        yield name, first_line(status.message_parts()[0])
    else:
        yield name, _unconsumed(changes_since(TableLog.existing(stream.table_uri(lake)), status.through), kept_from)


def _unconsumed(changes: UpstreamChanges, before: date) -> str:
    """Why not all dates before a date are consumed; empty if they are."""
    if changes.kind == "nothing":
        return ""
    if changes.since is None or changes.dates is None:
        return changes.why or "it is unknown which dates it has not consumed"
    waiting = sorted(day for day in changes.dates if day < before)
    more = f" and {len(waiting) - 1:,} more dates" if len(waiting) > 1 else ""
    return f"it has not consumed {waiting[0]}{more}" if waiting else ""
