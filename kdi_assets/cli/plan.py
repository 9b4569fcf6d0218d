"""`kdi plan`: what a drain would do first, without doing it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.cli.options import AsJson, Defs, StreamName, stream_meant
from kdi_assets.cli.output import answer, columns, counted, refusal_in_json
from kdi_assets.settings import Settings
from kdi_assets.wording import byte_size

if TYPE_CHECKING:
    from kdi_assets.drain.plan import Plan, PositionCommit
    from kdi_assets.drain.snapshot import Snapshot
    from kdi_assets.stream.stream import Stream


def plan(stream: StreamName, defs: Defs = None, as_json: AsJson = False) -> None:
    """Say what `kdi drain` would do first: commit positions, read ranges, or refuse. Nothing is changed.

    Needs no Spark.

    Exit codes: 0 there is a plan, or nothing is left to drain; 1 the drain would
    be refused, and someone must decide; 75 it would, and a retry helps.
    """
    from kdi_assets.drain.snapshot import take_snapshot

    chosen = stream_meant(stream, defs)
    lake = Settings.from_environment().lake
    with refusal_in_json(chosen.name, as_json=as_json):
        seen = take_snapshot(chosen, lake)
        plan = None if seen.position_commit else _plan(chosen, lake, seen)
    answer(_text(chosen, seen, plan), _fields(chosen, seen, plan), as_json=as_json)


def _plan(stream: Stream, lake: str, seen: Snapshot) -> Plan:
    from kdi_assets.drain.snapshot import expected_offset_bytes, next_timestamps

    plan = seen.plan(stream, offset_bytes=expected_offset_bytes(stream, seen))
    if plan is None:
        raise AssertionError(f"{stream.name}: neither a position commit nor a plan")
    next_timestamps(stream, seen)
    return plan


def _text(stream: Stream, seen: Snapshot, plan: Plan | None) -> str:
    lines = _plan_lines(stream, seen, plan) if plan else []
    if commit := seen.position_commit:
        lines = _position_commit_lines(stream, seen, commit)
    if held := _open_transaction_offsets(seen):
        lines.append(f"{counted(held, 'offset')} behind the last stable offset: a transaction is open.")
    return "\n".join(lines)


def _position_commit_lines(stream: Stream, seen: Snapshot, commit: PositionCommit) -> list[str]:
    ends, waiting = seen.topic.partitions, seen.backlog()
    rows = [(tp, at, ends[tp].end if tp in ends else None) for tp, at in sorted(commit.positions.items())]
    return [
        f"{stream.name}: would commit positions first: {commit.reason}",
        columns(("TOPIC PARTITION", "POSITION", "END"), rows, align="<>>"),
        f"Then it would drain: {counted(waiting, 'offset')} waiting." if waiting else "Nothing is waiting then.",
    ]


def _plan_lines(stream: Stream, seen: Snapshot, plan: Plan) -> list[str]:
    if not plan.ranges:
        return [f"{stream.name}: nothing to drain; v{plan.version} has it all"]
    waiting = seen.backlog()
    bound = "`max_records`" if stream.max_bytes is None else "`max_records` and `max_bytes`"
    of_all = "" if plan.offset_count == waiting else f" of {waiting:,}, {bound} at a time"
    weight = "" if plan.expected_bytes is None else f", some {byte_size(plan.expected_bytes)}"
    head = f"{stream.name}: would drain {counted(plan.offset_count, 'offset')}{of_all}{weight}, "
    head += f"directly behind v{plan.version}"
    rows = [(r.topic_partition, r.start, r.end, r.offset_count) for r in plan.ranges]
    return [head, columns(("TOPIC PARTITION", "FROM", "UP TO", "OFFSETS"), rows, align="<>>>")]


def _fields(stream: Stream, seen: Snapshot, plan: Plan | None) -> dict[str, object]:
    commit, ranges = seen.position_commit, plan.ranges if plan else ()
    return {
        "stream": stream.name,
        "step": "settle" if commit else "drain" if ranges else "nothing",
        "settlement": commit.kind if commit else None,
        "reason": commit.reason if commit else None,
        "positions": seen.positions(),
        "ranges": ranges,
        "offsets": sum(r.offset_count for r in ranges),
        "expected_bytes": plan.expected_bytes if plan else None,
        "backlog_offsets": seen.backlog(),
        "open_transaction_offsets": _open_transaction_offsets(seen),
        "table_version": seen.ledger.version if seen.ledger else None,
    }


def _open_transaction_offsets(seen: Snapshot) -> int:
    return sum(offsets.high_watermark - offsets.end for offsets in seen.topic.partitions.values())
