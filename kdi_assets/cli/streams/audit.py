"""`kdi audit`: is every offset a row, a dead letter, filtered, a gap or a declared loss, and none twice?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.followers.refined_output import audit_refined_table
from kdi_assets.cli.options import AsJson, Defs, parse_timestamp, parse_topic_partition, selected_tables
from kdi_assets.cli.output import EXIT_DECIDE, exit_code, print_progress, print_refusal, print_result
from kdi_assets.cli.session import LazySession, stream_session
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.settings import Settings
from kdi_assets.wording import counted

if TYPE_CHECKING:
    from kdi_assets.messages.coordinates import Bounds
    from kdi_assets.streams.audit.report import AuditReport
    from kdi_assets.streams.audit.source_comparison import Comparison

FROM, TO, PARTITION = "--from", "--to", "--partition"
OTHER_WAYS = 'docs/operations.md, "An audit that is not complete"'
OnlyPartition = Annotated[
    str | None,
    typer.Option(PARTITION, "--topic-partition", metavar="TOPIC/NUMBER", help="Only this one; default: all."),
]
Start = Annotated[
    str | None, typer.Option(FROM, metavar="OFFSET|TIMESTAMP", help="The first offset; a date is its midnight in UTC.")
]
End = Annotated[str | None, typer.Option(TO, metavar="OFFSET|TIMESTAMP", help="The end, exclusive.")]
AgainstSource = Annotated[
    bool,
    typer.Option(
        "--against-source", "--against-kafka", help="Read again what the source still holds, and compare every message."
    ),
]

AllRows = Annotated[bool, typer.Option("--all", help="Of a refined table, compare all rows.")]


def audit(
    tables: Annotated[list[str], typer.Argument(metavar="TABLE", help="Tables' paths, last parts, or topics.")],
    topic_partition: OnlyPartition = None,
    start: Start = None,
    end: End = None,
    against_source: AgainstSource = False,
    everything: AllRows = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Account for every offset from the first position to the current one.

    Of a refined table, some dates are compared with a recomputation: those of
    --from and --to, all with --all, or three by chance.

    Needs Spark within bounds, with --against-source, and where counts and a
    digest do not prove that every offset is there.

    An offset needs --partition if the topic has several. The broker translates
    a timestamp into the first offset with this timestamp or a later one.

    Exit codes: 0 complete; 1 offsets are missing, twice or changed, or the
    stream was never drained; 75 a retry helps.
    """
    chosen = selected_tables(tables, defs)
    if len(chosen) > 1 and (topic_partition or start or end):
        raise typer.BadParameter("only for one table", param_hint=f"{PARTITION}, {FROM}, {TO}")
    _refuse_of_other_kinds(chosen, offsets=bool(topic_partition or against_source), everything=everything)
    right, refusals = True, list[KdiError]()
    for table in chosen:
        try:
            if isinstance(table, RefinedTableSpec):
                right &= audit_refined_table(table, everything=everything, start=start, end=end, as_json=as_json)
            else:
                right &= _audit(table, topic_partition, start, end, against_source=against_source, as_json=as_json)
        except KdiError as refusal:  # it does not stop the audits of the others
            print_refusal(refusal)
            refusals.append(refusal)
    if code := exit_code(refusals) if right else EXIT_DECIDE:
        raise typer.Exit(code)


def _refuse_of_other_kinds(tables: Sequence[Stream | RefinedTableSpec], *, offsets: bool, everything: bool) -> None:
    """Refuse options about offsets for a refined table, and ``--all`` without one."""
    refined = any(isinstance(table, RefinedTableSpec) for table in tables)
    if refined and offsets:
        raise typer.BadParameter("a refined table has no offsets", param_hint=f"{PARTITION}, --against-source")
    if everything and not refined:
        raise typer.BadParameter("only for refined tables: all offsets of a stream are audited", param_hint="--all")


def _audit(
    stream: Stream,
    topic_partition: str | None,
    start: str | None,
    end: str | None,
    *,
    against_source: bool,
    as_json: bool,
) -> bool:
    """Print the audit of a stream; whether nothing is missing, twice or changed."""
    from kdi_assets.streams.audit import audit as audits

    lake, only = Settings.from_environment().lake, parse_topic_partition(topic_partition, stream)
    with stream_session(stream, "audit", as_json=as_json) as session:
        bounds = _typed_bounds(stream, lake, only, start, end)
        report = audits.audit(stream, lake=lake, session=session, bounds=bounds)
        comparison = _compare(stream, lake, session, bounds) if against_source else None
    lines = [report.line(), *_details(report), *(_comparison_lines(comparison) if comparison else ())]
    against = {f"against_{comparison.system}": comparison.fields()} if comparison else {}
    print_result("\n".join(lines), {**report.fields(), **against}, as_json=as_json)
    return report.complete and (comparison is None or comparison.agrees)


