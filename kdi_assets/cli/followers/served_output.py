"""What `kdi plan` does for a served table."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kdi_assets.cli.output import print_result, refusal_in_json
from kdi_assets.documents.model.served_table import DuckDb
from kdi_assets.settings import Settings
from kdi_assets.wording import counted

if TYPE_CHECKING:
    from kdi_assets.documents.model.served_table import ServedTableSpec
    from kdi_assets.follow.serve.status import ServedStatus


def print_served_plan(served: ServedTableSpec, *, to_be_made: Collection[str] = (), as_json: bool) -> None:
    """Show what `kdi serve` would read, or why it refuses.

    Args:
        to_be_made: Paths of Delta tables that may be missing, because another run makes them.
    """
    from kdi_assets.follow.serve.errors import SourceMissing
    from kdi_assets.follow.serve.status import read_served_status

    settings = Settings.from_environment()
    with refusal_in_json(served=served.name, as_json=as_json):
        status = read_served_status(served, lake=settings.lake, home=settings.home)
        if isinstance(status.refusal, SourceMissing) and served.table in to_be_made:
            why = f"{served.table} does not exist yet"
            unknown: dict[str, object] = {"served": served.name, "table": served.table, "new": "not begun", "why": why}
            return print_result(f"{served.name}: not begun: {why}", unknown, as_json=as_json)
        if status.refusal:
            raise status.refusal
    changes = status.changes
    fields = {
        "served": served.name,
        "table": served.table,
        "new": changes.kind if changes else None,
        "why": status.why_behind or None,
        "consumed_version": status.consumed,
        "newest_version": status.newest,
        "dates": sorted(changes.dates) if changes and changes.dates else [],
    }
    print_result(f"{served.name}: {_what(status)}", fields, as_json=as_json)


def _what(status: ServedStatus) -> str:
    of = f"{status.served.table} v{status.newest}"
    if not status.is_behind and status.consumed == status.newest:
        return f"nothing to serve; it has {of}"
    if isinstance(status.served.into, DuckDb):
        why = status.why_behind or f"it has v{status.consumed}, and no row changed since"
        return f"would replace all rows with {of}: {why}"
    if not status.is_behind:
        return f"would only record {of}: it has v{status.consumed}, and no row changed since"
    changes = status.changes
    if status.consumed is None or not status.same_definition or changes is None or changes.kind == "lost":
        why = changes.why if changes and changes.kind == "lost" and status.consumed is not None else status.why_behind
        return f"would compare or load all rows of {of}: {why}"
    first, last = f"v{status.consumed + 1}", f"v{status.newest}"
    since = f"{status.served.table} {first}" + (f" to {last}" if first != last else "")
    if changes.kind == "appended":
        return f"would upsert the rows of {counted(len(changes.files), 'added file')} of {since}"
    if changes.has_feed:
        return f"would upsert and delete by the change feed of {since}"
    return f"would compare all rows of {of}: rows were changed or removed, and there is no change feed"
