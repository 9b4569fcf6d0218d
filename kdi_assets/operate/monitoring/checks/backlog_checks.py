"""Checks of the backlog: its size, and its age. An idle topic is fresh, a stuck stream is not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime

from kdi_assets.documents.model.stream import DrainWhen, FreshnessLimits, OffsetRange, Stream, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.messages.of_stream import source_of
from kdi_assets.messages.source import oldest_timestamps
from kdi_assets.operate.monitoring.backlog import Backlog, State
from kdi_assets.operate.monitoring.checks.finding import CheckResult, Level, Number, level_of_delay
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.operate.monitoring.errors import BacklogNotKnownYet


def backlog_after_drain(subject: CheckSubject) -> CheckResult:
    """Whether the backlog is within the limits of `drain_when`.

    Between drains a backlog over a limit is normal: it starts the next drain. So the limits count only just after a
    drain; at other times the status word decides, which covers the last ten commits.

    Raises:
        KdiError: A drain of the stream would fail, or the backlog is unknown.
    """
    backlog, stream = _known_backlog(subject), subject.stream
    level, description = _judged(backlog, stream, drained=subject.drained)
    return CheckResult(level, description, _numbers(backlog), {"status": (backlog.word.value,)} if backlog.word else {})


def _known_backlog(subject: CheckSubject) -> Backlog:
    if subject.backlog.refusal is not None:
        raise subject.backlog.refusal
    if subject.backlog.topic_partitions and not subject.backlog.known:
        raise BacklogNotKnownYet(stream=subject.stream.name)
    return subject.backlog


def _judged(backlog: Backlog, stream: Stream, *, drained: bool) -> tuple[Level, str]:
    waits = f"{backlog.offsets:,} offsets wait"
    if (loss := backlog.loss_near(stream.drain_when.time_to_loss_seconds)) is not None:
        return "error", f"{waits}, and retention deletes the first of them in {loss:,.0f} s"
    if stream.status == "paused":
        return "passed", f"{waits}; the stream is paused"
    if backlog.word in (State.STOP, State.STALL):
        return "error", f"{waits}, and drains do not reduce them ({backlog.word})"
    if backlog.word is State.WARN:
        return "warn", f"{waits}, and the last drains did not reduce the backlog"
    if drained and (over := _over(backlog, stream.drain_when)):
        return "warn", f"{waits} just after a drain, {over}: drains do not keep up"
    return "passed", waits


def _over(backlog: Backlog, limits: DrainWhen) -> str:
    """The limit that the backlog exceeds, in words; empty if none."""
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
    """Whether no message waits longer than `freshness` allows.

    Messages of an open transaction wait as well, although nobody can read them yet. The topic is read only if a
    transaction is open, or if the age of the backlog is unknown.

    Raises:
        KdiError: A drain of the stream would fail, or the backlog is unknown.
    """
    if (limits := subject.stream.freshness) is None:
        return CheckResult("passed", "the stream has no freshness limits")
    backlog = _known_backlog(subject)
    held = held_since(subject.stream, backlog) if backlog.open_transaction_offsets else None
    held_seconds = None if held is None else max(0.0, (subject.now - held).total_seconds())
    open_seconds = held_seconds if backlog.open_transaction_offsets else 0.0
    unknown = bool(backlog.offsets) and backlog.lag_seconds is None
    lag_level, lag_words = _of_lag(backlog, limits, nothing=unknown and not holds_message(subject.stream, backlog))
    held_level, held_words = _of_transaction(backlog, held_seconds, limits)
    level = max(lag_level, held_level, key=("passed", "warn", "error").index)
    description = "; ".join(words for words in (lag_words, held_words) if words)
    if subject.stream.status == "paused" and level == "error":
        level, description = "warn", f"{description}; the stream is paused"
    return CheckResult(level, description, _numbers(backlog, open_transaction_seconds=open_seconds))


def held_since(stream: Stream, backlog: Backlog) -> datetime | None:
    """The time of the oldest message of an open transaction; ``None`` if unknown."""
    ends: Mapping[TopicPartition, int] = {
        tp: seen.end for tp, seen in backlog.topic_partitions.items() if seen.open_transaction_offsets
    }
    with suppress(KdiError):
        return min(oldest_timestamps(source_of(stream), ends, seconds=3.0, committed=False).values(), default=None)
    return None


def holds_message(stream: Stream, backlog: Backlog) -> bool:
    """Whether the backlog has, or may have, a message; it may also be only markers and aborted transactions."""
    unknown = {
        tp: [OffsetRange(tp, seen.position, seen.end)]
        for tp, seen in backlog.topic_partitions.items()
        if seen.offsets and seen.position is not None and seen.lag_seconds is None
    }
    try:
        return source_of(stream).message_in(unknown) is not None
    except KdiError:
        return True


def _of_lag(backlog: Backlog, limits: FreshnessLimits, *, nothing: bool) -> tuple[Level, str]:
    if not backlog.offsets:
        return "passed", "nothing waits"
    if nothing:
        return "passed", f"{backlog.offsets:,} offsets wait, and there is no message in them"
    if backlog.lag_seconds is None:
        return "warn", f"{backlog.offsets:,} offsets wait, and their age is unknown"
    oldest = f"the oldest of {backlog.offsets:,} waiting offsets is {backlog.lag_seconds:,.0f} s old"
    return level_of_delay(backlog.lag_seconds, limits), oldest


def _of_transaction(backlog: Backlog, seconds: float | None, limits: FreshnessLimits) -> tuple[Level, str]:
    held = f"{backlog.open_transaction_offsets:,} offsets are held back by an open transaction"
    if not backlog.open_transaction_offsets:
        return "passed", ""
    if seconds is None:
        return "warn", f"{held}, and their age is unknown"
    return level_of_delay(seconds, limits), f"{held}, the oldest is {seconds:,.0f} s old"
