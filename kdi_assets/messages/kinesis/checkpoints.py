"""Begin where another reader of a stream ended, at the checkpoints that it left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from kdi_assets.documents.model.connections.kinesis import AT_END, AT_HORIZON
from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kinesis.client import milliseconds
from kdi_assets.messages.kinesis.errors import CheckpointUnusable
from kdi_assets.messages.kinesis.look_ahead import record_of
from kdi_assets.messages.kinesis.shards import list_shards
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.messages.topic_state import TopicState


def at_checkpoints(
    client: Any, topic: TopicState, checkpoints: Mapping[str, str], oldest: Bookmark
) -> dict[TopicPartition, Bookmark]:
    """The first bookmark of each shard that Kinesis lists.

    A shard without a checkpoint was read if a descendant has one, and is unread if it descends from one that has one.

    Args:
        checkpoints: By shard id: the sequence number of the last record read, ``AT_END`` or ``AT_HORIZON``.
        oldest: Of a shard that begins at its oldest record.

    Raises:
        CheckpointUnusable: A record is gone, a shard is not listed before it was read, or nobody says where one begins.
    """
    shards = {shard.number: shard for shard in list_shards(client, topic.topic)}
    given = {shard.number: checkpoints[shard.id] for shard in shards.values() if shard.id in checkpoints}

    def unusable(shard: str, said: str) -> CheckpointUnusable:
        return CheckpointUnusable(stream=topic.topic, shard=shard, said=said)

    @cache
    def has_read_parents(number: int) -> bool:
        parents = shards[number].parents if number in shards else ()
        return any(parent in given or has_read_parents(parent) for parent in parents)

    def above(numbers: set[int]) -> set[int]:
        parents = {parent for number in numbers if number in shards for parent in shards[number].parents}
        return parents | above(parents) if parents else parents

    def mark(number: int) -> Bookmark:
        shard = shards[number].id
        at = given.get(number) or (AT_END if number in read else AT_HORIZON)
        if number not in given and number not in read and not has_read_parents(number):
            raise unusable(shard, f"has no checkpoint; give it one, or {AT_HORIZON}, or {AT_END}")
        if at == AT_HORIZON:
            return oldest
        if at == AT_END and shards[number].is_open:
            raise unusable(
                shard, f"is open, so nobody has read it to its end: {AT_END} would leave out what is to come"
            )
        if at == AT_END:
            return replace(oldest, ended=True)
        until = milliseconds(topic.as_of) if topic.as_of else 0
        record = record_of(client, topic.topic, shard, Bookmark(at, arrived=until))
        if record is None:
            raise unusable(shard, f"has no record {at} that can be read: records after it may be gone, too")
        return replace(oldest, sequence=at, arrived=record.arrived, digest=record.digest, seen_at=record.arrived)

    listed = {shard.id for shard in shards.values()}
    for shard, at in checkpoints.items():
        if shard not in listed and at != AT_END:
            raise unusable(shard, "is not a shard of the stream, or its records are gone")
    read = above(set(given))
    tps = {number: TopicPartition(topic.topic, number) for number in sorted(shards)}
    return {tp: mark(number) for number, tp in tps.items() if tp in topic.partitions}
