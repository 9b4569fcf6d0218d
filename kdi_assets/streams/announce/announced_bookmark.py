"""Bookmarks: how far each table is announced, in a compacted topic beside the one with the announcements.

A bookmark is sent in the transaction of the announcements that it counts, so that one is there exactly if the others
are. It is not read from the announcements themselves: their topic deletes old messages, and the versions of a table
that was idle for that long would be announced once more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from time import monotonic, sleep

from kdi_assets.documents.model.stream import Cluster, OffsetRange, Stream, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.messages.kafka.errors import TopicMissing
from kdi_assets.messages.kafka.messages import visible_messages
from kdi_assets.messages.kafka.topic import read_topic
from kdi_assets.messages.kafka.topic_config import create_topic, topic_configs
from kdi_assets.messages.topic_state import BrokerOffsets, TopicState
from kdi_assets.streams.announce.errors import (
    BookmarkOfNewerRelease,
    BookmarksNotKept,
    BookmarksScattered,
    BookmarkUnreadable,
    TransactionOpen,
)
from kdi_assets.streams.announce.table_changes import LastAnnounced

SUFFIX = ".announced"
FORMAT = 1
OPEN_SECONDS = 25.0
"""How long to wait for open transactions: longer than the brokers keep that of an announcer that died."""
FIRST_WINDOW = 500
"""Offsets that are searched first, from the end; each following window is ten times as long."""
_SETTINGS = {"cleanup.policy": "compact", "segment.ms": str(3_600_000), "min.cleanable.dirty.ratio": "0.1"}


def bookmark_topic(topic: str) -> str:
    """The topic of the bookmarks of a topic of announcements."""
    return f"{topic}{SUFFIX}"


def bookmark_to_json(last: LastAnnounced) -> str:
    """The value of a bookmark's message; its key is the table's path."""
    return json.dumps({"kdi_announced": FORMAT, **asdict(last)}, separators=(",", ":"))


def ensure_bookmark_topic(stream: Stream, cluster: Cluster, topic: str) -> None:
    """Create the topic if it is missing, and refuse one that does not keep the newest bookmark of every table.

    Raises:
        BookmarksNotKept: It deletes messages by age or size.
        BookmarksScattered: It has several partitions.
        KdiError: The brokers do not answer or refuse.
    """
    config = topic_configs(cluster, [topic])[topic]
    if isinstance(config, TopicMissing):
        create_topic(cluster, topic, settings=_SETTINGS)
        return
    refuse_bookmark_topic(stream, read_topic(cluster, topic), config)


def refuse_bookmark_topic(stream: Stream, topic: TopicState, config: Mapping[str, str] | KdiError) -> None:
    """Refuse a topic that does not keep the newest bookmark of every table; raises like ``ensure_bookmark_topic``."""
    if isinstance(config, KdiError):
        raise config
    if (policy := config.get("cleanup.policy", "unknown")) != "compact":
        raise BookmarksNotKept(stream=stream.name, topic=topic.topic, policy=policy)
    if (count := len(topic.partitions)) != 1:
        raise BookmarksScattered(stream=stream.name, topic=topic.topic, topic_partitions=count)


def read_bookmark(stream: Stream, cluster: Cluster, topic: str) -> LastAnnounced | None:
    """The bookmark of the stream's table; ``None`` if nothing was ever announced.

    Call it only after ``init_transactions``: an earlier announcer of the table cannot commit any more then, and what
    it has committed lies below the high watermark that is read here.

    Raises:
        TransactionOpen: A transaction of another table's announcer does not end.
        BookmarkOfNewerRelease, BookmarkUnreadable: This release does not know the bookmark's format.
        KdiError: The brokers do not answer or refuse.
    """
    tp = TopicPartition(topic, 0)
    return _newest(stream, cluster, tp, _without_open_transactions(stream, cluster, tp))


@dataclass(frozen=True, slots=True)
class _Seen:
    """What this process has read of a topic of bookmarks, up to ``end``: by key the newest value."""

    topic_id: str
    end: int
    newest: Mapping[bytes | None, bytes | None] = field(default_factory=dict)


_SEEN: dict[tuple[str, str], _Seen] = {}
"""By cluster's addresses and topic."""


def look_at_bookmark(stream: Stream, cluster: Cluster, topic: TopicState) -> LastAnnounced | None:
    """The same without a wait, for a look that announces nothing: an open transaction may hide a newer bookmark.

    The first look of a process reads the topic's bookmarks of all tables, later ones what came since.

    Raises:
        KdiError: The brokers do not answer or refuse, or the bookmark cannot be read.
    """
    value = _seen(cluster, topic).newest.get(stream.name.encode())
    return None if value is None else _parse(stream, topic.topic, value)


def _seen(cluster: Cluster, topic: TopicState) -> _Seen:
    tp = TopicPartition(topic.topic, 0)
    offsets, key = topic.partitions[tp], (cluster.bootstrap_servers, topic.topic)
    seen = _SEEN.get(key)
    if seen is None or seen.topic_id != topic.topic_id or seen.end > offsets.end:
        seen = _Seen(topic.topic_id, offsets.earliest)
    start = max(seen.end, offsets.earliest)
    if start < offsets.end:
        found = {m.offset: m for m in visible_messages(cluster, {tp: [OffsetRange(tp, start, offsets.end)]})}
        newest = {found[at].key: found[at].value for at in sorted(found)}
        seen = _Seen(topic.topic_id, offsets.end, {**seen.newest, **newest})
    _SEEN[key] = seen
    return seen


def _newest(stream: Stream, cluster: Cluster, tp: TopicPartition, offsets: BrokerOffsets) -> LastAnnounced | None:
    for window in _windows(tp, offsets):
        own = {
            message.offset: message.value
            for message in visible_messages(cluster, {tp: [window]})
            if message.key == stream.name.encode()
        }
        if own:
            newest = own[max(own)]
            return _parse(stream, tp.topic, newest) if newest is not None else None
    return None


def _without_open_transactions(stream: Stream, cluster: Cluster, tp: TopicPartition) -> BrokerOffsets:
    """The offsets of the topic, once every transaction that is open at this moment has ended.

    A transaction of another table holds back the last stable offset, and with it later bookmarks of this table.
    """
    first = read_topic(cluster, tp.topic).partitions[tp]
    now, until = first, monotonic() + OPEN_SECONDS
    while now.end < first.high_watermark:
        if monotonic() > until:
            raise TransactionOpen(stream=stream.name, topic=tp.topic, seconds=OPEN_SECONDS)
        sleep(0.1)
        now = read_topic(cluster, tp.topic).partitions[tp]
    return now


def _windows(tp: TopicPartition, offsets: BrokerOffsets) -> Iterator[OffsetRange]:
    """Ranges from the end to the beginning."""
    end, length = offsets.end, FIRST_WINDOW
    while end > offsets.earliest:
        start = max(offsets.earliest, end - length)
        yield OffsetRange(tp, start, end)
        end, length = start, length * 10


def _parse(stream: Stream, topic: str, value: bytes) -> LastAnnounced:
    try:
        written = json.loads(value)
        if written["kdi_announced"] != FORMAT:
            raise BookmarkOfNewerRelease(stream=stream.name, topic=topic, found=written["kdi_announced"])
        return LastAnnounced(**{f.name: written[f.name] for f in fields(LastAnnounced)})
    except (ValueError, KeyError, TypeError) as broken:
        raise BookmarkUnreadable(stream=stream.name, topic=topic, detail=repr(broken)) from broken
