"""A data stream's state: shards with their lineage, records, sequence numbers, retention. Times are in milliseconds."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from hashlib import md5

from kdi_assets.tools.local.kinesis.limits import Limits
from kdi_assets.tools.local.kinesis.refusals import ApiRefusal

HASH_KEYS = 1 << 128
HOUR = 3_600_000
MOST_SHARDS = 1_000
RECORD_OVERHEAD = 500  # bytes of memory of a record beyond data and partition key
_NUMBER = re.compile(r"2([0-9a-f]{9})0[0-9a-f]{16}00[0-9a-f]{9}([0-9a-f]{8})2")


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record as a shard keeps it.

    Attributes:
        partition_key: None: the producer gave none, and the stream distributes records by itself.
    """

    sequence: int
    arrived: int
    data: bytes
    partition_key: str | None

    @property
    def size(self) -> int:
        """Bytes that count towards the limits."""
        return len(self.data) + len((self.partition_key or "").encode())

    @property
    def memory(self) -> int:
        """Bytes of memory that it takes."""
        return self.size + RECORD_OVERHEAD


@dataclass
class Shard:
    """A shard: open until ``end`` is set; expired once retention has passed the moment it was closed.

    Attributes:
        first_hash, last_hash: Its range of hash keys, both inclusive.
        start, end: Its first and last sequence number; no record has them.
        trimmed: The last sequence number that retention removed; 0: none.
    """

    number: int
    first_hash: int
    last_hash: int
    start: int
    opened: int
    parents: tuple[int, ...] = ()
    end: int | None = None
    closed: int | None = None
    trimmed: int = 0
    records: list[StoredRecord] = field(default_factory=list)
    limits: Limits = field(default_factory=Limits)

    @property
    def id(self) -> str:
        """Its name in the API."""
        return shard_id(self.number)

    @property
    def last(self) -> int:
        """The highest sequence number so far: of a record, kept or not, or its start."""
        return self.records[-1].sequence if self.records else max(self.start, self.trimmed)

    def after(self, sequence: int) -> int:
        """Index of the first record behind a sequence number."""
        return bisect_right(self.records, sequence, key=lambda record: record.sequence)

    def trim(self, horizon: int) -> int:
        """Remove the records before the first one that arrived at or after the horizon; returns their memory."""
        kept = next((i for i, record in enumerate(self.records) if record.arrived >= horizon), len(self.records))
        removed = self.records[:kept]
        if removed:
            self.trimmed = removed[-1].sequence
            del self.records[:kept]
        return sum(record.memory for record in removed)


@dataclass
class StreamConsumer:
    """A registered consumer of enhanced fan-out."""

    name: str
    arn: str
    created: int


