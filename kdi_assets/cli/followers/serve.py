"""`kdi serve`: bring what changed in Delta tables into the databases that serve them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.options import AsJson, Defs, refuse_no_or_both
from kdi_assets.cli.output import exit_if_refused, print_progress, print_refusal, print_result
from kdi_assets.cli.session import LazySession, lazy_session
from kdi_assets.errors import KdiError
from kdi_assets.settings import Settings
from kdi_assets.wording import counted

if TYPE_CHECKING:
    from kdi_assets.documents.model.served_table import ServedTableSpec
    from kdi_assets.follow.serve.report import ServeReport


def serve(
    tables: Annotated[
        list[str] | None,
        typer.Argument(metavar="TABLE", help="Paths such as postgres/public/x, their last parts, or Delta tables."),
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Serve every table that a document describes.")] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Compare or load all rows, not only what changed.")
    ] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Upsert what changed in Delta tables into their databases, one table after the other.

    Rows and consumed version are one transaction of the database. A refused
    table does not stop the others.

    Exit codes: 0 all were served; 1 a table was refused, and someone must
    decide; 75 tables were refused, and a retry helps.
    """
    refuse_no_or_both(tables, all_=all_)
    from kdi_assets.documents.loading.loader import load_folder
    from kdi_assets.documents.loading.served_documents import select_served

    known = load_folder(defs).served
    if not known:
        print_progress("no document describes a served table")
    refusals: list[KdiError] = []
    with lazy_session("serve", as_json=as_json) as session:
        for served in select_served(known, tables or list(known)):
            refusals += _serve(served, session, rebuild=rebuild, as_json=as_json)
    exit_if_refused(refusals)


def _serve(served: ServedTableSpec, session: LazySession, *, rebuild: bool, as_json: bool) -> list[KdiError]:
    """Serve one table and print the result; its refusal, if there is one."""
    from kdi_assets.follow.serve.serve import serve

    lake = Settings.from_environment().lake
    try:
        with session.watched():
            report = serve(served, lake=lake, session=session, rebuild=rebuild, report=print_progress)
    except KdiError as refused:
        print_refusal(refused)
        print_result(f"{served.name}: not served", {"served": served.name}, as_json=as_json, error=refused)
        return [refused]
    print_result(_text(report), _fields(report), as_json=as_json)
    return []


def _text(report: ServeReport) -> str:
    if report.kind == "nothing":
        return f"{report.target}: nothing changed; it has v{report.version}"
    facts = [f"{counted(report.upserted, 'row')} upserted, {report.deleted:,} deleted", f"v{report.version}"]
    facts += [f"new columns {', '.join(report.columns_added)}"] if report.columns_added else []
    return f"{report.target}: {', '.join(facts)} ({report.seconds:.1f} s)\n  {report.client} -c '{report.sql}'"


def _fields(report: ServeReport) -> dict[str, object]:
    return {
        "served": report.target,
        "published": report.kind,
        "why": report.why or None,
        "consumed_before": report.since,
        "delta_version": report.version,
        "rows_upserted": report.upserted,
        "rows_deleted": report.deleted,
        "columns_added": report.columns_added,
        "seconds": report.seconds,
        "publish_seconds": report.publish_seconds,
    }
