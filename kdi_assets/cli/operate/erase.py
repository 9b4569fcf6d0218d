"""`kdi erase`: remove messages, such as a person's, from all tables of a stream, and of what is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.options import AsJson, Defs, StreamName, Yes, selected_stream
from kdi_assets.cli.output import UNCHANGED, error_fields, exit_if_refused, print_refusal, print_result
from kdi_assets.cli.session import stream_session
from kdi_assets.runtime.environment import whoami
from kdi_assets.settings import Settings
from kdi_assets.wording import counted

if TYPE_CHECKING:
    from pathlib import Path

    from kdi_assets.documents.model.stream import Stream
    from kdi_assets.operate.erase.downstream import Downstream, FollowedErasure
    from kdi_assets.operate.erase.erase import EraseReport
    from kdi_assets.operate.upkeep.vacuum import Vacuumed


Where = Annotated[str, typer.Option(help="Spark SQL condition over the table's columns.")]
DeadLettersWhere = Annotated[
    str, typer.Option(help="The same over the dead letters: key, value, headers, partition, offset, reason, …")
]
TaggedOption = Annotated[str, typer.Option(help="Rows in which any column with this tag has the value of --value.")]
ValueOption = Annotated[str, typer.Option(help="The value for --tagged, as text.")]
AgainOption = Annotated[bool, typer.Option("--again", help="What was erased before and is there again.")]
BecauseOption = Annotated[str, typer.Option(help="Why; the ledger keeps it. Needed with --yes.")]
VacuumNow = Annotated[bool, typer.Option("--vacuum", help="Remove the files at once, before the retention.")]


def erase(
    stream: StreamName,
    where: Where = "",
    dead_letters_where: DeadLettersWhere = "",
    tagged: TaggedOption = "",
    value: ValueOption = "",
    again: AgainOption = False,
    because: BecauseOption = "",
    yes: Yes = False,
    vacuum: VacuumNow = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Erase messages: their rows, their dead letters, their rows in <table>_removed.

    A message is erased with all its rows. The ledger records who did it, why,
    the condition without its values, counts and a digest, so that `kdi audit`
    accounts for the offsets. Replays leave erased messages out.
    Then the refined and served tables that are made of the stream's tables are
    brought up to date, and searched for rows that still meet --where.
    Files that hold them stay until VACUUM removes them; with --vacuum that is
    at once. Kafka keeps its messages as long as its retention says.

    Exit codes: 0 shown, or done with --yes; 1 someone must decide; 75 a retry helps.
    """
    _refuse_unclear(where, dead_letters_where, tagged, value, again=again, unexplained=yes and not because.strip())
    from kdi_assets.operate.erase.downstream import follow_erasure, vacuum_all
    from kdi_assets.operate.erase.erase import erase as erase_messages
    from kdi_assets.operate.erase.selection import EraseFilter
    from kdi_assets.operate.erase.tagged import TaggedValue, tagged_elsewhere, where_tagged

    chosen, lake = selected_stream(stream, defs), Settings.from_environment().lake
    downstream = _downstream(chosen, defs, lake)
    with stream_session(chosen, "erase", as_json=as_json) as session:
        by_tag = TaggedValue(tagged.lower(), value) if tagged else None
        where = where_tagged(chosen, lake, session(), by_tag) if by_tag else where
        which, by = EraseFilter(where, dead_letters_where, again), whoami()
        report = erase_messages(
            chosen, lake=lake, session=session, chosen=which, decided_by=by, because=because, dry_run=not yes
        )
        # Also if nothing was left to erase: the process may have ended here the last time.
        others = tagged_elsewhere(chosen, lake, session(), where) if where and not tagged else {}
        follow = partial(follow_erasure, lake=lake, session=session, where=where, tagged=by_tag)
        followed = list(follow(downstream)) if yes else []
        vacuumed = vacuum_all(session, chosen, downstream, lake) if yes and vacuum else None
    _print(report, downstream.names, others, followed, vacuumed, as_json=as_json)
    exit_if_refused([table.error for table in followed if table.error])


def _downstream(stream: Stream, defs: Path | None, lake: str) -> Downstream:
    """The refined and served tables that are made of the stream's tables."""
    from kdi_assets.documents.loading.loader import load_folder
    from kdi_assets.operate.erase.downstream import downstream_of

    documents = load_folder(defs)
    return downstream_of(stream, documents.refined.values(), documents.served.values(), lake=lake)


