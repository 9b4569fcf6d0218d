"""`kdi audit`: is every offset a row, a dead letter, filtered, a gap or a declared loss, and none twice?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from kdi_assets.cli.options import AsJson, Defs, StreamName, moment_meant, stream_meant, topic_partition_meant
from kdi_assets.cli.output import EXIT_DECIDE, answer, counted, progress
from kdi_assets.cli.session import OneSession, session_over
from kdi_assets.settings import Settings
from kdi_assets.stream.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from kdi_assets.audit.kafka_comparison import Comparison
    from kdi_assets.audit.report import AuditReport
    from kdi_assets.ledger.coordinates import Bounds

Asked = tuple[TopicPartition | None, str | None, str | None]
FROM, TO, PARTITION = "--from", "--to", "--partition"


def audit(
    stream: StreamName,
    topic_partition: Annotated[
        str | None,
        typer.Option("--partition", "--topic-partition", metavar="TOPIC/NUMBER", help="Only this one; default: all."),
    ] = None,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="OFFSET|MOMENT", help="Begin here; a date is its midnight in UTC.")
    ] = None,
    to: Annotated[str | None, typer.Option("--to", metavar="OFFSET|MOMENT", help="End before this.")] = None,
    against_kafka: Annotated[
        bool, typer.Option("--against-kafka", help="Read what Kafka still holds again, and compare every message.")
    ] = False,
    defs: Defs = None,
    as_json: AsJson = False,
) -> None:
    """Account for every offset from the first position to the current one.

    Needs Spark where counts and a digest do not prove that all is there,
    within bounds, and with --against-kafka.

    An offset needs --partition where the topic has several. A moment is
    translated by the broker: the first message at or behind it.

    Exit codes: 0 complete; 1 offsets are missing, twice or changed, or nothing
    was drained yet; 75 a retry helps.
    """
    chosen = stream_meant(stream, defs)
    only = topic_partition_meant(topic_partition, chosen)
    with session_over(chosen, "audit", as_json=as_json) as session:
        report, comparison = _audited(chosen, (only, from_, to), session, against_kafka=against_kafka)
    lines = [report.line(), *_details(report), *(_compared(comparison) if comparison else ())]
    against = {"against_kafka": comparison.fields()} if comparison else {}
    answer("\n".join(lines), {**report.fields(), **against}, as_json=as_json)
    if not report.complete or (comparison is not None and not comparison.agrees):
        raise typer.Exit(EXIT_DECIDE)


def _audited(
    stream: Stream, asked: Asked, session: OneSession, *, against_kafka: bool
) -> tuple[AuditReport, Comparison | None]:
    from kdi_assets.audit.audit import audit as account
    from kdi_assets.audit.audit import audited_history
    from kdi_assets.audit.coverage import coverage

    lake, bounds = Settings.from_environment().lake, None
    if asked != (None, None, None):
        bounds = bounds_meant(stream, *asked, coverage(audited_history(stream, lake).entries).bounds())
    report = account(stream, lake=lake, session=session, bounds=bounds)
    if not against_kafka:
        return report, None
    from kdi_assets.audit.kafka_comparison import compare

    return report, compare(stream, lake=lake, session=session, bounds=bounds)


def _details(report: AuditReport) -> list[str]:
    """What the line has no room for."""
    lines = [f"  missing: {hole}, {counted(hole.range.offset_count, 'offset')}" for hole in report.holes]
    lines += [f"  twice:   {double}, {counted(double.range.offset_count, 'offset')}" for double in report.doubles]
    lines += [f"  deleted: {deletion}" for deletion in report.deletions]
    lines += [f"  note:    {note}" for note in report.notes]
    if report.ghosts:
        lines.append(f"  note:    {counted(report.ghosts, 'letter')} of tries that never committed; they do not count")
    return lines


def _compared(comparison: Comparison) -> list[str]:
    lines = [f"  changed: {at}, {counted(at.range.offset_count, 'offset')}" for at in comparison.changed_at]
    lines += [f"  absent:  {at}, {counted(at.range.offset_count, 'offset')}" for at in comparison.absent_at]
    return [comparison.line(), *lines, *(f"  note:    {note}" for note in comparison.notes)]


def bounds_meant(
    stream: Stream, only: TopicPartition | None, start: str | None, end: str | None, audited: Bounds
) -> Bounds:
    """The offsets that are meant, cut to those that can be audited.

    Args:
        start, end: Offsets, or moments that the broker translates into offsets, as they were typed.
        audited: From the first position of every topic partition to its current one.

    Raises:
        typer.BadParameter: The topic partition is not there, or the bounds are none, or leave nothing of it.
        BrokerUnreachable, TopicMissing: A moment cannot be translated.
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
        raise typer.BadParameter(f"nothing of {held} lies there", param_hint=FROM if start else TO)
    return left


def _offsets(
    stream: Stream, text: str | None, chosen: Mapping[TopicPartition, OffsetRange], option: str
) -> Mapping[TopicPartition, int]:
    """The first offset at or behind what was typed; before the broker's earliest there is no way to tell."""
    from kdi_assets.sources.kafka.topic import offsets_at, read_topic

    if text is None:
        return {}
    if text.isdecimal():
        if len(chosen) > 1:
            raise typer.BadParameter(f"an offset needs {PARTITION}: the topic has several", param_hint=option)
        return dict.fromkeys(chosen, int(text))
    moment = moment_meant(text, option)
    topic = read_topic(stream.cluster, stream.topic)
    found = offsets_at(stream.cluster, topic, moment)
    for tp, r in chosen.items():
        if tp in found and r.start < found[tp] == topic.partitions[tp].earliest:
            progress(f"{tp}: Kafka has nothing before offset {found[tp]} any more; {option} is taken for that offset")
    return found
