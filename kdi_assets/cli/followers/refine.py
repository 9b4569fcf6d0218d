"""`kdi refine`: bring refined tables up to date, each after those that it is made of."""

from __future__ import annotations

from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdi_assets.cli.options import AsJson, Defs, day, refuse_no_or_both, refuse_reversed_dates
from kdi_assets.cli.output import (
    exit_if_refused,
    print_progress,
    print_refusal,
    print_result,
    table_text,
    unmet_expectations,
)
from kdi_assets.cli.session import LazySession, lazy_session
from kdi_assets.errors import KdiError
from kdi_assets.settings import Settings
from kdi_assets.wording import counted

if TYPE_CHECKING:
    from kdi_assets.documents.model.refined_table import RefinedTableSpec
    from kdi_assets.follow.refine.report import RefineReport

_COUNTS = (
    "dates",
    "rows_added",
    "rows_removed",
    "rows_by_date",
    "removed_by_date",
    "changes",
    "late_changes",
    "unknown_values",
    "rows_passed_over",
)
"""Fields of an entry, by the same names in JSON."""

Dates = Annotated[
    tuple[str, str] | None,
    typer.Option("--dates", metavar="FROM TO", help="Compute these dates again, both inclusive."),
]


def refine(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE", help="Refined tables' paths, or their last parts.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Refine every refined table that a document describes.")] = False,
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Compute all rows again.")] = False,
    dates: Dates = None,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Refine what is new in the upstream tables of refined tables, exactly once.

    A table is refined after the tables that it is made of, if these are among
    the tables of the command. A refused table does not stop the others.

    Exit codes: 0 all were refined; 1 a table was refused, and someone must
    decide; 75 tables were refused, and a retry helps.
    """
    refuse_no_or_both(tables, all_=all_)
    if rebuild and (all_ or dates):
        raise typer.BadParameter("name the tables, without --dates", param_hint="--rebuild")
    first, last = map(day, dates) if dates else (None, None)
    refuse_reversed_dates(first, last)
    chosen = _chosen(tables, defs)
    if not chosen:
        print_progress("no document describes a refined table")
    span = (first.date(), last.date()) if first and last else None
    refusals: list[KdiError] = []
    with lazy_session("refine", as_json=as_json) as session:
        for table in chosen:
            if refusal := refine_and_print(table, session, dates=span, rebuild=rebuild, as_json=as_json):
                refusals.append(refusal)
    exit_if_refused(refusals)


def _chosen(names: list[str] | None, defs: Path | None) -> list[RefinedTableSpec]:
    """The tables with these names, each after those that it is made of; without names, all."""
    from kdi_assets.documents.loading.errors import NotRefined, UnknownStream
    from kdi_assets.documents.loading.loader import load_folder, select_refined, select_streams
    from kdi_assets.documents.loading.refined_documents import upstream_first

    loaded = load_folder(defs)
    try:
        return upstream_first(select_refined(loaded.refined, names or loaded.refined))
    except UnknownStream as unknown:
        with suppress(UnknownStream):
            raise NotRefined(name=select_streams(loaded.streams, [unknown.name])[0].name) from None
        raise


def refine_and_print(
    table: RefinedTableSpec, session: LazySession, *, dates: tuple[date, date] | None, rebuild: bool, as_json: bool
) -> KdiError | None:
    """Refine one table, print the result, and return its refusal."""
    from kdi_assets.follow.refine.refine import refine as refine_table

    report: RefineReport | None = None
    refusal: KdiError | None = None
    lake = Settings.from_environment().lake
    try:
        with session.watched():
            report = refine_table(
                table, lake=lake, session=session, dates=dates, rebuild=rebuild, report=print_progress
            )
    except KdiError as refused:
        refusal = refused
        print_refusal(refused)
    text = _text(report) if report else f"{table.name}: not refined"
    print_result(text, _fields(table, report), as_json=as_json, error=refusal)
    return refusal


def _text(report: RefineReport) -> str:
    did = report.entry
    if report.committed is None:
        return f"{did.consumer}: nothing is new upstream ({report.seconds:.1f} s)"
    facts = [f"{counted(did.rows_added, 'row')} added", f"{did.rows_removed:,} removed", f"v{did.version}"]
    facts += unmet_expectations(did.unmet)
    if did.late_changes:
        facts.append(f"{did.late_changes:,} of {did.changes:,} changes older than the rows")
    if did.unknown_values:
        facts.append(f"{counted(did.unknown_values, 'row')} with values that no message had")
    if did.rows_passed_over:
        facts.append(f"{counted(did.rows_passed_over, 'row')} of dates that are kept no longer passed over")
    because = f"; {did.kind}: {did.why}" if did.why else ""
    rows = [(day, did.rows_by_date.get(day, 0), did.removed_by_date.get(day, 0)) for day in did.dates]
    lines = [table_text(("DATE", "ROWS ADDED", "REMOVED"), rows, align="<>>")] if rows else []
    return "\n".join([f"{did.consumer}: {', '.join(facts)}, {report.seconds:.1f} s{because}", *lines])


def _fields(table: RefinedTableSpec, report: RefineReport | None) -> dict[str, Any]:
    did, committed = (report.entry, report.committed) if report else (None, None)
    upstreams = did.upstreams if did else ()
    return {
        "table": table.name,
        "refined": did.kind if did else None,
        "why": did.why if did else None,
        "version": committed.version if committed else None,
        "upstreams": [{"table": c.table, "since": c.since, "version": c.version} for c in upstreams],
        **{name: getattr(did, name, None) for name in _COUNTS},
        "expectations_not_met": did.unmet if did else None,
        "seconds": report.seconds if report else None,
    }
