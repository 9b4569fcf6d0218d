"""The ledger entry: what a ledger commit did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Literal

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.shard_bookmarks import Bookmark, Span
from kdi_assets.messages.topic_state import LastRead
from kdi_assets.streams.ledger.routes import Routes
from kdi_assets.wording import printable

Kind = Literal[
    "start", "takeover", "restore", "drain", "resolve", "renewal", "routes", "replay", "discard", "erase", "expire"
]
"""``routes`` commits a change of route conditions, or the stop before it; positions stay as they are. ``expire``
removes rows of dates that are kept no longer."""
REPLAY_PREFIX = "replay-"
"""Attempt ids of replays start with it: a replay writes dead letters below the positions before it commits."""
BELOW_POSITIONS: tuple[Kind, ...] = ("replay", "discard", "erase", "expire")
"""Commits that change only what lies below the positions; a drain that was planned before one of them stays valid."""

BUCKETS_PER_OCTAVE = 8
LOWEST_BUCKET, HIGHEST_BUCKET = -3 * BUCKETS_PER_OCTAVE, 28 * BUCKETS_PER_OCTAVE
"""Of ``LedgerEntry.ages``: an eighth of a second and eight years; they also hold all younger and all older messages."""


@dataclass(frozen=True, slots=True)
class RowlessCounts:
    """Counts of offsets with neither row nor dead letter; only the ledger records them.

    Attributes:
        gaps: Offsets without a visible message, if the entry does not list them.
    """

    tombstones: int = 0
    filtered: int = 0
    gaps: int = 0

    @property
    def count(self) -> int:
        return self.tombstones + self.filtered + self.gaps

    def __add__(self, other: RowlessCounts) -> RowlessCounts:
        return RowlessCounts(self.tombstones + other.tombstones, self.filtered + other.filtered, self.gaps + other.gaps)

    def __str__(self) -> str:
        counts = {"tombstones": self.tombstones, "filtered messages": self.filtered, "gaps": self.gaps}
        return " and ".join(f"{n:,} {kind}" for kind, n in counts.items() if n) or "0 tombstones"


@dataclass(frozen=True, slots=True)
class RangeCounts:
    """The counts of one range of a drain.

    Attributes:
        became_rows: Messages that became one row or more; a count of messages, not of rows.
        gaps: Offsets without a visible message.
        unlisted_gaps: Those gaps that the entry does not list: all of them or none.
    """

    range: OffsetRange
    became_rows: int = 0
    dead_letters: int = 0
    tombstones: int = 0
    gaps: int = 0
    filtered: int = 0
    unlisted_gaps: int = 0

    @property
    def rowless(self) -> RowlessCounts:
        return RowlessCounts(self.tombstones, self.filtered, self.unlisted_gaps)


@dataclass(frozen=True, slots=True)
class DeadLettersAt:
    """The id of the dead-letter table, and its version that holds the entry's dead letters."""

    table_id: str
    version: int


@dataclass(frozen=True, slots=True)
class FieldCounts:
    """Fields of messages that are not in their rows.

    Attributes:
        messages: Messages with at least one such field.
        named: Messages with the field, by path.
        others: How many more paths there are, at least.
    """

    messages: int = 0
    named: Mapping[str, int] = field(default_factory=dict)
    others: int = 0

    def __bool__(self) -> bool:
        return self.messages > 0

    def __add__(self, other: FieldCounts) -> FieldCounts:
        named = Counter(self.named) + Counter(other.named)
        return FieldCounts(self.messages + other.messages, dict(named.most_common()), max(self.others, other.others))

    def listed(self, most: int = 10) -> str:
        """The most frequent paths with their counts, and how many more there are."""
        shown = [f"{printable(path)} ({count:,})" for path, count in list(self.named.items())[:most]]
        others = len(self.named) - len(shown) + self.others
        return ", ".join(shown) + (f" and at least {others:,} more" if others else "")