def _refuse_unclear(
    where: str, dead_letters_where: str, tagged: str, value: str, *, again: bool, unexplained: bool
) -> None:
    """Refuse a command that does not say which messages it erases, or why."""
    if not (where.strip() or dead_letters_where.strip() or tagged or again):
        example = '--where "customer_id = 42", --tagged pii --value 42, --dead-letters-where or --again'
        raise typer.BadParameter(f"say what to erase: {example}; without --yes it is only shown", param_hint="--where")
    if bool(tagged) != bool(value):
        raise typer.BadParameter("give both: --tagged pii --value 4711", param_hint="--tagged")
    if tagged and where:
        raise typer.BadParameter("it makes the condition; give it without --where", param_hint="--tagged")
    if again and (where or dead_letters_where or tagged):
        raise typer.BadParameter("--again repeats what was erased before; give it alone", param_hint="--again")
    if unexplained:
        raise typer.BadParameter("say why: --because 'request of 3 March'", param_hint="--because")


def _print(
    report: EraseReport,
    downstream: Sequence[str],
    others: Mapping[str, Sequence[str]],
    followed: Sequence[FollowedErasure],
    vacuumed: Vacuumed | None,
    *,
    as_json: bool,
) -> None:
    """What was erased, what became of the tables that are made of it, and why some of them could not follow."""
    also = [f"also tagged {tag}, and not in the condition: {', '.join(columns)}" for tag, columns in others.items()]
    if report.left_letters:
        left = f"{counted(report.left_letters, 'record')} of dead letters of messages that were erased before are left"
        also.append(f"{report.stream}: {left}: kdi erase {report.stream} --again --because WHY --yes")
    if report.uncertain_rows:
        offsets = ", ".join(map(str, report.uncertain_at))
        kept = f"{counted(report.uncertain_rows, 'row')} at offsets that were erased stay ({offsets})"
        why = "an earlier topic had the same offsets, and they may be its rows"
        also.append(f"{report.stream}: {kept}: {why}: kdi erase {report.stream} --where CONDITION erases them")
    text = [_text(report, downstream), *also, *map(_followed_text, followed), *map(str, filter(None, [vacuumed]))]
    fields = {**_fields(report, followed, vacuumed), "tagged_elsewhere": dict(others)}
    print_result("\n".join(text), fields, as_json=as_json)
    for table in followed:
        if table.error:
            print_refusal(table.error)


def _text(report: EraseReport, downstream: Sequence[str]) -> str:
    counts = [f"{counted(report.rows, 'row')} of {counted(report.messages, 'message')}"]
    counts += [counted(report.dead_letters, "dead letter")] if report.dead_letters else []
    counts += [f"{counted(report.removed_rows, 'row')} of the table `…_removed`"] if report.removed_rows else []
    lines = [f"{day or 'no date'}: {counted(rows, 'row')}" for day, rows in report.rows_by_date.items()]
    if report.committed:
        lines.append(f"{report.stream}: erased {', '.join(counts)} at v{report.version}")
        return "\n".join(lines)
    if not (report.rows or report.letter_records or report.removed_rows):
        return f"{report.stream}: nothing meets the condition"
    lines.append(f"{report.stream} v{report.version}: would erase {', '.join(counts)}")
    lines += [f"then brought up to date: {', '.join(downstream)}"] if downstream else []
    return "\n".join([*lines, UNCHANGED])


def _followed_text(table: FollowedErasure) -> str:
    if table.version is None:
        return f"{table.table}: not up to date"
    left = "" if table.rows_left is None else f"; {counted(table.rows_left, 'row')} of it meet the condition"
    return f"{table.table}: {counted(table.rows_removed, 'row')} removed, v{table.version}{left}"


def _fields(report: EraseReport, followed: Sequence[FollowedErasure], removed: Vacuumed | None) -> dict[str, object]:
    return {
        "stream": report.stream,
        "table_version": report.version,
        "done": report.committed is not None,
        "rows_by_date": report.rows_by_date,
        "rows": report.rows,
        "messages": report.messages,
        "dead_letters": report.dead_letters,
        "dead_letter_records": report.letter_records,
        "removed_rows": report.removed_rows,
        "left_letter_records": report.left_letters,
        "uncertain_rows": report.uncertain_rows,
        "uncertain_at": report.uncertain_at,
        "downstream": [
            {
                "table": table.table,
                "table_version": table.version,
                "rows_removed": table.rows_removed,
                "rows_left": table.rows_left,
                "error": error_fields(table.error) if table.error else None,
            }
            for table in followed
        ],
        "vacuumed_files": removed.files if removed else None,
    }
