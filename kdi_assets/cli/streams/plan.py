"""`kdi plan`: what a drain would do first, without doing it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from kdi_assets.cli.followers.refined_output import print_refined_plan
from kdi_assets.cli.followers.served_output import print_served_plan
from kdi_assets.cli.options import AsJson, Defs, NamesOfAllKinds, TableOfAnyKind, selected_of_all_kinds
from kdi_assets.cli.output import (
    NO_DOCUMENTS,
    exit_if_refused,
    print_progress,
    print_refusal,
    print_result,
    refusal_in_json,
    table_text,
    utc_text,
)
from kdi_assets.cli.place import print_place
from kdi_assets.cli.session import LazySession, lazy_session
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.served_table import ServedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.settings import Settings
from kdi_assets.wording import byte_size, counted

if TYPE_CHECKING:
    from kdi_assets.messages.topic_state import Waiting
    from kdi_assets.streams.drain.plan import Plan, PositionCommit
    from kdi_assets.streams.drain.snapshot import Snapshot


def plan(tables: NamesOfAllKinds = None, defs: Defs = None, as_json: AsJson = False) -> None:
    """Show what `kdi drain`, `kdi refine` or `kdi serve` would do first, or why it refuses. Changes nothing.

    Spark is needed only if there is a backlog and a table: its columns are
    compared with the document. A retired stream is planned only if it is named.
    Without names, a table that is made of one that is still to be made is not
    begun, and not refused.

    Exit codes: 0 there is a plan, or nothing to do, for every table; 1 one would be
    refused, and someone must decide; 75 one would be refused, and a retry helps.
    """
    chosen = selected_of_all_kinds(tables or (), defs)
    if not tables:
        chosen = [table for table in chosen if not (isinstance(table, Stream) and table.status == "retired")]
    if not chosen:
        print_progress(NO_DOCUMENTS)
    elif not as_json:
        print_place(defs, chosen)
    refusals: list[KdiError] = []
    to_be_made = frozenset() if tables else _made_by(chosen)
    with lazy_session("plan", as_json=as_json) as session:
        for table in chosen:
            try:
                _print_plan(table, session, to_be_made=to_be_made, as_json=as_json)
            except KdiError as refused:
                print_refusal(refused)
                refusals.append(refused)
    exit_if_refused(refusals)


def _made_by(chosen: Collection[TableOfAnyKind]) -> frozenset[str]:
    """The paths of the tables that drains and refinements make."""
    paths = [table.table for table in chosen if isinstance(table, Stream | RefinedTableSpec)]
    return frozenset(paths + [f"{table.table}_dead_letters" for table in chosen if isinstance(table, Stream)])


def _print_plan(table: TableOfAnyKind, session: LazySession, *, to_be_made: Collection[str], as_json: bool) -> None:
    if isinstance(table, RefinedTableSpec):
        print_refined_plan(table, to_be_made=to_be_made, as_json=as_json)
    elif isinstance(table, ServedTableSpec):
        print_served_plan(table, to_be_made=to_be_made, as_json=as_json)
    else:
        _print_stream_plan(table, session, as_json=as_json)


def _print_stream_plan(stream: Stream, session: LazySession, *, as_json: bool) -> None:
    from kdi_assets.streams.drain.plan import refuse_lost_offsets
    from kdi_assets.streams.drain.snapshot import take_snapshot
    from kdi_assets.streams.drain.takeover import refuse_unsuitable

    lake = Settings.from_environment().lake
    with refusal_in_json(stream=stream.name, as_json=as_json):
        snapshot = take_snapshot(stream, lake)
        if (pending := snapshot.position_commit) and pending.kind == "restore" and snapshot.ledger:
            refuse_lost_offsets(stream, snapshot.ledger, pending.positions, snapshot.topic)
        plan = None if snapshot.position_commit else _plan(stream, snapshot)
        waiting = _waiting(stream, snapshot) if plan else None
        if snapshot.ledger and (plan is None or plan.ranges or (waiting and waiting.first_at)):
            with session.watched():
                refuse_unsuitable(stream, lake, snapshot.ledger.table, session())
        if snapshot.topic.as_of and snapshot.position_commit and snapshot.position_commit.kind == "start":
            waiting = _waiting_before_start(stream, lake)
    print_result(_text(stream, snapshot, plan, waiting), _fields(stream, snapshot, plan, waiting), as_json=as_json)


def _plan(stream: Stream, snapshot: Snapshot) -> Plan:
    from kdi_assets.streams.drain.snapshot import check_last_read, expected_offset_bytes

    plan = snapshot.plan(stream, offset_bytes=expected_offset_bytes(stream, snapshot))
    if plan is None:
        raise AssertionError(f"{stream.name}: neither a position commit nor a plan")
    check_last_read(stream, snapshot)
    return plan


def _waiting(stream: Stream, snapshot: Snapshot) -> Waiting | None:
    """What waits, where a drain must read before it can plan; ``None`` where the plan has all."""
    from kdi_assets.messages.of_stream import source_of

    if snapshot.topic.as_of is None or snapshot.ledger is None:
        return None
    return source_of(stream).waiting(snapshot.topic, snapshot.ledger)


def _waiting_before_start(stream: Stream, lake: str) -> Waiting:
    """What waits of a stream that has no positions yet."""
    from kdi_assets.messages.topic_state import Waiting
    from kdi_assets.operate.monitoring.backlog_reader import read_backlog

    held = read_backlog(stream, lake).topic_partitions
    return Waiting({tp: one.next_at for tp, one in held.items() if one.next_at})


def _text(stream: Stream, snapshot: Snapshot, plan: Plan | None, waiting: Waiting | None) -> str:
    lines = _plan_lines(stream, snapshot, plan) if plan else []
    if waiting and (waiting.first_at or waiting.renews is not None):
        lines = _waiting_lines(stream, waiting)
    if commit := snapshot.position_commit:
        lines = [*_position_commit_lines(stream, snapshot, commit), *(_first_records(waiting) if waiting else ())]
    if held := _open_transaction_offsets(snapshot):
        lines.append(f"An open transaction holds back {counted(held, 'offset')} after the last stable offset.")
    return "\n".join(lines)


def _position_commit_lines(stream: Stream, snapshot: Snapshot, first: PositionCommit) -> list[str]:
    ends, backlog = snapshot.topic.partitions, snapshot.backlog()
    then = f"Then it would drain a backlog of {counted(backlog, 'offset')}." if backlog else "Then there is no backlog."
    rows = [(tp, at, ends[tp].end if tp in ends else None) for tp, at in sorted(first.positions.items())]
    return [
        f"{stream.name}: would commit positions first: {first.reason}",
        table_text(("TOPIC PARTITION", "POSITION", "END"), rows, align="<>>"),
        "Then it would drain what it finds." if snapshot.topic.as_of else then,
        *([_earlier_topic(stream, first)] if first.kind == "takeover" else ()),
    ]


def _earlier_topic(stream: Stream, takeover: PositionCommit) -> str:
    """What nobody can tell from the other writer's offsets: it recorded no topic id."""
    tp, at = max(takeover.positions.items(), key=lambda item: item[1])
    return (
        "The other writer did not record which topic its offsets are of. If the topic was made again since, and has\n"
        "grown past these positions, its messages below them would be skipped: compare the last row of each topic\n"
        f"partition with the message at its offset (kdi peek {stream.name} --topic-partition {tp} --offset {at - 1})."
    )


