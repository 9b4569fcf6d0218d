"""What tests order of the server: a clock that they advance, behaviours that AWS shows now and then, and faults."""

from __future__ import annotations

import time
from dataclasses import KW_ONLY, dataclass
from typing import Literal, NamedTuple


class ServerClock:
    """The server's time in milliseconds: the machine's plus what it was advanced, or only what it was advanced."""

    def __init__(self, *, frozen: bool = False) -> None:
        """Start at the machine's time; a frozen clock moves only when it is advanced."""
        self._frozen_at = time.time() if frozen else None
        self._ahead = 0.0

    def now(self) -> int:
        """Milliseconds since 1970."""
        return int(((self._frozen_at or time.time()) + self._ahead) * 1000)

    def advance(self, seconds: float) -> None:
        """Move it forward."""
        self._ahead += seconds


@dataclass
class Behaviour:
    """What differs between real streams, or is reported of some; may be changed at any time.

    Attributes:
        trimmed_position: The answer to a sequence number that retention has removed. ``horizon``: reading goes on
            silently at the oldest record; ``refused``: InvalidArgumentException; ``empty``: empty answers without end,
            which are as far behind as retention is long. All three are reported of AWS.
        empty_pages: Empty answers or events before each one with records, as on shards with few records.
        least_behind_ms: The least ``MillisBehindLatest``: on some streams it never becomes 0.
        arrival_jitter_ms: Arrival timestamps are up to so much too early, and so not in order.
        activation_ms: Time until a consumer is ACTIVE.
        first_shard: Number of the first shard of a stream that is created: old streams start at some 1,200.
        newest_shards_first: ListShards names children before their parents.
    """

    trimmed_position: Literal["horizon", "refused", "empty"] = "horizon"
    empty_pages: int = 0
    least_behind_ms: int = 0
    arrival_jitter_ms: int = 0
    activation_ms: int = 500
    first_shard: int = 0
    newest_shards_first: bool = False


@dataclass
class Fault:
    """What goes wrong with the next calls of an operation.

    Attributes:
        shard: Only calls about this shard; "": all.
        times: Number of calls.
        skip: So many calls go well before.
        code: The call is refused with this error and ``status``; nothing else happens.
        entries: PutRecords throttles so many of its first records, and keeps the others.
        cut_after: The connection ends after so many bytes of the answer's body; the call did happen.
        repeats: GetRecords answers the same records once more to the next call.
    """

    operation: str
    _: KW_ONLY
    shard: str = ""
    times: int = 1
    skip: int = 0
    code: str = ""
    status: int = 400
    entries: int = 0
    cut_after: int | None = None
    repeats: bool = False


class ApiCall(NamedTuple):
    """What calls are counted by; a part that a call does not name is empty."""

    operation: str
    stream: str = ""
    shard: str = ""
    consumer: str = ""


def take_fault(faults: list[Fault], call: ApiCall) -> Fault | None:
    """The fault that this call meets; a fault that has happened often enough leaves the list."""
    for fault in faults:
        if fault.operation != call.operation or fault.shard not in ("", call.shard):
            continue
        if fault.skip > 0:
            fault.skip -= 1
            continue
        fault.times -= 1
        if fault.times <= 0:
            faults.remove(fault)
        return fault
    return None