class DataStream:
    """A stream; the caller holds the server's lock and hands in the time.

    Attributes:
        mode: ``PROVISIONED`` or ``ON_DEMAND``.
        distributes: Records need no partition key, and one that they have does not choose the shard.
        retention_hours: Change it with ``retain``.
        size: Bytes of memory that its records take.
        consumers: By name.
    """

    def __init__(
        self,
        arn: str,
        *,
        now: int,
        shards: int,
        first_shard: int = 0,
        most_record_bytes: int = 1 << 20,
        mode: str = "PROVISIONED",
        distributes: bool = False,
    ) -> None:
        self.arn = arn
        self.name = arn.partition("/")[2]
        self.created = now
        self.retention_hours = 24
        self.most_record_bytes = most_record_bytes
        self.mode = mode
        self.distributes = distributes
        self.size = 0
        self.limits = Limits()
        self.consumers: dict[str, StreamConsumer] = {}
        self._numbers = 0
        self._next_shard = first_shard
        self._shards: dict[int, Shard] = {}
        for first, last in _equal_ranges(shards):
            self._open(first, last, (), now)

    def shards(self, now: int) -> list[Shard]:
        """The shards that have not expired, by their numbers; removes what retention has passed."""
        horizon = now - self.retention_hours * HOUR
        for shard in list(self._shards.values()):
            self.size -= shard.trim(horizon)
            if shard.closed is not None and shard.closed < horizon:
                del self._shards[shard.number]
        return list(self._shards.values())

    def shard(self, name: str, now: int) -> Shard:
        """A shard by its name; raises ResourceNotFoundException if it is missing or expired."""
        for shard in self.shards(now):
            if shard.id == name:
                return shard
        raise ApiRefusal(
            "ResourceNotFoundException",
            f"Shard {name} in stream {self.name} under account {self.arn.split(':')[4]} does not exist",
        )

    def children(self, shard: Shard) -> list[Shard]:
        """The shards that a shard was split or merged into."""
        return [child for child in self._shards.values() if shard.number in child.parents]

    def limits_of_shard(self, name: str) -> Limits | None:
        """The limits of a shard; None: it is missing."""
        return next((shard.limits for shard in self._shards.values() if shard.id == name), None)

    def next_number(self, shard: Shard, now: int) -> int:
        """A sequence number above all others of the shard; 56 decimal digits.

        It holds the stream's creation, a running number, the time and the shard, as AWS's numbers do.
        """
        self._numbers += 1
        text = f"2{self.created // 1000:09x}0{self._numbers:016x}00{now // 1000:09x}{shard.number:08x}2"
        return int(text, 16)

    def parse_number(self, text: str, shard: Shard) -> int:
        """A sequence number of this shard; raises InvalidArgumentException if it is of another stream or shard."""
        parts = _NUMBER.fullmatch(f"{int(text):x}") if text.isdecimal() and len(text) < 130 else None
        if parts is None or int(parts[1], 16) != self.created // 1000:
            raise ApiRefusal(
                "InvalidArgumentException",
                f"StartingSequenceNumber {text} used in GetShardIterator on shard {shard.id} in stream {self.name}"
                f" under account {self.arn.split(':')[4]} is invalid because it did not come from this stream.",
            )
        if (number := int(parts[2], 16)) != shard.number:
            raise ApiRefusal(
                "InvalidArgumentException",
                f"Invalid StartingSequenceNumber. It encodes {shard_id(number)}, while it was used in a call to a"
                f" shard with {shard.id}",
            )
        return int(text)

    def put(self, data: bytes, key: str | None, hash_key: int | None, *, now: int, arrived: int) -> tuple[Shard, int]:
        """Append a record to the open shard of its hash key; returns the shard and the sequence number."""
        if self.distributes or hash_key is None:
            spread = str(self._numbers) if self.distributes else key or ""
            hash_key = int.from_bytes(md5(spread.encode(), usedforsecurity=False).digest())
        shard = next(s for s in self._shards.values() if s.end is None and s.first_hash <= hash_key <= s.last_hash)
        number = self.next_number(shard, now)
        record = StoredRecord(number, arrived, data, key)
        shard.records.append(record)
        self.size += record.memory
        return shard, number

    def retain(self, hours: int, now: int) -> None:
        """Change the retention; what is too old by the one before stays removed."""
        self.shards(now)
        self.retention_hours = hours
        self.shards(now)

    def split(self, shard: Shard, at: int, now: int) -> tuple[Shard, Shard]:
        """Close a shard and open two; ``at`` is the second one's first hash key."""
        self._refuse_closed(shard)
        if not shard.first_hash + 1 < at < shard.last_hash:
            raise ApiRefusal(
                "InvalidArgumentException",
                f"NewStartingHashKey {at} used in SplitShard() on shard {shard.id} in stream {self.name} is not both"
                f" greater than one plus the shard's StartingHashKey {shard.first_hash} and less than the shard's"
                f" EndingHashKey {shard.last_hash}.",
            )
        self._refuse_too_many(1)
        self._close(shard, now)
        parents = (shard.number,)
        return self._open(shard.first_hash, at - 1, parents, now), self._open(at, shard.last_hash, parents, now)

    def merge(self, shard: Shard, adjacent: Shard, now: int) -> Shard:
        """Close two neighbours and open one."""
        self._refuse_closed(shard)
        self._refuse_closed(adjacent)
        if shard.last_hash + 1 != adjacent.first_hash and adjacent.last_hash + 1 != shard.first_hash:
            raise ApiRefusal(
                "InvalidArgumentException",
                f"Shards {shard.id} and {adjacent.id} in stream {self.name} are not an adjacent pair of shards"
                " eligible for merging",
            )
        self._close(shard, now)
        self._close(adjacent, now)
        first, last = min(shard.first_hash, adjacent.first_hash), max(shard.last_hash, adjacent.last_hash)
        return self._open(first, last, (shard.number, adjacent.number), now)

    def reshape(self, count: int, now: int) -> None:
        """Split and merge until there are ``count`` equal open shards, with short-lived shards between, as AWS does."""
        for first, last in _equal_ranges(count):
            for at in (first, last + 1):
                cut = next((s for s in self.open_shards() if s.first_hash < at <= s.last_hash), None)
                if cut:
                    self.split(cut, at, now)
            inside = [s for s in self.open_shards() if first <= s.first_hash and s.last_hash <= last]
            merged = inside[0]
            for adjacent in inside[1:]:
                merged = self.merge(merged, adjacent, now)

    def open_shards(self) -> list[Shard]:
        """The shards that take records, by their hash keys."""
        return sorted((s for s in self._shards.values() if s.end is None), key=lambda shard: shard.first_hash)

    def _open(self, first: int, last: int, parents: tuple[int, ...], now: int) -> Shard:
        shard = Shard(self._next_shard, first, last, start=0, opened=now, parents=parents)
        shard.start = self.next_number(shard, now)
        self._shards[shard.number] = shard
        self._next_shard += 1
        return shard

    def _close(self, shard: Shard, now: int) -> None:
        shard.end, shard.closed = self.next_number(shard, now), now

    def _refuse_closed(self, shard: Shard) -> None:
        if shard.end is not None:
            raise ApiRefusal(
                "InvalidArgumentException",
                f"Shard {shard.id} in stream {self.name} has already been merged or split, and thus is not eligible"
                " for merging or splitting.",
            )

    def _refuse_too_many(self, more: int) -> None:
        if len(self._shards) + more > MOST_SHARDS:
            raise ApiRefusal("LimitExceededException", f"This server keeps at most {MOST_SHARDS} shards of a stream.")


def shard_id(number: int) -> str:
    """``shardId-000000000007``."""
    return f"shardId-{number:012d}"


def refuse_bad_name(name: str) -> None:
    """Raise ValidationException if a stream or a consumer cannot have this name."""
    if not re.fullmatch(r"[a-zA-Z0-9_.-]{1,128}", name):
        raise ApiRefusal("ValidationException", f"{name!r} is not a name: [a-zA-Z0-9_.-]+, at most 128 characters.")


def parse_hash_key(text: str) -> int:
    """A hash key; raises InvalidArgumentException if it is not a number below 2^128."""
    if not re.fullmatch("[0-9]{1,39}", text) or int(text) >= HASH_KEYS:
        raise ApiRefusal("InvalidArgumentException", f"Hash key {text!r} is not a number below 2^128.")
    return int(text)


def _equal_ranges(count: int) -> list[tuple[int, int]]:
    edges = [HASH_KEYS * i // count for i in range(count + 1)]
    return [(first, following - 1) for first, following in zip(edges, edges[1:], strict=False)]
