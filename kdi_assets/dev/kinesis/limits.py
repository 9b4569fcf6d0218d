"""The limits of calls and bytes, in seconds of the server's clock."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from kdi_assets.dev.kinesis.faults import ApiCall
from kdi_assets.dev.kinesis.refusals import ApiRefusal

SHARD_BYTES = 2 << 20  # that a shard gives to all its readers in a second
PAGE_BYTES = 10 << 20
PAGE_RECORDS = 10_000
MOST_WINDOWS = 20_000
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
"""Source: botocore's service model of Kinesis, documentation of the operations."""


class Limits:
    """Counts calls and bytes of the last seconds; the caller holds the server's lock."""

    def __init__(self) -> None:
        self._windows: dict[ApiCall, deque[int]] = {}
        self._bytes: dict[ApiCall, deque[tuple[int, int]]] = {}
        self._busy_until: dict[ApiCall, int] = {}

    def admit(self, call: ApiCall, now: int) -> None:
        """Count a call; raises the operation's error if it is one too many in this second."""
        if (limit := RATE_LIMITS.get(call.operation)) is None:
            return
        key = _key(call, limit.of)
        times = self._windows.setdefault(key, deque(maxlen=limit.calls))
        read = self._bytes.get(key, ())
        if (
            (len(times) == limit.calls and now - times[0] < SECOND)
            or now < self._busy_until.get(key, 0)
            or sum(size for at, size in read if now - at < SECOND) >= SHARD_BYTES
        ):
            raise ApiRefusal(limit.code, f"Rate exceeded for {_named(key)} in this account.")
        times.append(now)
        if len(self._windows) > MOST_WINDOWS:
            self._forget(now)

    def note_bytes(self, call: ApiCall, size: int, now: int) -> None:
        """Count what a call of GetRecords read: a whole page of 10 MiB keeps the shard busy for five seconds."""
        key = _key(call, "shard")
        self._bytes.setdefault(key, deque(maxlen=RATE_LIMITS["GetRecords"].calls)).append((now, size))
        if size > SHARD_BYTES:
            self._busy_until[key] = now + size * SECOND // SHARD_BYTES

    def _forget(self, now: int) -> None:
        idle = [key for key, times in self._windows.items() if now - times[-1] > 10 * SECOND]
        for key in idle:
            for kept in (self._windows, self._bytes, self._busy_until):
                kept.pop(key, None)


def _key(call: ApiCall, of: str) -> ApiCall:
    stream = "" if of == "account" else call.stream
    return ApiCall(call.operation, stream, call.shard if of == "shard" else "")


def _named(key: ApiCall) -> str:
    shard = f"shard {key.shard} in " if key.shard else ""
    return f"{shard}stream {key.stream}" if key.stream else key.operation
