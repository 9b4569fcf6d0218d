"""`kdi import-kdi`: documents from a command line of kafka-delta-ingest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kdi_assets.cli.options import AsJson, Defs
from kdi_assets.cli.output import EXIT_DECIDE, UNCHANGED, print_progress, print_result, refusal_in_json, table_text
from kdi_assets.errors import KdiError
from kdi_assets.wording import sql_command

if TYPE_CHECKING:
    from kdi_assets.tools.predecessor.command import IngestCommand
    from kdi_assets.tools.predecessor.import_plan import ImportPlan
    from kdi_assets.tools.predecessor.table import FoundTable


def _file(help_: str) -> Any:
    return typer.Option(metavar="FILE", exists=True, dir_okay=False, help=help_)


def import_kdi(
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="-- ARGUMENTS", help="Its command line, after two dashes.")
    ] = None,
    command: Annotated[Path | None, _file("A file with its command line: shell, docker run.")] = None,
    dockerfile: Annotated[Path | None, _file("Its Dockerfile: ENV, ENTRYPOINT and CMD.")] = None,
    env_file: Annotated[Path | None, _file("A file of its variables, NAME=value on each line.")] = None,
    environment: Annotated[bool, typer.Option("--environment", help="Read its variables in this environment.")] = False,
    table_log: Annotated[
        Path | None, _file("A file of the table's _delta_log with its columns, if the table cannot be read here.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Write the documents.")] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Translate a command line of kafka-delta-ingest into documents, and show what the takeover will do.

    Reads the table's columns and positions, starts nothing, and writes only
    with --yes. Secrets are never copied: documents name the variables.

    Example: kdi import-kdi -- ingest web_requests s3://bucket/bronze/web_requests -a web_requests

    Exit codes: 0 shown, or written; 1 someone must decide; 2 usage; 75 a retry helps.
    """
    from kdi_assets.tools.predecessor.import_plan import write_import

    if not (arguments or command or dockerfile or env_file or environment):
        raise typer.BadParameter("give a command line after --, or one of the options that read one")
    with refusal_in_json(as_json=as_json):
        call = _read_call(arguments or [], command, dockerfile, env_file, environment=environment)
        plan, refused = _plan(call, table_log, defs)
        if yes and not refused:
            write_import(plan)
    said = "\n".join(_text(plan, written=yes and not refused))
    print_result(said, _fields(plan, written=yes and not refused), as_json=as_json, error=refused)
    if refused:
        if not as_json:
            print_progress(str(refused))
        raise typer.Exit(EXIT_DECIDE)


def _read_call(
    arguments: list[str], command: Path | None, dockerfile: Path | None, env_file: Path | None, *, environment: bool
) -> IngestCommand:
    """The call that all sources together describe; what is nearer to the process comes first, as in Docker."""
    from kdi_assets.tools.predecessor import sources
    from kdi_assets.tools.predecessor.command import Word, read_command

    found = [sources.arguments(arguments)]
    found += [sources.read_command_file(command)] if command else []
    variables = (
        {name: Word(value, "environment", is_expanded=True) for name, value in os.environ.items()}
        if environment
        else {}
    )
    if env_file:
        variables = {**variables, **sources.read_env_file(env_file).variables}
    found += [sources.read_dockerfile(dockerfile)] if dockerfile else []
    for source in found:
        variables = {**source.variables, **variables}
    return read_command(next((source.words for source in found if source.words), []), variables)


def _plan(call: IngestCommand, table_log: Path | None, defs: Path | None) -> tuple[ImportPlan, KdiError | None]:
    """The plan; and why it is not written, if someone must decide."""
    from kdi_assets.documents.loading.loader import defs_folder, read_streams
    from kdi_assets.tools.predecessor.import_plan import check_documents, plan_import
    from kdi_assets.tools.predecessor.table import locate

    folder = defs or defs_folder()
    account = call.variables.get("AZURE_STORAGE_ACCOUNT_NAME")
    lake = os.environ.get("KDI_LAKE", "")
    place = locate(call.value("table_location"), lake=lake, azure_account=account.text if account else "ACCOUNT")
    plan = plan_import(call, _table(call, place.uri, table_log), place, folder, read_streams(folder))
    try:
        plan.refuse_undecided()
        check_documents(plan, folder)
    except KdiError as refused:
        return plan, refused
    return plan, None


def _table(call: IngestCommand, uri: str, table_log: Path | None) -> FoundTable:
    from kdi_assets.tools.predecessor.table import read_log_file, read_table

    return read_log_file(table_log) if table_log else read_table(uri, call.value("app_id"))


def _text(plan: ImportPlan, *, written: bool) -> Iterator[str]:
    from kdi_assets.documents.loading.folder import display_path

    for file, text in plan.files.items():
        yield f"--- {display_path(file)}\n{text}"
    rows = [(note.option, note.where, note.here) for note in plan.notes if not note.undecided]
    yield table_text(("OPTION", "WHERE", "HERE"), rows, align="<<<")
    yield ""
    yield "The takeover:"
    yield from (f"{n}. {step}" for n, step in enumerate(_steps(plan), start=1))
    if not written:
        yield f"\n{UNCHANGED}"


def _steps(plan: ImportPlan) -> Iterator[str]:
    """What a person does next, and what then happens."""
    yield "Stop all processes of kafka-delta-ingest for this table, for good."
    for name, of in plan.secrets.items():
        yield f"Set {name}: {of}."
    yield f"export KDI_LAKE={plan.lake}"
    yield from map(sql_command, plan.alters)
    for statement in plan.may_alter:
        yield f"Optional, for the message's time in later rows: {sql_command(statement)}"
    yield f"kdi check; kdi peek {plan.stream} shows what messages become; kdi plan {plan.stream}, the positions below."
    yield f"kdi drain {plan.stream}: {_begin(plan)}"
    yield from (f"Afterwards: {sql_command(statement)}" for statement in plan.alters_later)


def _begin(plan: ImportPlan) -> str:
    if plan.positions is None:
        return "it begins after the last offsets in the table's log, which was not read here."
    if not plan.positions:
        return f"the log has no offsets of this app id, so it begins by `start`: {plan.start}."
    offsets = ", ".join(f"{plan.topic}/{partition} at {at:,}" for partition, at in sorted(plan.positions.items()))
    return f"it begins with the next offsets, {offsets}; other topic partitions by `start`: {plan.start}."


def _fields(plan: ImportPlan, *, written: bool) -> dict[str, object]:
    from kdi_assets.documents.loading.folder import display_path

    return {
        "stream": plan.stream,
        "topic": plan.topic,
        "lake": plan.lake,
        "written": written,
        "documents": [{"file": display_path(file), "text": text} for file, text in plan.files.items()],
        "copies": {display_path(new): display_path(old) for new, old in plan.copies.items()},
        "options": [
            {"option": n.option, "where": n.where, "here": n.here, "undecided": n.undecided} for n in plan.notes
        ],
        "alter": plan.alters,
        "may_alter": plan.may_alter,
        "alter_later": plan.alters_later,
        "variables": plan.secrets,
        "positions": None if plan.positions is None else {str(p): at for p, at in sorted(plan.positions.items())},
    }
