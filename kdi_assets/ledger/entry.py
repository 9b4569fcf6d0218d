"""The ledger entry: what a commit of ours says of itself, as JSON in the commit's user metadata."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date, datetime
from typing import Any, Literal

from kdi_assets.ledger.errors import WrittenByNewerRelease
from kdi_assets.ledger.routes import Routes
from kdi_assets.stream.stream import OffsetRange, TopicPartition

FORMAT = 1
"""Fields may be added that a release can ignore and still count right; any other change raises the format."""

Kind = Literal["start", "takeover", "restore", "drain", "resolve", "renewal", "routes", "replay", "discard"]
"""``routes``: positions as they were; a change of route conditions, or the stop before it."""
OF_REPLAY = "replay-"
"""The attempt id of a replay begins so: its dead letters lie below the positions before its commit."""
MOVING_NOTHING: tuple[Kind, ...] = ("replay", "discard")
"""Commits that leave positions as they are: a drain that was planned before one of them is none the worse for it."""


@dataclass(frozen=True, slots=True)
class Untraced:
    """Offsets that leave nothing in any table: the ledger alone can tell of them.

    Attributes:
        gaps: Those that hold no visible message, where the entry does not list them.
    """

    tombstones: int = 0
    filtered: int = 0
    gaps: int = 0

    @property
    def count(self) -> int:
        return self.tombstones + self.filtered + self.gaps

    def __add__(self, other: Untraced) -> Untraced:
        return Untraced(self.tombstones + other.tombstones, self.filtered + other.filtered, self.gaps + other.gaps)

    def __str__(self) -> str:
        counts = {"tombstones": self.tombstones, "filtered messages": self.filtered, "gaps": self.gaps}
        return " and ".join(f"{n:,} {kind}" for kind, n in counts.items() if n) or "0 tombstones"


@dataclass(frozen=True, slots=True)
class RangeCounts:
    """One range of a drain: which offsets, and what became of them.

    Attributes:
        became_rows: Messages that became a row, or several: what the others are counted by, not rows.
        gaps: Offsets that hold no visible message.
        unlisted_gaps: Those of them that the entry does not list: all or none.
    """

    range: OffsetRange
    became_rows: int = 0
    dead_letters: int = 0
    tombstones: int = 0
    gaps: int = 0
    filtered: int = 0
    unlisted_gaps: int = 0

    @property
    def untraced(self) -> Untraced:
        return Untraced(self.tombstones, self.filtered, self.unlisted_gaps)


@dataclass(frozen=True, slots=True)
class DeadLettersAt:
    """The dead-letter table that the entry counts on: its id, and the version that holds this drain's letters."""

    table_id: str
    version: int


@dataclass(frozen=True, slots=True)
class LastRead:
    """The last message read of a topic partition, as far as it must be known to tell it from another at its offset.

    Attributes:
        timestamp: In milliseconds since the epoch, as the broker has it.
        digest: Of key and value, in hexadecimal.
    """

    offset: int
    timestamp: int
    digest: str