def _compare(stream: Stream, lake: str, session: LazySession, bounds: Bounds | None) -> Comparison:
    from kdi_assets.streams.audit.source_comparison import compare

    return compare(stream, lake=lake, session=session, bounds=bounds)


def _typed_bounds(
    stream: Stream, lake: str, only: TopicPartition | None, start: str | None, end: str | None
) -> Bounds | None:
    """The bounds that the options give; ``None`` without options."""
    from kdi_assets.streams.audit.audit import audited_history
    from kdi_assets.streams.audit.coverage import coverage

    if (only, start, end) == (None, None, None):
        return None
    return audit_bounds(stream, only, start, end, coverage(audited_history(stream, lake).entries).bounds())


def _details(report: AuditReport) -> list[str]:
    """Each missing, doubled and deleted range, the notes, and what to run."""
    lines = [f"  missing: {hole}, {counted(hole.range.offset_count, 'offset')}" for hole in report.holes]
    lines += [f"  twice:   {double}, {counted(double.range.offset_count, 'offset')}" for double in report.doubles]
    lines += [f"  deleted: {deletion}" for deletion in report.deletions]
    lines += [f"  note:    {note}" for note in report.notes]
    if orphaned := report.orphaned_dead_letters:
        lines.append(f"  note:    {counted(orphaned, 'letter')} of attempts that never committed do not count")
    if commands := report.commands():
        lines.append("  Run:  " + "\n        ".join(commands))
        lines.append(f"        (other ways, and what they need: {OTHER_WAYS})")
    return lines


def _comparison_lines(comparison: Comparison) -> list[str]:
    lines = [f"  changed: {at}, {counted(at.range.offset_count, 'offset')}" for at in comparison.changed_at]
    lines += [f"  absent:  {at}, {counted(at.range.offset_count, 'offset')}" for at in comparison.absent_at]
    lines += [f"  fault:   {fault}" for fault in comparison.faults]
    return [comparison.line(), *lines, *(f"  note:    {note}" for note in comparison.notes)]


def audit_bounds(
    stream: Stream, only: TopicPartition | None, start: str | None, end: str | None, audited: Bounds
) -> Bounds:
    """The offsets to audit: what was typed, cut to what can be audited.

    Args:
        start, end: Offsets, or timestamps that the broker translates into offsets; as typed.
        audited: From the first position of every topic partition to its current one.

    Raises:
        typer.BadParameter: The topic partition was never drained, a bound cannot be read, or no offset is left.
        BrokerUnreachable, TopicMissing: A timestamp cannot be translated.
    """
    chosen = {tp: r for tp, r in audited.items() if only in (None, tp)}
    if not chosen:
        there = ", ".join(map(str, sorted(audited)))
        raise typer.BadParameter(f"{only} was never drained; there are {there}", param_hint=PARTITION)
    starts, ends = _offsets(stream, start, chosen, FROM), _offsets(stream, end, chosen, TO)
    cut = {
        tp: OffsetRange(tp, max(r.start, starts.get(tp, r.start)), min(r.end, ends.get(tp, r.end)))
        for tp, r in chosen.items()
    }
    left = {tp: r for tp, r in cut.items() if r.start < r.end}
    if not left:
        held = ", ".join(map(str, chosen.values()))
        raise typer.BadParameter(f"no offset of {held} is within these bounds", param_hint=FROM if start else TO)
    return left


def _offsets(
    stream: Stream, text: str | None, chosen: Mapping[TopicPartition, OffsetRange], option: str
) -> Mapping[TopicPartition, int]:
    """The offset of each topic partition that was typed, or that belongs to the typed timestamp."""
    from kdi_assets.messages.of_stream import refuse_unknown_offsets, source_of

    if text is None:
        return {}
    if text.isdecimal():
        if len(chosen) > 1:
            raise typer.BadParameter(f"an offset needs {PARTITION}: the topic has several", param_hint=option)
        return dict.fromkeys(chosen, int(text))
    timestamp = parse_timestamp(text, option)
    refuse_unknown_offsets(stream)
    source = source_of(stream)
    topic = source.topic(stream.topic)
    found = source.offsets_at(topic, timestamp)
    for tp, r in chosen.items():
        # The broker cannot translate a timestamp before its earliest message, and answers with that message.
        if tp in found and r.start < found[tp] == topic.partitions[tp].earliest:
            print_progress(f"{tp}: Kafka has nothing before offset {found[tp]} any more; {option} means that offset")
    return found
