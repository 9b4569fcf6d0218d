"""The shards of a stream: which there are, which may be read now, and from where on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kinesis.errors import BookmarkMissing
from kdi_assets.messages.kinesis.look_ahead import Ahead, of_each
from kdi_assets.messages.recorded import RecordedState
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.messages.topic_state import TopicState

PREFIX = "shardId-"
UNKNOWN = 1
"""A moment that every retention has passed, in milliseconds since 1970."""


@dataclass(frozen=True, slots=True)
class ListedShard:
    """A shard that Kinesis still lists.

    Attributes:
        hash_keys: First and last, both inclusive.
        parents: Numbers of the shards that it was made of: none, one after a split, two after a merge.
        is_open: It takes records.
    """

    id: str
    hash_keys: tuple[int, int]
    parents: tuple[int, ...] = ()
    is_open: bool = True

    @property
    def number(self) -> int:
        """The number in its id, which is its topic partition."""
        return number_of(self.id)


def number_of(shard_id: str) -> int:
    """The number in a shard's id."""
    return int(shard_id.removeprefix(PREFIX))


def id_of(number: int) -> str:
    """The id of a shard."""
    return f"{PREFIX}{number:012d}"


def list_shards(client: Any, stream: str) -> list[ListedShard]:
    """The shards that Kinesis lists, ordered by their numbers; expired ones are not listed."""
    found, asked = list[ListedShard](), {"StreamName": stream}
    while asked:
        answer = client.list_shards(**asked)
        found += map(_shard, answer["Shards"])
        # Kinesis refuses a name beside a token, which boto3's paginator sends.
        asked = {"NextToken": answer["NextToken"]} if answer.get("NextToken") else {}
    return sorted(found, key=lambda shard: shard.number)


def _shard(listed: Mapping[str, Any]) -> ListedShard:
    parents = (listed.get("ParentShardId"), listed.get("AdjacentParentShardId"))
    span = listed["HashKeyRange"]
    hash_keys = int(span["StartingHashKey"]), int(span["EndingHashKey"])
    is_open = "EndingSequenceNumber" not in listed["SequenceNumberRange"]
    of = tuple(number_of(parent) for parent in parents if parent)
    return ListedShard(listed["ShardId"], hash_keys, of, is_open)


def ready(shards: Collection[ListedShard], bookmarks: Mapping[int, Bookmark]) -> list[ListedShard]:
    """The shards that may be read: not ended, and each parent is ended or no longer listed.

    A producer's records of one partition key move from parents to children: read in this order, they stay in order.

    Args:
        bookmarks: By number.
    """
    ended = {number for number, mark in bookmarks.items() if mark.ended}
    unread = {shard.number for shard in shards} - ended
    return [shard for shard in shards if shard.number in unread and unread.isdisjoint(shard.parents)]


def bookmarks_of(
    ledger: RecordedState, topic: TopicState, shards: Mapping[TopicPartition, ListedShard], *, table: str
) -> dict[TopicPartition, Bookmark]:
    """The bookmark of every shard; a shard that appeared later begins at its oldest record.

    Its records arrived after all that was read of its parents. If these came and went unseen, nobody knows since when
    it has records.

    Raises:
        BookmarkMissing: The entry is gone, or has no bookmark of a shard that was read.
    """
    known = ledger.entry.bookmarks if ledger.entry else {}

    def of(tp: TopicPartition) -> Bookmark:
        if tp in known:
            return known[tp]
        parents = [of(TopicPartition(tp.topic, number)) for number in (shards[tp].parents if tp in shards else ())]
        last = max(parents, key=lambda mark: mark.complete_until, default=Bookmark(seen_at=UNKNOWN))
        return Bookmark(seen_at=last.complete_until, held_seconds=last.held_seconds)

    found = {tp: of(tp) if known else Bookmark() for tp in topic.partitions}
    for tp in found:
        if ledger.entry is None or (ledger.positions.get(tp) and tp not in known):
            raise BookmarkMissing(stream=topic.topic, shard=id_of(tp.partition), table=table)
    return found


def look_at_ready(
    topic: TopicState,
    shards: Collection[ListedShard],
    bookmarks: Mapping[TopicPartition, Bookmark],
    look: Callable[[TopicPartition], Ahead],
) -> dict[TopicPartition, Ahead]:
    """What follows the bookmark of each shard that may be read; also of the children of those that end so."""
    name, found = topic.topic, dict[TopicPartition, Ahead]()
    while True:
        ended = {tp for tp, ahead in found.items() if ahead.ended}
        now = {tp.partition: replace(mark, ended=mark.ended or tp in ended) for tp, mark in bookmarks.items()}
        new = [tp for shard in ready(shards, now) if (tp := TopicPartition(name, shard.number)) not in found]
        if not new:
            return found
        found |= of_each(new, look)
