"""`kdi drain`: bring what waits into the tables, one stream after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.options import AsJson, Defs, streams_meant
from kdi_assets.cli.output import answer, counted, exit_code, progress, refuse
from kdi_assets.cli.session import OneSession, one_session
from kdi_assets.errors import KdiError
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kdi_assets.drain.report import Commit, Commits, DrainReport
    from kdi_assets.stream.stream import Stream


def drain(
    streams: Annotated[
        list[str] | None, typer.Argument(metavar="STREAM", help="Tables' paths, their last parts, or topics.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every stream that a document describes.")] = False,
    accept_dead_letters: Annotated[
        bool, typer.Option("--accept-dead-letters", help="This once, however many: `dead_letter_limit` does not count.")
    ] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Drain everything that waits now into the streams' tables, exactly once; one stream after the other.

    Streams that share a topic by their routes are drained in one pass over it. A
    stream that is refused does not stop the others.

    Exit codes: 0 all were drained; 1 a refusal among them that someone must
    decide; 75 refusals, and a retry may heal them all.
    """
    if bool(streams) == all_:
        raise typer.BadParameter("name streams, or give --all" if not all_ else "give --all, or names, not both")
    if all_ and accept_dead_letters:
        raise typer.BadParameter(
            "name the streams whose dead letters you have seen", param_hint="--accept-dead-letters"
        )
    from kdi_assets.drain.shared_read import in_passes

    refusals: list[KdiError] = []
    chosen = streams_meant(streams or (), defs)
    with one_session("drain") as session:
        for together in in_passes(chosen):
            refusals += _drain(together, session, accept_dead_letters=accept_dead_letters, as_json=as_json)
    if refusals:
        raise typer.Exit(exit_code(refusals))


def _drain(
    together: Sequence[Stream], session: OneSession, *, accept_dead_letters: bool, as_json: bool
) -> Iterator[KdiError]:
    """Drain streams in one pass, with a line of progress for every step; say what became of each."""
    from kdi_assets.drain.shared_read import drain_together

    def on_commit(stream: Stream, commit: Commit) -> None:
        progress(f"{stream.name}: committed v{commit.version}: {counted(commit.rows, 'row')}")

    with session.watched():
        drained = drain_together(
            together,
            lake=Settings.from_environment().lake,
            session=session,
            accept_dead_letters=accept_dead_letters,
            report=progress,
            on_commit=on_commit,
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
            refuse(refused)
            yield refused
        said, fields = _text(stream, done.did, report), _fields(stream, done.did, report)
        answer(said, fields, as_json=as_json, error=refusal)


def _text(stream: Stream, did: Commits, report: DrainReport | None) -> str:
    name = stream.name
    if not did.commits:
        if report is None:
            return f"{name}: not drained"
        committed = "positions committed; " if report.position_commits else ""
        return f"{name}: {committed}nothing was waiting ({report.seconds:.1f} s)"
    facts = [counted(did.rows_added, "row"), counted(did.dead_letters, "dead letter")]
    facts += [*([f"{did.filtered:,} filtered"] if did.filtered else ()), _versions(did.commits)]
    if report is None:
        return f"{name}: {', '.join(facts)}, then refused"
    facts += [f"{unmet:,} not meeting {expected}" for expected, unmet in did.unmet.items() if unmet]
    unknown, misfits = did.unknown, did.misfits
    facts += [f"{unknown.messages:,} with unknown fields: {unknown.listed()}"] if unknown else []
    facts += [f"{misfits.messages:,} without values of other types: {misfits.listed()}"] if misfits else []
    facts.append(f"{report.seconds:.1f} s")
    later = f"; {counted(report.backlog_after, 'offset')} came meanwhile" if report.backlog_after else ""
    dates = did.rows_by_date
    width = max((len(f"{rows:,}") for rows in dates.values()), default=0)
    return "\n".join([f"{name}: {', '.join(facts)}{later}", *(f"  {d}  {rows:>{width},}" for d, rows in dates.items())])


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
        "settled": report.position_commits if report else None,
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
