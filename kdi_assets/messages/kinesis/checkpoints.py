"""Begin where another reader of a stream ended, at the checkpoints that it left."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from kdi_assets.documents.model.connections.kinesis import AT_END, AT_HORIZON
from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kinesis.client import milliseconds
from kdi_assets.messages.kinesis.errors import CheckpointUnusable
from kdi_assets.messages.kinesis.look_ahead import record_of
from kdi_assets.messages.kinesis.shards import ListedShard, list_shards
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
    _refuse_unknown(topic.topic, checkpoints, {shard.id for shard in shards.values()})
    given = {shard.number: checkpoints[shard.id] for shard in shards.values() if shard.id in checkpoints}
    read = _ancestors(shards, given)
    bookmarks = {}
    for number, shard in sorted(shards.items()):
        if (tp := TopicPartition(topic.topic, number)) not in topic.partitions:
            continue
        if number not in given and number not in read and given.keys().isdisjoint(_ancestors(shards, [number])):
            said = f"has no checkpoint; give it one, or {AT_HORIZON}, or {AT_END}"
            raise CheckpointUnusable(stream=topic.topic, shard=shard.id, said=said)
        at = given.get(number, AT_END if number in read else AT_HORIZON)
        bookmarks[tp] = _first_bookmark(client, topic, shard, at, oldest)
    return bookmarks


def _refuse_unknown(stream: str, checkpoints: Mapping[str, str], listed: Collection[str]) -> None:
    """Refuse the checkpoint of a shard that Kinesis does not list; one that was read to its end may be gone."""
    for shard, at in checkpoints.items():
        if shard not in listed and at != AT_END:
            said = "is not a shard of the stream, or its records are gone"
            raise CheckpointUnusable(stream=stream, shard=shard, said=said)


def _ancestors(shards: Mapping[int, ListedShard], numbers: Collection[int]) -> set[int]:
    """The shards that these were made of, and so on; those of a shard that is not listed are unknown."""
    parents = {parent for number in numbers if number in shards for parent in shards[number].parents}
    return parents | _ancestors(shards, parents) if parents else parents


def _first_bookmark(client: Any, topic: TopicState, shard: ListedShard, at: str, oldest: Bookmark) -> Bookmark:
    """The bookmark of a shard that was read up to a checkpoint.

    Args:
        at: The checkpoint: a sequence number, ``AT_END`` or ``AT_HORIZON``.
        oldest: As of ``at_checkpoints``.
    """
    if at == AT_HORIZON:
        return oldest
    if at == AT_END and shard.is_open:
        said = f"is open, so nobody has read it to its end: {AT_END} would leave out what is to come"
        raise CheckpointUnusable(stream=topic.topic, shard=shard.id, said=said)
    if at == AT_END:
        return replace(oldest, ended=True)
    until = milliseconds(topic.as_of) if topic.as_of else 0
    record = record_of(client, topic.topic, shard.id, Bookmark(at, arrived=until))
    if record is None:
        said = f"has no record {at} that can be read: records after it may be gone, too"
        raise CheckpointUnusable(stream=topic.topic, shard=shard.id, said=said)
    return replace(oldest, sequence=at, arrived=record.arrived, digest=record.digest, seen_at=record.arrived)
