"""How far a table is announced: the newest bookmark, and the versions after it. Announces nothing; no JVM."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from time import monotonic

from kdi_assets.delta.errors import CommitUnreadable, unreadable_commit
from kdi_assets.delta.log import TableLog, row_actions
from kdi_assets.delta.storage import storage_uri
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.errors import KdiError
from kdi_assets.follow.upstream import open_upstream
from kdi_assets.messages.kafka.errors import TopicMissing, no_broker_answered
from kdi_assets.messages.kafka.topic import read_topics
from kdi_assets.messages.kafka.topic_config import TopicConfig, topic_configs
from kdi_assets.messages.topic_state import TopicState
from kdi_assets.runtime.threads import start_in_thread
from kdi_assets.streams.announce.announced_bookmark import bookmark_topic, look_at_bookmark, refuse_bookmark_topic
from kdi_assets.streams.announce.errors import AnnouncedTableMissing, NotLookedAtInTime
from kdi_assets.streams.announce.table_changes import TableChanges, announced_version

LOOK_SECONDS = 25.0
"""A look at any number of announced tables ends after this time, well below the minute of Dagster's sensors. That
brokers do not answer is known after half of it."""

AGAIN_SECONDS, AT_ONCE = 300.0, 3
"""While looks at a cluster hang, a new one begins after this time, and at most so many hang at once."""

_HANGING: dict[tuple[str, str], list[tuple[Future[None], float]]] = {}
"""By cluster and lake, the looks that did not end in time, each with the time of its begin; the newest is last."""


@dataclass(frozen=True, slots=True)
class AnnouncedStatus:
    """How far a table is announced.

    Attributes:
        through: The version up to which it is announced, inclusive; ``None``: nothing of it is.
        newest: The table's version; ``None``: there is no table.
        behind: Versions that changed files and are not announced.
        waiting_since: When the oldest of them was committed; of a table that never was announced, its first rows, or
            the table itself if its log no longer has them. ``None``: none waits, or it is unknown.
        why: Why the next announcement lists all files; empty if it has changes.
    """

    through: int | None = None
    newest: int | None = None
    behind: int = 0
    waiting_since: datetime | None = None
    why: str = ""


def announcing_cluster(stream: Stream) -> Cluster:
    """The cluster of the topic of a stream's announcements."""
    return (stream.announce and stream.announce.cluster) or stream.kafka


def is_outage_of_stream(stream: Stream, refusal: KdiError | None) -> bool:
    """Whether a look is refused because no broker of the stream itself answers, as a look at the stream is."""
    own = announcing_cluster(stream).name == stream.cluster.name
    return own and refusal is not None and no_broker_answered(refusal)


def read_announced_statuses(
    streams: Sequence[Stream],
    lake: str,
    *,
    known: Iterable[tuple[str, KdiError]] = (),
    seconds: float = LOOK_SECONDS,
) -> dict[str, AnnouncedStatus | KdiError]:
    """Read how far many tables are announced: one batch of requests a cluster, all clusters at once.

    Args:
        known: Names of clusters, each with what refused one of its topics; brokers that did not answer are not asked.
        seconds: Time limit.

    Returns:
        By the stream's name; what is not known by then is ``NotLookedAtInTime``, and so is what a look
        of an earlier call that has not ended would read again, until ``AGAIN_SECONDS`` have passed.
    """
    silent = {cluster: refusal for cluster, refusal in known if no_broker_answered(refusal)}
    found: dict[str, AnnouncedStatus | KdiError] = {}
    looks, began = dict[tuple[str, str], Future[None]](), monotonic()
    for name in {announcing_cluster(stream).name for stream in streams}:
        own = [stream for stream in streams if announcing_cluster(stream).name == name]
        if refusal := silent.get(name):
            found |= {stream.name: refusal for stream in own}
            continue
        if _may_look((name, lake), began):
            look = partial(_look, own, lake, found, began + seconds)
            looks[name, lake] = start_in_thread(look, name=f"announced-{name}")
    ended, running = wait(looks.values(), timeout=seconds)
    for place, look_of_place in looks.items():
        if look_of_place in running:
            _HANGING.setdefault(place, []).append((look_of_place, began))
    for look_done in ended:
        look_done.result()
    return {stream.name: found.get(stream.name) or _not_in_time(stream, seconds) for stream in streams}


