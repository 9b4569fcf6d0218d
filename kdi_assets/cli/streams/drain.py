"""`kdi drain`: bring the waiting messages into the tables, one stream after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.options import AsJson, Defs, selected_streams
from kdi_assets.cli.output import exit_if_refused, print_progress, print_refusal, print_result, unmet_expectations
from kdi_assets.cli.place import print_place
from kdi_assets.cli.session import LazySession, lazy_session
from kdi_assets.errors import KdiError
from kdi_assets.settings import Settings
from kdi_assets.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kdi_assets.documents.model.stream import Stream
    from kdi_assets.streams.drain.report import Commit, Commits, DrainReport


def drain(
    streams: Annotated[
        list[str] | None, typer.Argument(metavar="STREAM", help="Tables' paths, their last parts, or topics.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Drain every stream that a document describes.")] = False,
    accept_dead_letters: Annotated[
        bool, typer.Option("--accept-dead-letters", help="Ignore the documents' `dead_letter_limit` this time.")
    ] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Drain the backlog of streams into their tables, exactly once; one stream after the other.

    Streams that share a topic by their routes are drained with one read of it.
    A refused stream does not stop the others.

    Exit codes: 0 all were drained; 1 a stream was refused, and someone must
    decide; 75 streams were refused, and a retry helps.
    """
    if bool(streams) == all_:
        raise typer.BadParameter("name streams, or give --all" if not all_ else "give --all, or names, not both")
    if all_ and accept_dead_letters:
        raise typer.BadParameter(
            "name the streams whose dead letters you have seen", param_hint="--accept-dead-letters"
        )
    from kdi_assets.streams.drain.shared_read import by_shared_read

    refusals: list[KdiError] = []
    chosen = selected_streams(streams or (), defs)
    if not as_json:
        print_place(defs, chosen)
    with lazy_session("drain", as_json=as_json) as session:
        on_backlog = session.expect_only if len(chosen) == 1 else _ignored
        for together in by_shared_read(chosen):
            refusals += _drain(together, session, on_backlog, accept_dead_letters=accept_dead_letters, as_json=as_json)
    exit_if_refused(refusals)


def _ignored(messages: int) -> None:
    """A session that several streams share goes on after the first one's backlog."""


def _drain(
    together: Sequence[Stream],
    session: LazySession,
    on_backlog: Callable[[int], None],
    *,
    accept_dead_letters: bool,
    as_json: bool,
) -> Iterator[KdiError]:
    """Drain streams with one read, print the result of each, and give back their refusals."""
    from kdi_assets.streams.drain.shared_read import drain_together

    def on_commit(stream: Stream, commit: Commit) -> None:
        print_progress(f"{stream.name}: committed v{commit.version}: {counted(commit.rows, 'row')}")

    with session.watched():
        drained = drain_together(
            together,
            lake=Settings.from_environment().lake,
            session=session,
            accept_dead_letters=accept_dead_letters,
            report=print_progress,
            on_commit=on_commit,
            on_backlog=on_backlog,
        )
    for stream in together:
        done = drained[stream.name]
        report: DrainReport | None = None
        refusal: KdiError | None = None
        try:
            with session.watched():
                report = done.result()
        except KdiError as refused:
            refusal = refused
            print_refusal(refused)
            yield refused
        text, fields = _text(stream, done.did, report), _fields(stream, done.did, report)
        print_result(text, fields, as_json=as_json, error=refusal)


def _text(stream: Stream, did: Commits, report: DrainReport | None) -> str:
    name = stream.name
    if not did.commits:
        if report is None:
            return f"{name}: not drained"
        positions = "positions committed; " if report.position_commits else ""
        if report.taken_by_another:
            taken = counted(report.backlog_before, "offset")
            return f"{name}: another drain committed the backlog of {taken} ({report.seconds:.1f} s)"
        return f"{name}: {positions}no backlog ({report.seconds:.1f} s)"
    facts = [counted(did.rows_added, "row"), counted(did.dead_letters, "dead letter")]
    facts += [*([f"{did.filtered:,} filtered"] if did.filtered else ()), _versions(did.commits)]
    if report is None:
        return f"{name}: {', '.join(facts)}, then refused"
    facts += unmet_expectations(did.unmet)
    unknown, misfits = did.unknown, did.misfits
    facts += [f"{unknown.messages:,} with unknown fields: {unknown.listed()}"] if unknown else []
    facts += [f"{misfits.messages:,} without values of other types: {misfits.listed()}"] if misfits else []
    facts.append(f"{report.seconds:.1f} s")
    arrived = f"; {counted(report.backlog_after, 'offset')} arrived meanwhile" if report.backlog_after else ""
    dates = did.rows_by_date
    width = max((len(f"{rows:,}") for rows in dates.values()), default=0)
    lines = (f"  {day}  {rows:>{width},}" for day, rows in dates.items())
    letters = [f"  kdi dead-letters list {name}   (why they are not rows)"] if did.dead_letters else []
    return "\n".join([f"{name}: {', '.join(facts)}{arrived}", *lines, *letters])


def _fields(stream: Stream, did: Commits, report: DrainReport | None) -> dict[str, object]:
    return {
        "stream": stream.name,
        "rows_added": did.rows_added,
        "rows_by_date": did.rows_by_date,
        "dead_letters": did.dead_letters,
        "tombstones": did.tombstones,
        "filtered": did.filtered,
        "expectations_not_met": did.unmet,
        "unknown_fields": did.unknown,
        "misfits": did.misfits,
        "gap_offsets": did.gaps,
        "versions": [c.version for c in did.commits],
        "bytes": did.bytes,
        "position_commits": report.position_commits if report else None,
        "positions": report.positions if report else None,
        "backlog_before_offsets": report.backlog_before if report else None,
        "backlog_after_offsets": report.backlog_after if report else None,
        "lag_seconds": report.lag_seconds if report else None,
        "seconds": report.seconds if report else None,
        "cpu_seconds": report.cpu_seconds if report else None,
    }


def _versions(commits: Sequence[Commit]) -> str:
    first, last = commits[0].version, commits[-1].version
    return f"v{last}" if first == last else f"v{first} to v{last}"
