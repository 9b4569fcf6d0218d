"""`kdi history`: the commits of a stream's table: drains, replays, restores, decisions, upkeep."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.followers.refined_output import print_refined_history
from kdi_assets.cli.options import AsJson, Defs, TableName, selected_table
from kdi_assets.cli.output import history_text, print_result, refusal_in_json
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from kdi_assets.operate.monitoring.commit_history import HistoryEntry

_ENTRY_FIELDS: dict[str, object] = {
    **dict.fromkeys(("decided_by", "because", "run_id", "deployment"), ""),
    **dict.fromkeys(("rows_by_date", "removed_by_date", "outcomes", "lost_between"), {}),
    "dates": None,
    "declared_losses": [],
}
"""Fields of a ledger entry, with the values for commits without an entry."""


def history(
    stream: TableName,
    count: Annotated[int, typer.Option(min=1, help="Show this many of the newest commits.")] = 30,
    decisions: Annotated[bool, typer.Option("--decisions", help="Leave out plain drains and refinements.")] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Show the commits of a table, the newest first.

    Drains, replays, decisions, refinements, and commits of others: RESTORE, OPTIMIZE, DELETE.
    A commit that a RESTORE undid is marked \\[undone]; \\[undone?] means that this
    is unknown. Needs neither Spark nor a broker.

    Exit codes: 0 shown; 1 the log cannot be read; 75 a retry helps.
    """
    from kdi_assets.operate.monitoring.commit_history import commit_history

    chosen = selected_table(stream, defs)
    if isinstance(chosen, RefinedTableSpec):
        print_refined_history(chosen, count=count, decisions=decisions, as_json=as_json)
        return
    with refusal_in_json(stream=chosen.name, as_json=as_json):
        newest = commit_history(chosen, Settings.from_environment().lake)
        events = list(islice((e for e in newest if not (decisions and e.operation == "drain")), count))
    text = history_text(events) if events else f"{chosen.name}: no commit yet; the table does not exist"
    print_result(text, {"stream": chosen.name, "commits": [_fields(e) for e in events]}, as_json=as_json)


def _fields(e: HistoryEntry) -> dict[str, object]:
    return {
        "version": e.version,
        "committed_at": e.committed_at,
        "what": e.operation,
        "live": e.live,
        "detail": e.description,
        "positions_before": {tp: was for tp, (was, _) in e.set_positions.items()},
        "positions_after": {tp: at for tp, (_, at) in e.set_positions.items()},
        "rows_kept_aside": e.entry.kept_aside if e.entry else 0,
        **{name: getattr(e.entry, name, empty) for name, empty in _ENTRY_FIELDS.items()},
    }
