"""What accept-loss gives up of a shard: when the records arrived that may be missing, and where reading goes on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kinesis.client import LATE_MS
from kdi_assets.messages.kinesis.errors import BookmarkDiffers, ShardTrimmed
from kdi_assets.messages.kinesis.look_ahead import Ahead, HeldRecords, look_ahead, oldest_after, record_of
from kdi_assets.messages.kinesis.shards import UNKNOWN, bookmarks_of, id_of, list_shards, look_at_ready
from kdi_assets.messages.recorded import RecordedState
from kdi_assets.messages.shard_bookmarks import Bookmark, Loss
from kdi_assets.messages.topic_state import TopicState

GRACE_MS = 3_600_000
"""Retention goes on until the next drain reads: what it takes so long after the decision is a part of the loss."""


def losses(
    client: Any, topic: TopicState, ledger: RecordedState, *, until: int, held: HeldRecords, table: str
) -> dict[TopicPartition, Loss]:
    """The loss of each shard that a drain refuses.

    A shard that ends with its loss makes its children ready: if they are refused as well, theirs are found too.

    Args:
        until: As of ``look_ahead``.
        table: As of ``look_ahead``.
    """
    name, found = topic.topic, dict[TopicPartition, Loss]()
    listed = {TopicPartition(name, shard.number): shard for shard in list_shards(client, name)}
    shards = {tp: shard for tp, shard in listed.items() if tp in topic.partitions}
    bookmarks = bookmarks_of(ledger, topic, shards, table=table)

    def look(tp: TopicPartition) -> Ahead:
        at = client, name, id_of(tp.partition), bookmarks[tp]
        try:
            return look_ahead(*at, until=until, held=held, table=table, is_open=shards[tp].is_open)
        except ShardTrimmed:
            found[tp] = _loss_of_trimmed(*at, until=until, held=held)
        except BookmarkDiffers:
            found[tp] = _loss_of_other(*at, until=until, held=held)
        return Ahead(ended=found[tp].bookmark.ended)

    look_at_ready(topic, shards.values(), bookmarks, look)
    known = ledger.entry.bookmarks if ledger.entry else {}
    for tp in ledger.vanished(topic.partitions):
        found[tp] = _loss_of_ended(known.get(tp, Bookmark(seen_at=UNKNOWN)), held)
    # Nobody knows since when a shard has records whose parents came and went unseen: later than the known ones had any.
    first = min((mark.complete_until for mark in known.values()), default=UNKNOWN)
    return {tp: replace(loss, since=first) if loss.since == UNKNOWN else loss for tp, loss in sorted(found.items())}


def _loss_of_trimmed(
    client: Any, stream: str, shard: str, bookmark: Bookmark, *, until: int, held: HeldRecords
) -> Loss:
    """The loss of a shard whose bookmark retention has passed.

    Reading goes on at the oldest record, and never at or before the one that was read last. The next drain refuses
    again if retention has gone on for longer than ``GRACE_MS``, and beyond the oldest record of now.

    Args:
        until: As of ``look_ahead``.
    """
    found = oldest_after(client, stream, shard, bookmark, until=until)
    if found.ended:
        return _loss_of_ended(bookmark, held)
    oldest = found.first.arrived if found.first else until
    lost_until = max(oldest, held.since + GRACE_MS)
    seen_at = max(bookmark.complete_until, lost_until - LATE_MS)
    mark = Bookmark(bookmark.sequence, bookmark.at, seen_at=seen_at, held_seconds=held.seconds)
    return Loss(bookmark.complete_until, lost_until, mark)


def _loss_of_ended(bookmark: Bookmark, held: HeldRecords) -> Loss:
    """The loss of a shard that has no record any more, and gets none: what its children lost, they lost after it."""
    lost_until = max(bookmark.complete_until, held.since)
    return Loss(bookmark.complete_until, lost_until, replace(bookmark, ended=True))


def _loss_of_other(client: Any, stream: str, shard: str, bookmark: Bookmark, *, until: int, held: HeldRecords) -> Loss:
    """The loss of a shard that has another record in the place of the one that was read last.

    Reading goes on after the other one: what is before it may have been read.

    Args:
        until: As of ``look_ahead``.
    """
    there = record_of(client, stream, shard, bookmark)
    if there is None:  # retention took it just now
        return _loss_of_trimmed(client, stream, shard, bookmark, until=until, held=held)
    seen_at = min(bookmark.seen_at, there.arrived)
    mark = replace(bookmark, arrived=there.arrived, digest=there.digest, seen_at=seen_at, held_seconds=held.seconds)
    return Loss(min(held.since, there.arrived), there.arrived, mark)