def _waiting_lines(stream: Stream, waiting: Waiting) -> list[str]:
    if not waiting.first_at:
        seen = "how far it has seen the shards, before they expire or retention passes"
        return [f"{stream.name}: nothing to drain; it would commit {seen}"]
    head = f"{stream.name}: would drain what follows the positions; only reading tells how many records that are"
    return [head, *_first_records(waiting)]


def _first_records(waiting: Waiting) -> list[str]:
    rows = [(tp, utc_text(at, date=True)) for tp, at in sorted(waiting.first_at.items())]
    return [table_text(("TOPIC PARTITION", "FIRST RECORD ARRIVED"), rows, align="<>")] if rows else []


def _plan_lines(stream: Stream, snapshot: Snapshot, plan: Plan) -> list[str]:
    if not plan.ranges:
        return [f"{stream.name}: nothing to drain; v{plan.version} has every offset"]
    backlog = snapshot.backlog()
    limits = "`max_records`" if stream.max_bytes is None else "`max_records` and `max_bytes`"
    of_all = "" if plan.offset_count == backlog else f" of {backlog:,}, limited by {limits}"
    size = "" if plan.expected_bytes is None else f", some {byte_size(plan.expected_bytes)}"
    head = f"{stream.name}: would drain {counted(plan.offset_count, 'offset')}{of_all}{size}, "
    head += f"directly after v{plan.version}"
    rows = [(r.topic_partition, r.start, r.end, r.offset_count) for r in plan.ranges]
    return [head, table_text(("TOPIC PARTITION", "FROM", "UP TO", "OFFSETS"), rows, align="<>>>")]


def _fields(stream: Stream, snapshot: Snapshot, plan: Plan | None, waiting: Waiting | None) -> dict[str, object]:
    commit, ranges = snapshot.position_commit, plan.ranges if plan else ()
    first_at = waiting.first_at if waiting else {}
    return {
        "stream": stream.name,
        "step": "position_commit" if commit else "drain" if ranges or first_at else "nothing",
        "position_commit": commit.kind if commit else None,
        "reason": commit.reason if commit else None,
        "positions": snapshot.positions(),
        "ranges": ranges,
        "offsets": sum(r.offset_count for r in ranges),
        "expected_bytes": plan.expected_bytes if plan else None,
        "backlog_offsets": None if first_at else snapshot.backlog(),
        "waiting_since": min(first_at.values(), default=None),
        "open_transaction_offsets": _open_transaction_offsets(snapshot),
        "table_version": snapshot.ledger.version if snapshot.ledger else None,
    }


def _open_transaction_offsets(snapshot: Snapshot) -> int:
    return sum(offsets.high_watermark - offsets.end for offsets in snapshot.topic.partitions.values())
