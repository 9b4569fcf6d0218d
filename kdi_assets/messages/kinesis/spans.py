"""Spans by offset: the way from the numbers of a Kinesis table back to the records of its shards."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.messages.recorded import RecordedEntry
from kdi_assets.messages.shard_bookmarks import Bookmark, Span


@dataclass(frozen=True, slots=True)
class NumberedSpan:
    """A span that counts: no later decision set the position back over it.

    Attributes:
        range: The numbers of its records.
        version: The commit that read it.
        until: Its records arrived before, in milliseconds since 1970; not quite, because arrival is not in order.
    """

    range: OffsetRange
    span: Span
    version: int
    until: int


def spans_back(entries: Iterable[RecordedEntry]) -> Iterator[NumberedSpan]:
    """The spans of live entries that count, newest first.

    Args:
        entries: Newest first; those of an earlier stream of the name, and older ones, are not looked at.
    """
    topic_id, upto = "", dict[TopicPartition, int]()
    for entry in entries:
        if entry.topic_id != (topic_id := topic_id or entry.topic_id):
            return
        ranges = {r.range.topic_partition: r.range for r in entry.ranges}
        for tp, span in entry.spans.items():
            # Positions are set back to edges of spans only, so that a span counts as a whole or not at all.
            if ranges[tp].end <= upto.get(tp, ranges[tp].end):
                yield NumberedSpan(ranges[tp], span, entry.version, entry.bookmarks[tp].complete_until)
        for tp, position in entry.positions.items():
            before = ranges[tp].start if tp in ranges else position
            upto[tp] = min(upto.get(tp, before), before)


def spans_of(
    entries: Iterable[RecordedEntry], ranges: Collection[OffsetRange]
) -> dict[TopicPartition, list[NumberedSpan]]:
    """The spans in which the offsets of ranges lie, and those after them, oldest first.

    Args:
        entries: As for ``spans_back``; read only as far back as the ranges need it.
    """
    found: dict[TopicPartition, list[NumberedSpan]] = {r.topic_partition: [] for r in ranges}
    left = {tp: min(r.start for r in ranges if r.topic_partition == tp) for tp in found}
    for numbered in spans_back(entries) if left else ():
        tp, start = numbered.range.topic_partition, numbered.range.start
        if tp not in left:
            continue
        found[tp].append(numbered)
        if start <= left[tp]:
            del left[tp]
        if not left:
            break
    return {tp: spans[::-1] for tp, spans in found.items()}


def after_losses(entries: Iterable[RecordedEntry], r: OffsetRange) -> OffsetRange:
    """The range without the offsets at its start that were given up: they stand for records that are gone, in no span.

    Args:
        entries: As for ``spans_back``.
    """
    topic_id, lost = "", list[OffsetRange]()
    for entry in entries:
        if entry.topic_id != (topic_id := topic_id or entry.topic_id):
            break
        lost += (loss for loss in entry.declared_losses if loss.topic_partition == r.topic_partition)
    for loss in sorted(lost, key=lambda loss: loss.start):
        if loss.start <= r.start < loss.end:
            r = replace(r, start=min(loss.end, r.end))
    return r


def bookmark_at(entries: Iterable[RecordedEntry], tp: TopicPartition, position: int) -> Bookmark | None:
    """The bookmark of a position that the shard had after a live entry that still counts; ``None`` if there is none.

    Args:
        entries: Newest first.
    """
    topic_id, upto = "", None
    for entry in entries:
        if entry.topic_id != (topic_id := topic_id or entry.topic_id):
            return None
        at = max(0, entry.positions.get(tp, 0))  # `RETIRED` with an earlier stream: this one's shard came later
        if at == position and at <= (at if upto is None else upto):
            return entry.bookmarks.get(tp, Bookmark())
        upto = at if upto is None else min(upto, at)
    return None