@dataclass(frozen=True, slots=True)
class Erasure:
    """Messages that a commit erased, or that are kept no longer: it removes their rows, and their dead letters are
    deleted after it.

    The table ``<table>_erased`` has their offsets, under the attempt id of the entry.

    Attributes:
        where: The condition on rows, with ``?`` in place of each value; empty without one.
        letters_where: The same on dead letters.
        became_rows: By topic partition, erased messages that were rows.
        dead_letters: By topic partition, erased messages that were dead letters.
        digest: ``bit_xor(xxhash64(partition, offset))`` of both.
        removed_rows: Rows that left the table ``<table>_removed``.
        again: Whether it erased what a RESTORE had brought back.
    """

    where: str = ""
    letters_where: str = ""
    became_rows: Mapping[TopicPartition, int] = field(default_factory=dict)
    dead_letters: Mapping[TopicPartition, int] = field(default_factory=dict)
    digest: int = 0
    removed_rows: int = 0
    again: bool = False

    @property
    def count(self) -> int:
        """Erased messages that the ledger had counted."""
        return sum(self.became_rows.values()) + sum(self.dead_letters.values())


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What one ledger commit did. The names of the fields are the keys of the JSON.

    Attributes:
        version: The table version of the commit.
        attempt_id: Identifies the attempt; dead letters count only if a live entry has their attempt id.
        positions: Next offset of every topic partition after the commit.
        gaps: Offsets without a visible message, confirmed by a second client; empty if there are too many to list.
        gap_digest: ``bit_xor(xxhash64(partition, offset))`` of the gaps, if they are not listed.
        declared_losses: Offsets that someone decided to give up.
        lost_between: Of Kinesis, where one offset of these stands for all records that are gone: when they arrived, in
            milliseconds since 1970.
        digest: ``bit_xor(xxhash64(partition, offset))`` of the messages that the drain read.
        dead_letter_digest, tombstone_digest, filtered_digest: The same for the messages with this verdict.
        rows_by_date: Rows that the commit added.
        letters_by_date: Dead letters that the commit added or changed, by the UTC date of the message's timestamp;
            only dates in the stream's window.
        planned_at: When the drain or replay was planned, or the erasure or expiry committed, UTC; ``None`` for other
            kinds and older releases.
        ends: Where the topic partitions ended at that time, exclusive.
        ages: Messages by age at ``planned_at``. Bucket ``b`` holds ages from 2^(b/8) s to 2^((b+1)/8) s.
        message_bytes: Keys and values that the drain read, uncompressed.
        seconds: Duration of each stage before the commit.
        cpu_seconds: Of a drain or replay: CPU seconds since its beginning, or since its commit before, as ``CpuClock``
            counts them; ``None`` for other kinds and older releases.
        files_added: Data files that the commit added; 0 in entries of older releases.
        unmet: Messages that did not meet an expectation, by expectation; every expectation of the drain is listed.
        unknown: Fields of messages that the record does not have.
        misfits: Fields that were left out because their values did not fit the type.
        conflicts: Earlier attempts of the same drain that lost against another commit.
        routes: The route conditions of the table from this commit on; ``None`` without a route.
        last_read: The last message read of each topic partition, if it lies shortly before the position.
        deployment: Host and folder of the process that made the commit; empty in entries of older releases.
        decided_by: Who made the decision; empty if nobody was named.
        because: The reason given for the decision.
        outcomes: Of a replay: how many dead letters or messages had which outcome.
        returned: Of a replay, by topic partition: dead letters that became rows, less rows that became dead letters.
        dates: Of a replay of dates: the first and the last.
        removed_by_date: Rows that the commit removed; rows that it rewrote are also in ``rows_by_date``.
        kept_aside: Rows that a decision moved to ``<table>_removed``, because the broker no longer has their messages.
        withdrawn: Of a replay of dates, by topic partition: messages whose rows it removed without replacement.
        withdrawn_digest: ``bit_xor(xxhash64(partition, offset))`` of these.
        erasure: Of an erasure: what it erased. Of an expiry: which messages are kept no longer.
        kept_from: Of an expiry: the oldest date that is kept; rows with older dates left. It never goes back, also if
            the document keeps more dates than before: followers have passed over the dates that left.
        bookmarks: Of Kinesis: where each position is in its shard.
        spans: Of Kinesis: what the commit read of each shard.
    """

    version: int
    kind: Kind
    app_id: str
    attempt_id: str
    topic: str
    topic_id: str
    table_id: str
    positions: Mapping[TopicPartition, int]
    run_id: str = ""
    deployment: str = ""
    ranges: tuple[RangeCounts, ...] = ()
    gaps: tuple[OffsetRange, ...] = ()
    gap_digest: int = 0
    declared_losses: tuple[OffsetRange, ...] = ()
    lost_between: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    digest: int = 0
    dead_letter_digest: int = 0
    tombstone_digest: int = 0
    filtered_digest: int = 0
    rows_by_date: Mapping[date, int] = field(default_factory=dict)
    bytes: int = 0
    dead_letters_at: DeadLettersAt | None = None
    letters_by_date: Mapping[date, int] = field(default_factory=dict)
    planned_at: datetime | None = None
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    ages: Mapping[int, int] = field(default_factory=dict)
    message_bytes: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)
    cpu_seconds: float | None = None
    files_added: int = 0
    conflicts: int = 0
    unmet: Mapping[str, int] = field(default_factory=dict)
    unknown: FieldCounts = FieldCounts()
    misfits: FieldCounts = FieldCounts()
    routes: Routes | None = None
    outcomes: Mapping[str, int] = field(default_factory=dict)
    returned: Mapping[TopicPartition, int] = field(default_factory=dict)
    dates: tuple[date, date] | None = None
    removed_by_date: Mapping[date, int] = field(default_factory=dict)
    kept_aside: int = 0
    withdrawn: Mapping[TopicPartition, RowlessCounts] = field(default_factory=dict)
    withdrawn_digest: int = 0
    erasure: Erasure | None = None
    kept_from: date | None = None
    last_read: Mapping[TopicPartition, LastRead] = field(default_factory=dict)
    bookmarks: Mapping[TopicPartition, Bookmark] = field(default_factory=dict)
    spans: Mapping[TopicPartition, Span] = field(default_factory=dict)
    decided_by: str = ""
    because: str = ""

    @property
    def rows(self) -> int:
        return sum(self.rows_by_date.values())

    @property
    def became_rows(self) -> int:
        """Messages that became one row or more."""
        return sum(r.became_rows for r in self.ranges)

    @property
    def dead_letters(self) -> int:
        return sum(r.dead_letters for r in self.ranges)

    @property
    def tombstones(self) -> int:
        return sum(r.tombstones for r in self.ranges)

    @property
    def filtered(self) -> int:
        return sum(r.filtered for r in self.ranges)

    @property
    def gap_offsets(self) -> int:
        return sum(r.gaps for r in self.ranges)

    @property
    def messages(self) -> int:
        """Messages that the drain read, of every verdict."""
        return self.became_rows + self.dead_letters + self.tombstones + self.filtered

    @property
    def rowless(self) -> RowlessCounts:
        return sum((r.rowless for r in self.ranges), RowlessCounts())

    @property
    def rowless_digest(self) -> int:
        """Digest of the offsets that ``rowless`` counts."""
        return self.tombstone_digest ^ self.filtered_digest ^ self.gap_digest

    @property
    def stored_digest(self) -> int:
        """Digest of the messages that became rows or dead letters."""
        return self.digest ^ self.tombstone_digest ^ self.filtered_digest

    @property
    def taken_digest(self) -> int:
        """Digest of the messages that were rows or dead letters before the commit, and are neither after it."""
        return self.withdrawn_digest ^ (self.erasure.digest if self.erasure else 0)


def unmoved_last_read(
    newest: LedgerEntry | None, positions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, LastRead]:
    """The last messages read, as the newest entry has them, of the topic partitions whose positions stay."""
    read = newest.last_read if newest else {}
    return {tp: m for tp, m in read.items() if newest and newest.positions.get(tp) == positions.get(tp)}
