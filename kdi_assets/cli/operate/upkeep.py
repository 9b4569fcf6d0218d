"""`kdi upkeep`: compact tables, remove files that no version needs, clean up the log; only shown without --yes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from kdi_assets.cli.options import AsJson, Defs, TableNames, Yes, selected_tables
from kdi_assets.cli.output import UNCHANGED, exit_code, print_json, print_refusal
from kdi_assets.cli.session import LazySession, lazy_session
from kdi_assets.errors import KdiError
from kdi_assets.settings import Settings
from kdi_assets.wording import byte_size, counted, duration

if TYPE_CHECKING:
    from kdi_assets.operate.upkeep.clean_up import CleanUp
    from kdi_assets.operate.upkeep.document_upkeep import Document, DocumentUpkeep
    from kdi_assets.operate.upkeep.expiry import Expiry
    from kdi_assets.operate.upkeep.table_upkeep import TableUpkeep
    from kdi_assets.operate.upkeep.unconsumed import Followers


def upkeep(
    tables: TableNames = None,
    yes: Yes = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Keep tables in shape: remove rows and dead letters that a stream keeps no
    longer (the field `keep`), compact small files, remove files that no version
    needs (VACUUM), and clean up a stream's log: copy it to <table>_ledger, then
    remove commits that are older than delta.logRetentionDuration (30 days by
    default). Delta itself cleans up the logs of refined tables.

    Other rows and positions stay, and `kdi audit` still accounts for every offset.
    The table cannot be restored to versions whose commits or files were
    removed. Drains and refinements may run meanwhile. Spark is started only if it is needed.

    Exit codes: 0 shown, or done with --yes; 1 someone must decide; 75 a retry helps.
    """
    from kdi_assets.documents.loading.loader import load_folder
    from kdi_assets.operate.upkeep.unconsumed import Followers

    settings = Settings.from_environment()
    chosen, documents = selected_tables(tables or (), defs), load_folder(defs)
    followers = Followers(tuple(documents.refined.values()), tuple(documents.served.values()), settings.home)
    errors: list[KdiError] = []
    exists = False
    with lazy_session("upkeep", as_json=as_json) as session, session.watched():
        for table in chosen:
            found = _upkeep_of(table, settings.lake, followers, session, yes=yes)
            _print_upkeep(found, as_json=as_json)
            errors += found.all_errors
            exists = exists or bool(found.tables or found.clean_up)
    if exists and not yes and not as_json:
        typer.echo(UNCHANGED)
    if code := exit_code(errors):
        raise typer.Exit(code)


def _upkeep_of(table: Document, lake: str, followers: Followers, session: LazySession, *, yes: bool) -> DocumentUpkeep:
    from kdi_assets.operate.upkeep.document_upkeep import keep_document, plan_upkeep

    now = datetime.now(UTC)
    planned = plan_upkeep(table, lake, now=now, followers=followers)
    if not yes:
        return planned
    return keep_document(table, lake, planned, session=session, now=now, followers=followers)


def _print_upkeep(found: DocumentUpkeep, *, as_json: bool) -> None:
    if as_json:
        print_json(_fields(found))
        return
    for line in _lines(found):
        typer.echo(line)
    for error in found.all_errors:
        print_refusal(error)


def _lines(found: DocumentUpkeep) -> Iterator[str]:
    if found.expiry:
        yield found.expiry.line(found.name)
    for table in found.tables:
        yield _done_line(table) if table.done else _planned_line(table)
    if not found.tables and not found.errors:
        yield f"{found.name}: there is no table yet"
    if found.clean_up:
        yield _done_text(found.clean_up) if found.clean_up.done else _planned_text(found.clean_up)


def _planned_line(table: TableUpkeep) -> str:
    steps = [f"compact {_first([d.part.label for d in table.due])}"] if table.due else []
    if table.vacuum:
        steps.append(f"remove {'files' if table.expired is None else counted(table.expired, 'file')} by VACUUM")
    steps += ["write a checkpoint"] if table.checkpoint else []
    files = table.before
    small = f", {files.small:,} of them small" if files.small else ""
    return (
        f"{table.table} v{table.version}: {counted(files.files, 'file')} of {byte_size(files.bytes)}{small}; "
        f"would {', '.join(steps) if steps else 'do nothing'}"
    )


