"""What a drain leaves: whether drains keep up with what arrives."""

from __future__ import annotations

import math

from kdi_assets.checks.finding import Finding, Level, Number
from kdi_assets.checks.subject import Subject
from kdi_assets.drain.backlog import Backlog, StatusWord
from kdi_assets.stream import DrainWhen, Stream


def backlog_after_drain(subject: Subject) -> Finding:
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
    return Finding(level, said, _numbers(backlog), {"status": (backlog.word.value,)} if backlog.word else {})


def _judged(backlog: Backlog, stream: Stream, *, drained: bool) -> tuple[Level, str]:
    waits = f"{backlog.offsets:,} offsets wait"
    if (loss := backlog.loss_near(stream.drain_when.time_to_loss_seconds)) is not None:
        return "error", f"{waits}, and retention deletes the first of them in {loss:,.0f} s"
    if stream.status == "paused":
        return "passed", f"{waits}; the stream is paused"
    if backlog.word in (StatusWord.STOP, StatusWord.STALL):
        return "error", f"{waits}, and drains do not get on with them ({backlog.word})"
    if backlog.word is StatusWord.WARN:
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


def _numbers(backlog: Backlog) -> dict[str, Number]:
    known = {
        "backlog": backlog.offsets,
        "lag_seconds": backlog.lag_seconds if backlog.offsets else 0.0,
        "backlog_bytes": backlog.bytes,
        "time_to_loss_seconds": backlog.time_to_loss_seconds,
        "time_to_close_seconds": backlog.time_to_close_seconds,
        "open_transaction_offsets": backlog.open_transaction_offsets,
    }
    return {name: number for name, number in known.items() if number is not None and math.isfinite(number)}
