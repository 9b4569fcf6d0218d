"""Up to which record each shard of a Kinesis stream is read: its offsets are numbers that reading gives to records."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Bookmark:
    """After which record of a Kinesis shard reading goes on: its position is only the number of this record, plus one.

    Attributes:
        sequence: The sequence number of the last record read; empty without one.
        at: Without one, the arrival to begin at; ``None``: the oldest record. Times are milliseconds since 1970.
        arrived: When the last record arrived; 0 without one, and after a loss that was accepted: it is gone.
        digest: Of its partition key and data, in hexadecimal; of an aggregate, the whole.
        seen_at: Every record that arrived before was read, was given up, or is before the start; 0 if nobody has looked
            yet. Of a shard that ended, when it was seen before that: records of its children arrived later.
        held_seconds: The stream's retention when the shard was looked at; 0 is unknown.
        ended: The shard is closed, and was read to its end.
    """

    sequence: str = ""
    at: int | None = None
    arrived: int = 0
    digest: str = ""
    seen_at: int = 0
    held_seconds: float = 0
    ended: bool = False

    @property
    def complete_until(self) -> int:
        """Every record that arrived before is accounted for, in milliseconds since 1970; 0 if nobody has looked yet."""
        return max(self.seen_at, self.arrived, self.at or 0)


@dataclass(frozen=True, slots=True)
class Loss:
    """Records of a shard that are gone, and that nobody can count.

    Attributes:
        since, until: Those that arrived between may be missing, in milliseconds since 1970.
        bookmark: Where reading goes on.
    """

    since: int
    until: int
    bookmark: Bookmark


def after_record(mark: Bookmark, *, sequence: str, arrived: int, digest: str) -> Bookmark:
    """The bookmark after the last record that was read of a shard, of which there may be more.

    Until a first record is read, ``seen_at`` says that what arrived before is before the start. Records that arrived
    between the one read here and that moment are not read yet, so it cannot say so any longer.
    """
    seen_at = mark.seen_at if mark.sequence else min(mark.seen_at, arrived)
    return replace(mark, sequence=sequence, arrived=arrived, digest=digest, seen_at=seen_at)


def seen_until(mark: Bookmark, moment: int, *, ended: bool) -> Bookmark:
    """The bookmark of a shard of which everything was read that arrived before a moment, in milliseconds since 1970."""
    return replace(mark, ended=True) if ended else replace(mark, seen_at=moment)


@dataclass(frozen=True, slots=True)
class Span:
    """Records of a Kinesis shard that one commit read: the way from numbers back to sequence numbers.

    Attributes:
        first, last: Sequence numbers, both inclusive.
        records: Their numbers; a record that is an aggregate has one for each of its user records.
        digest: ``bit_xor(xxhash64(sequence number))`` of all records, an aggregate counted once.
    """

    first: str
    last: str
    records: int
    digest: int