def _done_line(table: TableUpkeep) -> str:
    before, after = table.before, table.after
    steps = [f"compacted {_first(table.compacted)}"] if table.compacted else []
    steps += [str(table.vacuumed)] if table.vacuumed else []
    steps += ["wrote a checkpoint"] if table.checkpoint else []
    return (
        f"{table.table} v{table.version}: {counted(before.files, 'file')} of {byte_size(before.bytes)} before, "
        f"{counted(after.files, 'file')} of {byte_size(after.bytes)} after; {', '.join(steps) or 'nothing was due'}"
    )


def _first(labels: Sequence[str]) -> str:
    more = f" and {len(labels) - 3:,} more" if len(labels) > 3 else ""
    return ", ".join(labels[:3]) + more


def _planned_text(planned: CleanUp) -> str:
    older = f"{counted(len(planned.expired), 'commit')} of {planned.commits:,} in the log"
    renewed = "; the positions would be committed again first" if planned.renews else ""
    return (
        f"{planned.stream}: {older} are older than {duration(planned.retention.total_seconds())}{renewed}; "
        f"{counted(planned.uncopied, 'commit')} would be copied to the archive"
    )


def _done_text(done: CleanUp) -> str:
    renewed = f", positions renewed by v{done.renewed_at}" if done.renewed_at is not None else ""
    copied = f"{counted(done.copied, 'commit')} copied to the archive"
    return f"{done.stream}: {copied}{renewed}, {counted(done.removed, 'commit')} removed from the log"


def _fields(found: DocumentUpkeep) -> dict[str, object]:
    return {
        "table": found.name,
        "done": any(table.done for table in found.tables),
        "tables": [_table_fields(table) for table in found.tables],
        **(_clean_up_fields(found.clean_up) if found.clean_up else {}),
        **(_expiry_fields(found.expiry) if found.expiry else {}),
        "error": next(iter(found.all_errors), None),
        "errors": list(found.all_errors),
    }


def _table_fields(table: TableUpkeep) -> dict[str, object]:
    removed = table.vacuumed
    return {
        "table": table.table,
        "table_version": table.version,
        "files_before": table.before.files,
        "bytes_before": table.before.bytes,
        "small_files_before": table.before.small,
        "due": [{"partition": d.part.label, "because": d.why} for d in table.due],
        "vacuum_due": table.vacuum,
        "expired_files": table.expired,
        "checkpoint": table.checkpoint,
        "done": table.done,
        "files_after": table.after.files if table.done else None,
        "bytes_after": table.after.bytes if table.done else None,
        "small_files_after": table.after.small if table.done else None,
        "well_sized_bytes_after": table.after.well_sized_bytes if table.done else None,
        "compacted": list(table.compacted),
        "vacuumed_files": removed.files if removed else None,
        "vacuumed_bytes": removed.bytes if removed else None,
    }


def _expiry_fields(of: Expiry) -> dict[str, object]:
    return {
        "kept_from": of.kept_from,
        "rows_kept_no_longer": of.rows,
        "dates_kept_no_longer": list(of.rows_by_date),
        "dead_letters_kept_no_longer": of.dead_letters,
        "expiry_waits_for": list(of.waits_for),
        "expired_at_version": of.committed.version if of.committed else None,
    }


def _clean_up_fields(of: CleanUp) -> dict[str, object]:
    return {
        "commits_in_log": of.commits,
        "expired_versions": of.expired,
        "retention_seconds": of.retention.total_seconds(),
        "renews_positions": of.renews,
        "copied_commits": of.copied if of.done else None,
        "uncopied_commits": None if of.done else of.uncopied,
        "removed_commits": of.removed if of.done else None,
        "renewed_at_version": of.renewed_at,
    }
