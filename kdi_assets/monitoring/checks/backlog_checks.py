"""What waits: whether drains keep up with it, and how old it is; an idle topic is fresh, a stuck stream is not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime

from kdi_assets.errors import KdiError
from kdi_assets.monitoring.backlog import Backlog, State
from kdi_assets.monitoring.checks.finding import CheckResult, Level, Number
from kdi_assets.monitoring.checks.subject import CheckSubject
from kdi_assets.sources.kafka.messages import oldest_timestamps, visible_messages
from kdi_assets.stream.stream import DrainWhen, FreshnessLimits, OffsetRange, Stream, TopicPartition


def backlog_after_drain(subject: CheckSubject) -> CheckResult:
    """Whether what waits is within the limits of `drain_when`.

    Between drains a backlog over a limit is how drains begin. So the limits count only just after a drain; at other
    times the status word tells, which looks at the last ten.

    Raises:
        KdiError: Why the stream cannot be drained as it stands, or nobody can tell.
    """
    backlog, stream = subject.backlog, subject.stream
    if backlog.refusal is not None:
        raise backlog.refusal
    level, said = _judged(backlog, stream, drained=subject.drained)
    return CheckResult(level, said, _numbers(backlog), {"status": (backlog.word.value,)} if backlog.word else {})


def _judged(backlog: Backlog, stream: Stream, *, drained: bool) -> tuple[Level, str]:
    waits = f"{backlog.offsets:,} offsets wait"
    if (loss := backlog.loss_near(stream.drain_when.time_to_loss_seconds)) is not None:
        return "error", f"{waits}, and retention deletes the first of them in {loss:,.0f} s"
    if stream.status == "paused":
        return "passed", f"{waits}; the stream is paused"
    if backlog.word in (State.STOP, State.STALL):
        return "error", f"{waits}, and drains do not get on with them ({backlog.word})"
    if backlog.word is State.WARN:
        return "warn", f"{waits}, and the backlog did not get less with the last drains"
    if drained and (over := _over(backlog, stream.drain_when)):
        return "warn", f"{waits} just after a drain, {over}: drains do not keep up"
    return "passed", waits


def _over(backlog: Backlog, limits: DrainWhen) -> str:
    """Which limit what waits is over; empty if none."""
    if limits.backlog_messages is not None and backlog.offsets >= limits.backlog_messages:
        return f"over the limit of {limits.backlog_messages:,} messages"
    if limits.lag_seconds is not None and (backlog.lag_seconds or -1.0) >= limits.lag_seconds:
        return f"over the limit of {limits.lag_seconds:,.0f} s"
    if limits.backlog_bytes is not None and (backlog.bytes or 0) >= limits.backlog_bytes:
        return f"over the limit of {limits.backlog_bytes:,} bytes"
    return ""


def _numbers(backlog: Backlog, **others: float | None) -> dict[str, Number]:
    known = {
        "backlog": backlog.offsets,
        "lag_seconds": backlog.lag_seconds if backlog.offsets else 0.0,
        "backlog_bytes": backlog.bytes,
        "time_to_loss_seconds": backlog.time_to_loss_seconds,
        "time_to_close_seconds": backlog.time_to_close_seconds,
        "open_transaction_offsets": backlog.open_transaction_offsets,
        **others,
    }
    return {name: round(n, 3) for name, n in known.items() if n is not None and math.isfinite(n)}


def fresh(subject: CheckSubject) -> CheckResult:
    """Whether every message that has waited longer than `freshness` allows is in the table.

    Messages that an open transaction holds back wait as well, although nobody can read them yet. The topic is asked
    since when only if a transaction is open, and for a message only if the age of what waits is unknown.

    Raises:
        KdiError: Why the stream cannot be drained as it stands, or nobody can tell.
    """
    limits, backlog = subject.stream.freshness, subject.backlog
    if limits is None:
        return CheckResult("passed", "no limits of freshness are given")
    if backlog.refusal is not None:
        raise backlog.refusal
    held = held_since(subject.stream, backlog) if backlog.open_transaction_offsets else None
    held_seconds = None if held is None else max(0.0, (subject.now - held).total_seconds())
    open_seconds = held_seconds if backlog.open_transaction_offsets else 0.0
    unknown = bool(backlog.offsets) and backlog.lag_seconds is None
    lag_level, lag_said = _of_lag(backlog, limits, nothing=unknown and not holds_message(subject.stream, backlog))
    held_level, held_said = _of_transaction(backlog, held_seconds, limits)
    level = max(lag_level, held_level, key=("passed", "warn", "error").index)
    said = "; ".join(s for s in (lag_said, held_said) if s)
    if subject.stream.status == "paused" and level == "error":
        level, said = "warn", f"{said}; the stream is paused"
    return CheckResult(level, said, _numbers(backlog, open_transaction_seconds=open_seconds))


def held_since(stream: Stream, backlog: Backlog) -> datetime | None:
    """The time of the oldest message that an open transaction holds back; ``None`` if it is unknown."""
    ends: Mapping[TopicPartition, int] = {
        tp: seen.end for tp, seen in backlog.topic_partitions.items() if seen.open_transaction_offsets
    }
    with suppress(KdiError):
        return min(oldest_timestamps(stream.cluster, ends, seconds=3.0, committed=False).values(), default=None)
    return None


def holds_message(stream: Stream, backlog: Backlog) -> bool:
    """Whether there is a message in what waits, or may be; else these are markers, or an aborted transaction's."""
    unknown = {
        tp: [OffsetRange(tp, seen.position, seen.end)]
        for tp, seen in backlog.topic_partitions.items()
        if seen.offsets and seen.position is not None and seen.lag_seconds is None
    }
    try:
        return any(True for _ in visible_messages(stream.cluster, unknown))
    except KdiError:
        return True


def _of_lag(backlog: Backlog, limits: FreshnessLimits, *, nothing: bool) -> tuple[Level, str]:
    if not backlog.offsets:
        return "passed", "nothing waits"
    if nothing:
        return "passed", f"{backlog.offsets:,} offsets wait, and there is no message in them"
    if backlog.lag_seconds is None:
        return "warn", f"{backlog.offsets:,} offsets wait, nobody knows since when"
    said = f"the oldest of {backlog.offsets:,} offsets that wait is {backlog.lag_seconds:,.0f} s old"
    return _level(backlog.lag_seconds, limits), said


def _of_transaction(backlog: Backlog, seconds: float | None, limits: FreshnessLimits) -> tuple[Level, str]:
    held = f"{backlog.open_transaction_offsets:,} offsets are held back by an open transaction"
    if not backlog.open_transaction_offsets:
        return "passed", ""
    if seconds is None:
        return "warn", f"{held}, nobody knows since when"
    return _level(seconds, limits), f"{held}, the oldest is {seconds:,.0f} s old"


def _level(seconds: float, limits: FreshnessLimits) -> Level:
    if seconds >= limits.fail_seconds:
        return "error"
    return "warn" if seconds >= limits.warn_seconds else "passed"