@dataclass(frozen=True, slots=True)
class FieldCounts:
    """Fields of messages that are not in their rows.

    Attributes:
        messages: Those that had any.
        named: By path, the messages that had it.
        others: Paths beside these: at least so many.
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
        """The paths with their counts, the most frequent ones, and how many others there are."""
        shown = [f"{path} ({count:,})" for path, count in list(self.named.items())[:most]]
        others = len(self.named) - len(shown) + self.others
        return ", ".join(shown) + (f" and at least {others:,} more" if others else "")


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """What one ledger commit did.

    Attributes:
        version: The table version that the commit became.
        attempt_id: Names the try; dead letters count only if a live entry names theirs.
        positions: Next offset of every topic partition after the commit.
        gaps: Offsets that hold no visible message, confirmed by a second client; none if there are too many to list.
        gap_digest: ``bit_xor(xxhash64(partition, offset))`` of these offsets, if they are not listed.
        declared_losses: Offsets that someone decided to give up.
        digest: ``bit_xor(xxhash64(partition, offset))`` of the messages that the drain read.
        dead_letter_digest, tombstone_digest, filtered_digest: The same of those that became this.
        rows_by_date: Rows that the commit added, by their date.
        letters_by_date: Dead letters that the commit added, or said something of, by the date (UTC) of their messages'
            own timestamps; of dates in the stream's window alone.
        planned_at: When the drain was planned, UTC; ``None`` of another kind, or of a release that did not say.
        ends: Where the topic partitions ended then, exclusive.
        ages: Messages by their age at ``planned_at``, in the buckets of ``kdi_assets.ledger.freshness``.
        message_bytes: Of keys and values that the drain read, as produced and uncompressed.
        seconds: What its stages took before the commit.
        unmet: By expectation, the messages that did not meet it; of every expectation that there was.
        unknown: Fields that its messages had and the record had not.
        misfits: Fields that were left out because their values did not suit the type.
        conflicts: Tries of the same drain before this one that another commit overtook.
        routes: By which conditions of its route group the table is drained from there on; ``None`` without a route.
        last_read: The last message read of each topic partition, where it lies shortly before the position.
        decided_by: Who decided what no drain decides; empty where it was not asked for.
        because: Why, in their words.
        outcomes: Of a replay, what became of dead letters, or of the messages of dates, and how many of them.
        returned: Of a replay, by topic partition, the dead letters that are rows now, less the rows that are letters.
        dates: Of a replay of dates, the first and the last.
        removed_by_date: Rows that the commit took out, by their date; those that it wrote anew are in ``rows_by_date``.
        kept_aside: Of the rows that a decision took out, those in ``<table>_removed``: the broker has their messages no
            more.
        withdrawn: Of a replay of dates, by topic partition, messages that had rows and leave no trace any more.
        withdrawn_digest: ``bit_xor(xxhash64(partition, offset))`` of these.
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
    ranges: tuple[RangeCounts, ...] = ()
    gaps: tuple[OffsetRange, ...] = ()
    gap_digest: int = 0
    declared_losses: tuple[OffsetRange, ...] = ()
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
    withdrawn: Mapping[TopicPartition, Untraced] = field(default_factory=dict)
    withdrawn_digest: int = 0
    last_read: Mapping[TopicPartition, LastRead] = field(default_factory=dict)
    decided_by: str = ""
    because: str = ""

    @property
    def rows(self) -> int:
        return sum(self.rows_by_date.values())

    @property
    def became_rows(self) -> int:
        """Messages that became a row, or several."""
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
        """All that the drain read, whatever became of them."""
        return self.became_rows + self.dead_letters + self.tombstones + self.filtered

    @property
    def untraced(self) -> Untraced:
        return sum((r.untraced for r in self.ranges), Untraced())

    @property
    def untraced_digest(self) -> int:
        """Of the offsets that leave nothing in any table, as far as they are not listed."""
        return self.tombstone_digest ^ self.filtered_digest ^ self.gap_digest

    @property
    def traced_digest(self) -> int:
        """Of the messages that became rows or dead letters."""
        return self.digest ^ self.tombstone_digest ^ self.filtered_digest

    def to_json(self) -> str:
        """The form in the log: numbers of topic partitions as keys, ranges as ``[partition, start, end]``."""
        plain = {name: value for name, value in _plain(self).items() if value or name not in _IF_ANY}
        return json.dumps({"kdi_ledger": FORMAT, **plain}, separators=(",", ":"))


def still_last(newest: LedgerEntry | None, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, LastRead]:
    """The messages read last, as the newest entry knows them, of the topic partitions whose positions stay."""
    read = newest.last_read if newest else {}
    return {tp: m for tp, m in read.items() if newest and newest.positions.get(tp) == positions.get(tp)}


