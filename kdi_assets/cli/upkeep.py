"""`kdi upkeep`: copy a table's log to its archive and clean it up; only shown without --yes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.options import AsJson, Defs, StreamName, selected_stream
from kdi_assets.cli.output import UNCHANGED, print_result, refusal_in_json
from kdi_assets.cli.session import lazy_session
from kdi_assets.settings import Settings
from kdi_assets.wording import counted, duration

if TYPE_CHECKING:
    from kdi_assets.upkeep.clean_up import CleanUp


def upkeep(
    stream: StreamName,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only show it.")] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Clean up the log of the stream's table: copy it to <table>_ledger, then remove commits that are older than
    delta.logRetentionDuration (30 days by default).

    Positions stay, and `kdi audit` still accounts for every offset. The table
    cannot be restored to removed versions. Needs Spark only if the newest
    ledger commit is among the expired ones.

    Exit codes: 0 shown, or done with --yes; 1 someone must decide; 75 a retry helps.
    """
    from kdi_assets.upkeep.clean_up import clean_up, plan_clean_up

    chosen, lake, now = selected_stream(stream, defs), Settings.from_environment().lake, datetime.now(UTC)
    with refusal_in_json(chosen.name, as_json=as_json):
        planned = plan_clean_up(chosen, lake, now=now)
        if not yes:
            print_result(_planned_text(planned), _fields(planned), as_json=as_json)
            return
        with lazy_session("upkeep") as session, session.watched():
            done = clean_up(chosen, lake, session=session, now=now)
    print_result(_done_text(done), _fields(done), as_json=as_json)


def _planned_text(planned: CleanUp) -> str:
    older = f"{counted(len(planned.expired), 'commit')} of {planned.commits:,} in the log"
    renewed = "; the newest ledger commit is among them and would be renewed first" if planned.renews else ""
    return (
        f"{planned.stream}: {older} are older than {duration(planned.retention.total_seconds())}{renewed}; "
        f"{counted(planned.uncopied, 'commit')} would be copied to the archive\n{UNCHANGED}"
    )


def _done_text(done: CleanUp) -> str:
    renewed = f", positions renewed by v{done.renewed_at}" if done.renewed_at is not None else ""
    copied = f"{counted(done.copied, 'commit')} copied to the archive"
    return f"{done.stream}: {copied}{renewed}, {counted(done.removed, 'commit')} removed from the log"


def _fields(of: CleanUp) -> dict[str, object]:
    return {
        "stream": of.stream,
        "table_version": of.version,
        "commits_in_log": of.commits,
        "expired_versions": of.expired,
        "retention_seconds": of.retention.total_seconds(),
        "renews_positions": of.renews,
        "done": of.done,
        "copied_commits": of.copied if of.done else None,
        "uncopied_commits": None if of.done else of.uncopied,
        "removed_commits": of.removed if of.done else None,
        "renewed_at_version": of.renewed_at,
        "error": None,
    }
