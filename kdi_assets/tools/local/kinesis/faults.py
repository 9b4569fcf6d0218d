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


@dataclass(slots=True)  # a name that it does not have is an error
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


SHARD_OPERATIONS = frozenset({"GetRecords", "GetShardIterator", "SubscribeToShard"})


@dataclass(slots=True)
class Fault:
    """What goes wrong with the next calls of an operation.

    It does one of four things: ``code``, ``entries``, ``cut_after`` or ``repeats``.

    Attributes:
        shard: Only calls about this shard; "": all.
        times: Number of calls.
        skip: So many calls that it could meet go well before.
        code: The call is refused with this error and ``status``; nothing else happens.
        entries: PutRecords throttles so many of its first records, and keeps the others.
        cut_after: The connection ends after so many bytes of the answer's body, at the latest before its last one; the
            call did happen.
        repeats: GetRecords answers the same records once more to the next call; calls without records do not count.
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

    @property
    def is_for_records(self) -> bool:
        """Whether it happens only once a call has records: other calls pass it by."""
        return self.repeats or self.entries > 0

    def check(self) -> None:
        """Raise ``ValueError`` if it could never happen."""
        effects = [bool(self.code), self.entries > 0, self.cut_after is not None, self.repeats]
        if sum(effects) != 1 or self.times < 1:
            raise ValueError(f"{self} must do one thing, at least once")
        if self.skip < 0 or (self.cut_after or 0) < 0:
            raise ValueError(f"{self} has a number below 0")
        if self.entries and self.operation != "PutRecords":
            raise ValueError(f"only PutRecords has entries, not {self.operation}")
        if self.repeats and self.operation != "GetRecords":
            raise ValueError(f"only GetRecords repeats, not {self.operation}")
        if self.shard and self.operation not in SHARD_OPERATIONS:
            raise ValueError(f"{self.operation} names no shard")


class ApiCall(NamedTuple):
    """What calls are counted by; a part that a call does not name is empty."""

    operation: str
    stream: str = ""
    shard: str = ""
    consumer: str = ""


def take_fault(faults: list[Fault], call: ApiCall, *, of_records: bool = False) -> Fault | None:
    """The fault that this call meets; a fault that has happened often enough leaves the list.

    Args:
        of_records: Asked once the call has records, for the faults of these; otherwise for the others.
    """
    for fault in faults:
        if fault.operation != call.operation or fault.shard not in ("", call.shard):
            continue
        if fault.is_for_records != of_records:
            continue
        if fault.skip > 0:
            fault.skip -= 1
            continue
        fault.times -= 1
        if fault.times <= 0:
            faults.remove(fault)
        return fault
    return None