def entry_of(user_metadata: str, version: int, app_id: str) -> LedgerEntry | None:
    """The entry in a commit's user metadata; ``None`` if the commit is not of this ledger.

    Raises:
        WrittenByNewerRelease: It is of a newer format than this release knows.
    """
    if '"kdi_ledger"' not in user_metadata:
        return None
    plain: dict[str, Any] = json.loads(user_metadata)
    if plain.get("app_id") != app_id:
        return None
    if plain["kdi_ledger"] > FORMAT:
        raise WrittenByNewerRelease(app_id=app_id, version=version)
    written = {f.name: plain[f.name] for f in fields(LedgerEntry) if plain.get(f.name) is not None}
    read = {name: _READ[name](value, plain["topic"]) for name, value in written.items() if name in _READ}
    return LedgerEntry(**{**written, **read, "version": version})


_IF_ANY = (
    *("gap_digest", "letters_by_date", "routes", "decided_by", "because", "outcomes", "returned"),
    *("dates", "removed_by_date", "kept_aside", "withdrawn", "withdrawn_digest", "last_read"),
)
_COUNTS = tuple(f.name for f in fields(RangeCounts))[1:]
_COUNTED = 3 + len(_COUNTS)  # of a range in the log: partition, start, end and the counts we know


def _plain(value: Any) -> Any:
    """A value as the log has it."""
    match value:
        case OffsetRange():
            return [value.topic_partition.partition, value.start, value.end]
        case RangeCounts():
            return [*_plain(value.range), *(getattr(value, name) for name in _COUNTS)]
        case LastRead():
            return [value.offset, value.timestamp, value.digest]
        case Untraced():
            return [value.tombstones, value.filtered]
        case TopicPartition():
            return str(value.partition)
        case date():
            return value.isoformat()
        case tuple():
            return [_plain(each) for each in value]
        case Mapping():
            return {_plain(key): _plain(each) for key, each in value.items()}
    return {f.name: _plain(getattr(value, f.name)) for f in fields(value)} if is_dataclass(value) else value


def _by_partition(plain: Mapping[str, Any], topic: str, of: Callable[..., Any] = int) -> dict[TopicPartition, Any]:
    return {TopicPartition(topic, int(p)): of(value) for p, value in plain.items()}


def _by_date(plain: Mapping[str, int], topic: str) -> dict[date, int]:
    return {date.fromisoformat(day): count for day, count in plain.items()}


def _range(plain: Sequence[int], topic: str) -> OffsetRange:
    return OffsetRange(TopicPartition(topic, plain[0]), plain[1], plain[2])


_READ: Mapping[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("positions", "ends", "returned"), _by_partition),
    **dict.fromkeys(("rows_by_date", "letters_by_date", "removed_by_date"), _by_date),
    **dict.fromkeys(("gaps", "declared_losses"), lambda plain, topic: tuple(_range(r, topic) for r in plain)),
    **dict.fromkeys(("unknown", "misfits"), lambda of, _: FieldCounts(of["messages"], of["named"], of["others"])),
    "last_read": lambda plain, topic: _by_partition(plain, topic, lambda m: LastRead(*m)),
    "withdrawn": lambda plain, topic: _by_partition(plain, topic, lambda u: Untraced(*u)),
    "ranges": lambda plain, topic: tuple(RangeCounts(_range(r, topic), *r[3:_COUNTED]) for r in plain),
    "dead_letters_at": lambda plain, _: DeadLettersAt(plain["table_id"], plain["version"]),
    "planned_at": lambda plain, _: datetime.fromisoformat(plain),
    "dates": lambda plain, _: tuple(map(date.fromisoformat, plain)),
    "ages": lambda plain, _: {int(bucket): count for bucket, count in plain.items()},
    "routes": Routes.from_plain,
}
"""What is not in the log as it is in an entry, by the entry's topic."""
