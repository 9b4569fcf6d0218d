"""The limits of calls and bytes, in seconds of the server's clock."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from kdi_assets.tools.local.kinesis.faults import ApiCall
from kdi_assets.tools.local.kinesis.refusals import ApiRefusal

SHARD_BYTES = 2 << 20  # that a shard gives to all its readers in a second
PAGE_BYTES = 10 << 20
PAGE_RECORDS = 10_000
SECOND = 1000


class RateLimit(NamedTuple):
    """Calls in a second, of what they are counted, and the error of one too many."""

    calls: int
    of: str
    code: str = "LimitExceededException"


RATE_LIMITS = {
    "GetRecords": RateLimit(5, "shard", "ProvisionedThroughputExceededException"),
    "GetShardIterator": RateLimit(5, "shard", "ProvisionedThroughputExceededException"),
    "ListShards": RateLimit(1000, "stream"),
    "DescribeStreamSummary": RateLimit(20, "account"),
    "RegisterStreamConsumer": RateLimit(5, "account"),
    "DeregisterStreamConsumer": RateLimit(5, "stream"),
    "DescribeStreamConsumer": RateLimit(20, "stream"),
    "ListStreamConsumers": RateLimit(5, "stream"),
}
"""Without SubscribeToShard's one call a second of a consumer and shard; it has only its rule of five seconds.

Source: botocore's service model of Kinesis, documentation of the operations.
"""


class Limits:
    """Counts calls and bytes of the last seconds, of a shard, a stream or the account; the caller holds the lock."""

    def __init__(self) -> None:
        self._calls: dict[str, deque[int]] = {}
        self._bytes: deque[tuple[int, int]] = deque(maxlen=RATE_LIMITS["GetRecords"].calls)
        self._busy_until = 0

    def admit(self, call: ApiCall, now: int) -> None:
        """Count a call; raises the operation's error if it is one too many in this second."""
        limit = RATE_LIMITS[call.operation]
        times = self._calls.setdefault(call.operation, deque(maxlen=limit.calls))
        too_many = len(times) == limit.calls and now - times[0] < SECOND
        if too_many or (call.operation == "GetRecords" and self._is_read_out(now)):
            raise ApiRefusal(limit.code, f"Rate exceeded for {_named(call, limit.of)} in this account.")
        times.append(now)

    def note_bytes(self, size: int, now: int) -> None:
        """Count what a call of GetRecords read: a whole page of 10 MiB keeps the shard busy for five seconds."""
        self._bytes.append((now, size))
        if size > SHARD_BYTES:
            self._busy_until = now + size * SECOND // SHARD_BYTES

    def _is_read_out(self, now: int) -> bool:
        read = sum(size for at, size in self._bytes if now - at < SECOND)
        return now < self._busy_until or read >= SHARD_BYTES


def _named(call: ApiCall, of: str) -> str:
    match of:
        case "shard":
            return f"shard {call.shard} in stream {call.stream}"
        case "stream":
            return f"stream {call.stream}"
    return call.operation
