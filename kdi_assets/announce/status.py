"""How far a table is announced: the newest bookmark, and the versions after it. Announces nothing; no JVM."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from kdi_assets.announce.bookmark import bookmark_topic, look_at_bookmark
from kdi_assets.announce.table_changes import LastAnnounced, TableChanges, announced_version
from kdi_assets.delta.errors import CommitUnreadable, unreadable_commit
from kdi_assets.follow.upstream import open_upstream
from kdi_assets.sources.kafka.errors import AdvertisedUnreachable, BrokerUnreachable, TopicMissing
from kdi_assets.sources.kafka.topic import read_topic
from kdi_assets.stream.stream import Cluster, Stream

SILENT = (BrokerUnreachable, AdvertisedUnreachable)
"""Errors of brokers that do not answer; who looks at many tables does not ask these again."""


@dataclass(frozen=True, slots=True)
class AnnouncedStatus:
    """How far a table is announced.

    Attributes:
        through: The version up to which it is announced, inclusive; ``None``: nothing of it is.
        newest: The table's version; ``None``: there is no table.
        behind: Versions that changed files and are not announced.
        waiting_since: When the oldest of them was committed; ``None``: none waits, or it is unknown.
        why: Why the next announcement lists all files; empty if it has changes.
    """

    through: int | None = None
    newest: int | None = None
    behind: int = 0
    waiting_since: datetime | None = None
    why: str = ""


def read_announced_status(stream: Stream, lake: str) -> AnnouncedStatus:
    """Read the bookmark first and the table's log after it, as announcers do.

    Raises:
        TopicMissing: The topic of the announcements does not exist.
        AnnouncedByAnotherTable, FilesAreNotRows: An announcer would refuse the table.
        KdiError: The brokers or the storage do not answer, or refuse.
    """
    if stream.announce is None:
        return AnnouncedStatus()
    topic, cluster = stream.announce.topic, stream.announce.cluster or stream.kafka
    read_topic(cluster, topic)
    last = _bookmark(stream, cluster, topic)
    found = open_upstream(stream.table_uri(lake), partial(announced_version, last))
    if found is None:
        return AnnouncedStatus()
    changes, newest = TableChanges(stream, found.log), found.log.version
    changes.refuse(last, topic)
    why = changes.why_listing(last)
    if last is None or why:
        return AnnouncedStatus(found.since, newest, newest + 1, why=why)
    try:
        waiting = [announcement for _, announcement in changes.since(last) if announcement]
    except CommitUnreadable as unread:
        if not unread.gone:
            raise unreadable_commit(found.log.uri, unread) from unread
        return AnnouncedStatus(
            last.version, newest, newest - last.version, why=f"the log no longer has version {unread.version}"
        )
    return AnnouncedStatus(last.version, newest, len(waiting), waiting[0].committed_at if waiting else None)


def _bookmark(stream: Stream, cluster: Cluster, topic: str) -> LastAnnounced | None:
    try:
        return look_at_bookmark(stream, cluster, bookmark_topic(topic))
    except TopicMissing:
        return None  # the first announcer creates it
