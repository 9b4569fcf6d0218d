"""What `kdi plan`, `history`, `replay` and `audit` do for a refined table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import date
from itertools import islice
from typing import TYPE_CHECKING

import typer

from kdi_assets.cli.followers.refine import refine_and_print
from kdi_assets.cli.output import (
    UNCHANGED,
    exit_if_refused,
    history_text,
    print_result,
    refusal_in_json,
    table_text,
)
from kdi_assets.cli.session import lazy_session
from kdi_assets.settings import Settings
from kdi_assets.wording import counted

if TYPE_CHECKING:
    from kdi_assets.documents.model.refined_table import RefinedTableSpec
    from kdi_assets.follow.refine.audit.audit import RefinedAudit
    from kdi_assets.follow.refine.plan import RefinePlan
    from kdi_assets.operate.monitoring.refined_history import RefinedCommit

_OF_ENTRY = (
    "kind",
    "why",
    "run_id",
    "upstreams",
    "dates",
    "rows_by_date",
    "removed_by_date",
    "changes",
    "late_changes",
    "unknown_values",
    "rows_passed_over",
)


def print_refined_plan(table: RefinedTableSpec, *, to_be_made: Collection[str] = (), as_json: bool) -> None:
    """Show what `kdi refine` would do.

    Args:
        to_be_made: Paths of upstream tables that may be missing, because another run makes them.
    """
    from kdi_assets.follow.refine.errors import UpstreamMissing
    from kdi_assets.follow.refine.plan import plan_refinement

    with refusal_in_json(table=table.name, as_json=as_json):
        try:
            plan = plan_refinement(table, Settings.from_environment().lake)
        except UpstreamMissing as missing:
            if missing.upstream not in to_be_made:
                raise
            why = f"{missing.upstream} does not exist yet"
            fields: dict[str, object] = {"table": table.name, "refined": "not begun", "why": why}
            return print_result(f"{table.name}: not begun: {why}", fields, as_json=as_json)
    fields = {
        "table": table.name,
        "refined": plan.kind,
        "why": plan.why,
        "table_version": plan.version if plan.version >= 0 else None,
        "dates": sorted(plan.dates),
        "upstreams": [
            {"table": u.table, "new": u.kind, "since": u.since, "version": u.version, "why": u.why}
            for u in plan.upstreams
        ],
    }
    print_result(_plan_text(table, plan), fields, as_json=as_json)


def _plan_text(table: RefinedTableSpec, plan: RefinePlan) -> str:
    if plan.kind == "nothing":
        return f"{table.name}: nothing to refine; v{plan.version} has every upstream version"
    if plan.only_records:
        return f"{table.name}: would compute no rows, and commit after v{plan.version}: {plan.why}"
    what = {"changes": "what is new", "dates": counted(len(plan.dates), "date"), "rebuild": "all rows"}[plan.kind]
    after = f"directly after v{plan.version}" if plan.version >= 0 else "as a new table"
    head = f"{table.name}: would compute {what}, {after}" + (f": {plan.why}" if plan.why else "")
    rows = [(u.table, u.since, u.version, u.kind) for u in plan.upstreams]
    lines = [head, table_text(("UPSTREAM TABLE", "CONSUMED", "NEWEST", "NEW"), rows, align="<>><")]
    return "\n".join([*lines, *([f"dates: {', '.join(map(str, sorted(plan.dates)))}"] if plan.dates else ())])


def print_refined_history(table: RefinedTableSpec, *, count: int, decisions: bool, as_json: bool) -> None:
    """Show the newest commits of a refined table; with ``decisions``, those that are not plain refinements."""
    from kdi_assets.operate.monitoring.refined_history import refined_history

    with refusal_in_json(table=table.name, as_json=as_json):
        commits = refined_history(table, Settings.from_environment().lake)
        plain = (c for c in commits if not (decisions and c.entry and c.entry.kind == "changes"))
        newest = list(islice(plain, count))
    text = history_text(newest) if newest else f"{table.name}: no commit yet; the table does not exist"
    print_result(text, {"table": table.name, "commits": [_commit_fields(c) for c in newest]}, as_json=as_json)


def _commit_fields(c: RefinedCommit) -> dict[str, object]:
    entry = asdict(c.entry) if c.entry else {}
    return {
        "version": c.version,
        "committed_at": c.committed_at,
        "what": c.operation,
        "live": c.live,
        "detail": c.description,
        **{name: entry.get(name) for name in _OF_ENTRY},
    }


def replay_refined(table: RefinedTableSpec, first: date, last: date, *, yes: bool, as_json: bool) -> None:
    """Compute the rows of some dates again; without ``yes``, only compare them."""
    if not yes:
        found = _audit(table, everything=False, bounds=(first, last), as_json=as_json)
        if not (found.equal or as_json):
            typer.echo(UNCHANGED)
        return
    with lazy_session("replay", as_json=as_json) as session:
        refusal = refine_and_print(table, session, dates=(first, last), rebuild=False, as_json=as_json)
    exit_if_refused([refusal] if refusal else [])


def audit_refined_table(
    table: RefinedTableSpec, *, everything: bool, start: str | None, end: str | None, as_json: bool
) -> bool:
    """Compare a refined table with a recomputation, of some dates or of all rows; whether they are equal."""
    try:
        bounds = [date.fromisoformat(text) for text in (start, end) if text]
    except ValueError:
        raise typer.BadParameter("a refined table takes dates, e.g. 2026-01-31", param_hint="--from, --to") from None
    if len(bounds) == 1 or (bounds and everything) or bounds != sorted(bounds):
        raise typer.BadParameter("give both, in order, and not with --all", param_hint="--from, --to")
    return _audit(table, everything=everything, bounds=bounds, as_json=as_json).equal


def _audit(table: RefinedTableSpec, *, everything: bool, bounds: Sequence[date], as_json: bool) -> RefinedAudit:
    """Audit the dates between two, both inclusive; without bounds, a sample or everything."""
    from kdi_assets.follow.refine.audit.audit import audit_refined
    from kdi_assets.follow.refine.inputs import days_between

    dates = days_between(*bounds) if bounds else None
    lake = Settings.from_environment().lake
    with (
        refusal_in_json(table=table.name, as_json=as_json),
        lazy_session("audit", as_json=as_json) as session,
        session.watched(),
    ):
        found = audit_refined(table, lake=lake, session=session, everything=everything, dates=dates)
    print_result(_audit_text(found), {**asdict(found), "equal": found.equal}, as_json=as_json)
    return found


def _audit_text(found: RefinedAudit) -> str:
    of = "all dates" if found.dates is None else ", ".join(map(str, found.dates)) or "no date"
    upstream = ", ".join(f"{c.table} v{c.version}" for c in found.upstreams)
    result = "equal" if found.equal else f"{found.missing:,} missing, {found.surplus:,} too many"
    line = (
        f"audit of {found.table} at v{found.version}, {of}: {found.rows:,} rows; recomputed from {upstream}: {result}"
    )
    left_out = [f"  left out: dates before {found.first}, which are kept no longer"] if found.first else []
    return "\n".join([line, *left_out, *(f"  different: {day}" for day in found.different_dates)])
