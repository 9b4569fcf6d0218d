"""What was put into a stream of Kinesis, and how the ledger of its table goes through it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.messages.kinesis.shards import number_of
from kdi_assets.streams.ledger.entry import LedgerEntry, RangeCounts
from kdi_assets.streams.ledger.history import live_history

Shard = tuple[int, int]
"""Epoch, and the number of the shard."""
Between = tuple[int, int]
"""Two moments, in milliseconds since 1970."""


@dataclass(frozen=True)
class PutRecord:
    """One user record, as the answer to its put tells it.

    Attributes:
        sequence: Of its record; user records of one aggregate share it.
        put_at: The server's time after the call.
        epoch: How often the stream was created again before.
    """

    shard: int
    sequence: int
    key: str
    value: bytes
    put_at: datetime
    epoch: int = 0


Numbered = Mapping[Shard, Sequence[PutRecord | None]]
"""The record of each number, from 0; ``None`` stands for a loss that someone accepted."""


@dataclass
class LedgerReading:
    """What the ledger says was read.

    Attributes:
        records: All that was put, in the order of the sequence numbers.
        lost: Records that were passed over, and when those arrived that the accepted losses name.
    """

    records: Mapping[Shard, Sequence[PutRecord]]
    numbered: dict[Shard, list[PutRecord | None]] = field(default_factory=lambda: defaultdict(list))
    lost: list[tuple[PutRecord, Sequence[Between]]] = field(default_factory=list)
    _losses: dict[Shard, list[Between]] = field(default_factory=lambda: defaultdict(list))

    def unread(self, shard: Shard) -> Sequence[PutRecord]:
        """The records after the last one read."""
        last = next((record.sequence for record in reversed(self.numbered[shard]) if record), -1)
        return [record for record in self.records.get(shard, ()) if record.sequence > last]

    def decided(self, shard: Shard, position: int, lost: Between | None) -> None:
        """Somebody set the position: after a loss, or back."""
        numbered = self.numbered[shard]
        if lost:
            assert position == len(numbered) + 1, f"missing: a loss leads from {len(numbered)} to {position} in {shard}"
            numbered.append(None)
            self._losses[shard].append(lost)
        elif position < len(numbered):
            del numbered[position:]
            self._losses[shard].clear()

    def read(self, shard: Shard, counts: RangeCounts, first: str, last: str) -> None:
        """A drain read a range: its records follow those before, and after a loss those that are gone."""
        numbered, where = self.numbered[shard], f"{counts.range} of {shard}"
        assert len(numbered) == counts.range.start, f"missing: {where} begins, and {len(numbered)} were read"
        unread = list(self.unread(shard))
        if losses := self._losses.pop(shard, None):
            passed = [record for record in unread if record.sequence < int(first)]
            self.lost += [(record, losses) for record in passed]
            del unread[: len(passed)]
        taken = unread[: counts.range.offset_count]
        edges = (str(taken[0].sequence), str(taken[-1].sequence)) if taken else ("", "")
        assert (first, last) == edges, f"missing: {where} is from {first} to {last}, and {edges} were put"
        assert len(taken) == counts.range.offset_count, f"missing: {where} has {len(taken)} records"
        numbered += taken


def read_by_ledger(
    entries: Iterable[LedgerEntry],
    log: Iterable[PutRecord],
    *,
    epochs: Mapping[str, int],
    parents: Mapping[Shard, Collection[int]],
) -> LedgerReading:
    """Follow the ledger: spans follow each other without a hole, as the records were put, and bookmarks are at their
    ends; parents are read before their children.

    Args:
        entries: The live ones, the oldest first.
        log: All that was put.
        epochs: Of each topic id.
        parents: Of each shard that was made by a split or a merge.

    Raises:
        AssertionError: Something else was read.
    """
    reading = LedgerReading(by_shard(log))
    for entry in entries:
        epoch = epochs[entry.topic_id]
        lost = {r.topic_partition for r in entry.declared_losses}
        if entry.kind == "resolve":
            for tp, position in entry.positions.items():
                reading.decided((epoch, tp.partition), position, entry.lost_between[tp] if tp in lost else None)
        for counts in entry.ranges if entry.kind == "drain" else ():
            tp, span = counts.range.topic_partition, entry.spans[counts.range.topic_partition]
            verdicts = counts.became_rows + counts.dead_letters + counts.filtered
            assert span.records == verdicts == counts.range.offset_count, f"missing: {span}, {counts}"
            reading.read((epoch, tp.partition), counts, span.first, span.last)
        if entry.kind == "drain":
            assert {r.range.topic_partition for r in entry.ranges} == entry.spans.keys()
            _assert_parents_ended(entry, epoch, parents)
        _assert_positions(entry, epoch, reading)
    return reading


def _assert_positions(entry: LedgerEntry, epoch: int, reading: LedgerReading) -> None:
    for tp, position in entry.positions.items():
        if position < 0:
            continue  # of a stream before this one
        numbered = reading.numbered[epoch, tp.partition]
        where = f"{tp} in version {entry.version} ({entry.kind})"
        assert position == len(numbered), f"missing: {where} has the position {position} of {len(numbered)}"
        last = next((str(record.sequence) for record in reversed(numbered) if record), "")
        found = entry.bookmarks[tp].sequence if tp in entry.bookmarks else ""  # a shard that nobody looked at has none
        assert found == last, f"{where} has the bookmark {found}, the last record is {last}"


def _assert_parents_ended(entry: LedgerEntry, epoch: int, parents: Mapping[Shard, Collection[int]]) -> None:
    """A child is read once its parents are at their end: records of a key stay in order."""
    for tp in entry.spans:
        for parent in parents.get((epoch, tp.partition), ()):
            of_parent = TopicPartition(tp.topic, parent)
            ended = of_parent not in entry.positions or entry.bookmarks[of_parent].ended
            assert ended and of_parent not in entry.spans, f"out of order: {tp} was read before its parent {parent}"


def live_entries(stream: Stream, lake: str) -> Sequence[LedgerEntry]:
    """The live entries of the ledger, the oldest first."""
    history = live_history(stream.table_uri(lake), stream.app_id, archive_uri=stream.archive_uri(lake))
    assert history
    return history.entries


def by_shard(log: Iterable[PutRecord]) -> dict[Shard, list[PutRecord]]:
    """The records by epoch and shard, in the order of their sequence numbers."""
    shards: dict[Shard, list[PutRecord]] = defaultdict(list)
    for record in sorted(log, key=lambda record: record.sequence):
        shards[record.epoch, record.shard].append(record)
    return shards


def lineage(shards: Iterable[Mapping[str, Any]]) -> dict[int, tuple[int, ...]]:
    """The parents of the shards that ListShards names."""
    found = {}
    for shard in shards:
        ids = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
        found[number_of(shard["ShardId"])] = tuple(number_of(each) for each in ids if each)
    return {number: of for number, of in found.items() if of}


def moment(seconds: float) -> datetime:
    """The server's time as a moment."""
    return datetime.fromtimestamp(seconds, UTC)
