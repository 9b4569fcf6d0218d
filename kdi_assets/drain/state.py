"""The state of a stream in one word: what its document says, what stands in the way, else Burrow's word. No I/O."""

from __future__ import annotations

from enum import StrEnum

from kdi_assets.drain.backlog import Backlog
from kdi_assets.errors import Transient
from kdi_assets.stream import Stream


class State(StrEnum):
    """What ``kdi status`` says of a stream; the first five are those of ``StatusWord``."""

    OK = "OK"
    WARN = "WARN"
    REWIND = "REWIND"
    STALL = "STALL"
    STOP = "STOP"
    PAUSED = "paused"
    RETIRED = "retired"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    UNKNOWN = "unknown"


def state_of(stream: Stream, backlog: Backlog) -> State:
    """``refused`` waits for a decision, ``unreachable`` for brokers or storage; both go before ``paused``."""
    if stream.status == "retired":
        return State.RETIRED
    if backlog.refusal is not None:
        return State.UNREACHABLE if isinstance(backlog.refusal, Transient) else State.REFUSED
    if stream.status == "paused":
        return State.PAUSED
    return State.UNKNOWN if backlog.word is None else State(backlog.word.value)
