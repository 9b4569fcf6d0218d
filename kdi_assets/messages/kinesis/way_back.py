"""Where positions can be set back to: only to edges of spans, where the ledger knows the bookmark."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.held import SetBack
from kdi_assets.messages.kinesis.client import LATE_MS, milliseconds, translated
from kdi_assets.messages.kinesis.errors import SpanForgotten
from kdi_assets.messages.kinesis.held_spans import held_spans
from kdi_assets.messages.kinesis.look_ahead import HeldRecords, first_since, look_ahead, of_each, oldest_record
from kdi_assets.messages.kinesis.shards import ListedShard, id_of
from kdi_assets.messages.kinesis.spans import NumberedSpan, bookmark_at, spans_back
from kdi_assets.messages.recorded import RecordedEntry
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.messages.topic_state import TopicState

FIRST_MOMENT = 1
"""In milliseconds since 1970: Kinesis has no records of then, and takes no earlier moment."""


@dataclass(frozen=True, slots=True)
class SpansBack:
    """The spans of a stream; the methods are those of ``WayBack``.

    Attributes:
        shards: Those that Kinesis lists.
        entries: The live ones, newest first.
        table: As of ``look_ahead``.
    """

    connection: KinesisRegion
    client: Any
    topic: TopicState
    shards: Collection[ListedShard]
    held: HeldRecords
    entries: Sequence[RecordedEntry]
    table: str

    def offsets_at(self, moment: datetime, of: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        spans, at = self._spans(), max(FIRST_MOMENT, milliseconds(moment))

        def find(tp: TopicPartition) -> int | None:
            shard = self.topic.topic, id_of(tp.partition)
            first = first_since(self.client, *shard, at, until=self._until)
            if first is None:
                return None
            oldest = oldest_record(self.client, *shard, until=self._until)
            if oldest == first and first.arrived >= at:
                return 0  # others that arrived then or later may be gone: those of the first span as well
            return next((s.range.start for s in spans[tp] if int(s.span.last) >= int(first.sequence)), None)

        with translated(self.connection, self.topic.topic):
            found = of_each(sorted(spans.keys() & set(of)), find)
        return {tp: offset for tp, offset in found.items() if offset is not None}

    def to(self, offsets: Mapping[TopicPartition, int]) -> SetBack:
        spans = self._spans()
        found = {tp: edge_at(spans[tp], offset) if tp in spans else offset for tp, offset in offsets.items()}
        edges = {tp: at for tp, at in found.items() if at is not None}
        children = self._children_of(edges)
        inside = sorted((tp, at) for tp, at in edges.items() if at != offsets[tp] and tp not in children)
        notes = [_note(tp, offsets[tp], at) for tp, at in inside]
        edges |= {tp: 0 for tp in children if self._position(tp)}
        notes += [f"{tp} begins again, because it continues {of}" for tp, of in sorted(children.items()) if tp in edges]
        with translated(self.connection, self.topic.topic):
            ranges = [OffsetRange(tp, min(at, offsets.get(tp, at)), self._position(tp)) for tp, at in edges.items()]
            known = {tp: spans.get(tp, ()) for tp in edges}
            held = held_spans(self.client, self.topic, self.shards, known, ranges, self._newest, table=self.table)
            gone = {}
            for r in ranges:
                tp, readable = r.topic_partition, [s.range.start for s in held.spans.get(r.topic_partition, ())]
                if r.start < edges[tp] == spans[tp][0].range.start or edges[tp] not in readable:
                    gone[tp] = readable[0] if readable else self._position(tp)
            if gone:
                return SetBack(edges, {}, gone=gone)
            by_start = {(tp, s.range.start): s for tp, of_shard in spans.items() for s in of_shard}
            marks = of_each(sorted(edges), lambda tp: self._bookmark(tp, by_start[tp, edges[tp]]))
        gone = {tp: self._position(tp) for tp, mark in marks.items() if mark is None}
        of_edges = {tp: mark for tp, mark in marks.items() if mark}
        newest, left = self._newest, children.keys() - edges.keys()
        of_empty = {tp: replace(newest[tp], ended=False) for tp in left if tp in newest}
        return SetBack(edges, {**of_empty, **of_edges}, tuple(notes), gone)

    @property
    def _until(self) -> int:
        return milliseconds(self.topic.as_of) if self.topic.as_of else 0

    @property
    def _newest(self) -> Mapping[TopicPartition, Bookmark]:
        return self.entries[0].bookmarks if self.entries else {}

    def _position(self, tp: TopicPartition) -> int:
        return max(0, self.entries[0].positions.get(tp, 0)) if self.entries else 0  # less is of an earlier stream

    def _spans(self) -> dict[TopicPartition, list[NumberedSpan]]:
        """The spans of the shards that are listed, oldest first."""
        found: dict[TopicPartition, list[NumberedSpan]] = {}
        for numbered in spans_back(self.entries):
            if numbered.range.topic_partition in self.topic.partitions:
                found.setdefault(numbered.range.topic_partition, []).append(numbered)
        return {tp: newest_first[::-1] for tp, newest_first in found.items()}

    def _children_of(self, parents: Collection[TopicPartition]) -> dict[TopicPartition, TopicPartition]:
        """The shards that continue others, and those that continue these, each with one that it continues.

        A child is read after its parents, or a key's records come in another order than they were put.
        """
        found: dict[TopicPartition, TopicPartition] = {}
        for tp, parent in _lineage(self.topic.topic, self.shards):
            if parent in parents or parent in found:
                found[tp] = parent
        return found

    def _bookmark(self, tp: TopicPartition, first: NumberedSpan) -> Bookmark | None:
        """The bookmark before a span, such that a drain goes on from it; ``None`` if the span's first record is gone.

        Raises:
            SpanForgotten: The entry before the span is gone.
            BookmarkDiffers: As ``look_ahead``.
        """
        shard, start = id_of(tp.partition), first.range.start
        before = bookmark_at(self.entries, tp, start)
        if before is None:
            raise SpanForgotten(stream=tp.topic, shard=shard, start=start, end=first.range.end, table=self.table)
        before = replace(before, held_seconds=self.held.seconds)
        # Whatever retention took after this record, the span's first record was the next one.
        now = replace(before, seen_at=self._until)
        ahead = look_ahead(self.client, tp.topic, shard, now, until=self._until, held=self.held, table=self.table)
        if ahead.first is None or int(ahead.first.sequence) > int(first.span.first):
            return None
        return replace(before, seen_at=ahead.first.arrived - LATE_MS)


def edge_at(spans: Sequence[NumberedSpan], offset: int) -> int | None:
    """The start of the span that an offset lies in; of one that no span has, that of the next; ``None`` without one.

    Args:
        spans: Oldest first.
    """
    return next((s.range.start for s in spans if s.range.end > offset), None)


def _note(tp: TopicPartition, offset: int, edge: int) -> str:
    where = "inside" if edge < offset else "before"
    return f"offset {offset} of {tp} is {where} the records that a drain read from {edge} on, which are read as a whole"


def _lineage(stream: str, shards: Collection[ListedShard]) -> Iterator[tuple[TopicPartition, TopicPartition]]:
    """Each shard with each of its parents, in the order of their numbers: a child's is higher."""
    for shard in sorted(shards, key=lambda shard: shard.number):
        for parent in shard.parents:
            yield TopicPartition(stream, shard.number), TopicPartition(stream, parent)