def _may_look(place: tuple[str, str], now: float) -> bool:
    """Whether a look may begin: one that hangs in the storage may never end, and its threads would pile up."""
    hanging = _HANGING[place] = [(look, began) for look, began in _HANGING.get(place, ()) if not look.done()]
    return not hanging or (len(hanging) < AT_ONCE and now - hanging[-1][1] >= AGAIN_SECONDS)


def _not_in_time(stream: Stream, seconds: float) -> NotLookedAtInTime:
    return NotLookedAtInTime(stream=stream.name, topic=_topics(stream)[0], seconds=seconds)


def _topics(stream: Stream) -> tuple[str, str]:
    """The topics of the announcements and of the bookmarks."""
    topic = stream.announce.topic if stream.announce else stream.topic
    return topic, bookmark_topic(topic)


def _look(streams: Sequence[Stream], lake: str, found: dict[str, AnnouncedStatus | KdiError], until: float) -> None:
    """Put what is known of one cluster's streams into ``found``."""
    cluster = announcing_cluster(streams[0])
    try:
        topics = read_topics(cluster, {topic for stream in streams for topic in _topics(stream)})
        kept = {beside for _, beside in map(_topics, streams) if isinstance(topics[beside], TopicState)}
        configs = topic_configs(cluster, kept)
    except KdiError as refusal:
        found.update({stream.name: refusal for stream in streams})
        return
    # In another order each time: if the time is short, no table is always the last one.
    for stream in random.sample(streams, len(streams)):
        if monotonic() > until:
            return
        try:
            found[stream.name] = _status(stream, cluster, lake, topics, configs)
        except KdiError as refusal:
            found[stream.name] = refusal


def _status(
    stream: Stream,
    cluster: Cluster,
    lake: str,
    topics: Mapping[str, TopicState | KdiError],
    configs: Mapping[str, TopicConfig | KdiError],
) -> AnnouncedStatus:
    """Read the bookmark first and the table's log after it, as announcers do."""
    topic, beside = _topics(stream)
    found_topic, bookmarks = topics[topic], topics[beside]
    if isinstance(found_topic, KdiError):
        raise found_topic
    last = None
    if not isinstance(bookmarks, TopicMissing):  # the first announcer creates it
        if isinstance(bookmarks, KdiError):
            raise bookmarks
        refuse_bookmark_topic(stream, bookmarks, configs[beside])
        last = look_at_bookmark(stream, cluster, bookmarks)
    found = open_upstream(stream.table_uri(lake), partial(announced_version, last))
    if found is None:
        uri = storage_uri(stream.table_uri(lake))
        if last and last.uri == uri:
            raise AnnouncedTableMissing(stream=stream.name, uri=uri, version=last.version)
        return AnnouncedStatus()
    changes, newest = TableChanges(stream, found.log), found.log.version
    changes.refuse(last, topic)
    why = changes.why_listing(last)
    if last is None or why:
        return AnnouncedStatus(found.since, newest, newest + 1, _first_rows(found.log), why)
    try:
        waiting = [announcement for _, announcement in changes.since(last) if announcement]
    except CommitUnreadable as unread:
        if not unread.gone:
            raise unreadable_commit(found.log.uri, unread) from unread
        return AnnouncedStatus(
            last.version, newest, newest - last.version, why=f"the log no longer has version {unread.version}"
        )
    return AnnouncedStatus(last.version, newest, len(waiting), waiting[0].committed_at if waiting else None)


def _first_rows(log: TableLog) -> datetime | None:
    """When the table got its first rows; if its log no longer has that commit, when the table was created."""
    try:
        return next((c.committed_at for c in log.commits(after=-1) if row_actions(log.actions(c.version))), None)
    except CommitUnreadable:
        return datetime.fromtimestamp(log.created_time / 1000, UTC) if log.created_time else None
