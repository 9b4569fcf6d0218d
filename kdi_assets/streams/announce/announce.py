"""Announce what is new in a table: each version once and in order, from the table's log to a topic.

The table's log says what there is, the bookmark says what is announced. So nothing is lost if a process dies between
the commit of the table and that of Kafka, or if the brokers were down: the next announcer begins after the bookmark.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from kdi_assets.delta.errors import CommitUnreadable, unreadable_commit
from kdi_assets.documents.model.announcement import Announcement
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.errors import KdiError
from kdi_assets.follow.upstream import open_upstream
from kdi_assets.messages.kafka.topic import read_topic
from kdi_assets.messages.kafka.transactions import (
    AnotherProducerActive,
    NotSent,
    Outgoing,
    Transactions,
    open_transactions,
)
from kdi_assets.streams.announce.announced_bookmark import (
    bookmark_to_json,
    bookmark_topic,
    ensure_bookmark_topic,
    read_bookmark,
)
from kdi_assets.streams.announce.errors import AnotherAnnouncerActive, NotAnnounced
from kdi_assets.streams.announce.status import announcing_cluster
from kdi_assets.streams.announce.table_changes import LastAnnounced, TableChanges, announced_version
from kdi_assets.wording import counted

log = logging.getLogger(__name__)

VERSIONS_PER_TRANSACTION = 50


@dataclass(frozen=True, slots=True)
class Announced:
    """What one call announced.

    Attributes:
        through: The table is announced up to this version, inclusive; ``None`` if there is no table.
        versions: The versions with a new announcement.
        listed_because: Why all files were listed instead of changes; empty if they were not.
    """

    through: int | None = None
    versions: tuple[int, ...] = ()
    listed_because: str = ""

    def __str__(self) -> str:
        if not self.versions:
            return "nothing new"
        if self.listed_because:
            return f"all files of v{self.versions[0]}, because {self.listed_because}"
        first, last = self.versions[0], self.versions[-1]
        return f"v{first}" if first == last else f"{counted(len(self.versions), 'version')}, v{first} to v{last}"


def announce(
    stream: Stream, lake: str, *, until: float = math.inf, at: Callable[[str], None] = lambda point: None
) -> Announced:
    """Announce every version of the stream's table since the last one that was announced.

    Args:
        until: By the monotonic clock: after this no other transaction begins; the next call goes on.
        at: Called with the name of each point that is reached; tests stop there.

    Raises:
        NotAnnounced, AnotherAnnouncerActive, TransactionOpen: A retry can help.
        AnnouncedByAnotherTable, BookmarksNotKept, BookmarksScattered, FilesAreNotRows: Someone must decide.
        KdiError: The brokers or the storage do not answer, or refuse.
    """
    if stream.announce is None:
        return Announced()
    topic, cluster = stream.announce.topic, announcing_cluster(stream)
    bookmarks = bookmark_topic(topic)
    read_topic(cluster, topic)  # refuses a topic that is missing: a producer would wait for it, or create it
    ensure_bookmark_topic(stream, cluster, bookmarks)
    with _transactions(stream, cluster, topic) as sending:
        # In this order: once the transactions of others are ended, the bookmark that is read stays the newest, and the
        # log that is read after it has every version that the bookmark counts.
        sending.begin()
        at("begun")
        last = read_bookmark(stream, cluster, bookmarks)
        found = open_upstream(stream.table_uri(lake), partial(announced_version, last))
        if found is None:
            return Announced()
        changes = TableChanges(stream, found.log)
        changes.refuse(last, topic)
        at("read")
        return _Announcer(stream, changes, sending, bookmarks, until, at).announce(last)


@contextmanager
def _transactions(stream: Stream, cluster: Cluster, topic: str) -> Iterator[Transactions]:
    """The transactions of one announcer of the table at a time, not begun yet."""
    try:
        with open_transactions(cluster, topic, name=f"kdi-announce-{topic}-{stream.name}") as sending:
            yield sending
    except NotSent as failed:
        raise NotAnnounced(stream=stream.name, topic=topic, detail=str(failed)) from failed
    except AnotherProducerActive as fenced:
        raise AnotherAnnouncerActive(stream=stream.name, topic=topic) from fenced


@dataclass(frozen=True, slots=True)
class _Announcer:
    """Sends the announcements of one table."""

    stream: Stream
    changes: TableChanges
    sending: Transactions
    bookmarks: str
    until: float
    at: Callable[[str], None]

    def announce(self, last: LastAnnounced | None) -> Announced:
        why = self.changes.why_listing(last)
        if last is None or why:
            return self._list(last, why)
        sent: list[int] = []
        try:
            for batch in _batches(self.changes.since(last)):
                found = [announcement for _, announcement in batch if announcement]
                last = self._send(found, last, through=batch[-1][0])
                sent += [announcement.version for announcement in found]
                if time.monotonic() > self.until:
                    break
        except CommitUnreadable as unread:
            if not unread.gone:
                raise unreadable_commit(self.changes.log.uri, unread) from unread
            return self._list(last, f"the log no longer has version {unread.version}")
        return Announced(last.version, tuple(sent))

    def _list(self, last: LastAnnounced | None, why: str) -> Announced:
        listing = self.changes.listing(last)
        self._send([listing], last, through=listing.version)
        return Announced(listing.version, (listing.version,), why)

    def _send(self, found: list[Announcement], last: LastAnnounced | None, *, through: int) -> LastAnnounced:
        newest = found[-1] if found else None
        after = LastAnnounced(
            table_id=self.changes.log.table_id,
            uri=self.changes.uri,
            version=through,
            announced=newest.version if newest else (last.announced if last else -1),
            sequence=newest.sequence if newest else (last.sequence if last else 0),
        )
        name = self.stream.name
        topic = self.stream.announce.topic if self.stream.announce else ""
        parts = [Outgoing(topic, name, part.to_json()) for a in found for part in a.in_parts()]
        self.sending.send([*parts, Outgoing(self.bookmarks, name, bookmark_to_json(after))])
        self.at("sent")
        return after


_Version = tuple[int, Announcement | None]


def _batches(versions: Iterable[_Version]) -> Iterator[list[_Version]]:
    batch: list[_Version] = []
    for version in versions:
        batch.append(version)
        if len(batch) == VERSIONS_PER_TRANSACTION:
            yield batch
            batch = []
    if batch:
        yield batch


def announce_or_report(stream: Stream, lake: str, report: Callable[[str], None]) -> None:
    """Announce what is new; on a failure say so. The commits stand, and the next call catches up."""
    try:
        done = announce(stream, lake)
    except KdiError as refused:
        happened, safe, _ = refused.message_parts()
        report(f"{stream.name}: not announced: {happened} Safe: {safe} The next drain or tick tries again.")
        return
    except Exception as failure:
        log.warning("%s: not announced", stream.name, exc_info=failure)
        report(f"{stream.name}: not announced: {failure}. The commits stand; the next drain or tick tries again.")
        return
    if done.versions and stream.announce:
        report(f"{stream.name}: announced {done} in {stream.announce.topic}")


@contextmanager
def announced_after(stream: Stream, lake: str, report: Callable[[str], None]) -> Iterator[None]:
    """Announce what is new once the body has ended, also if it refused after some commits."""
    try:
        yield
    except KdiError:
        announce_or_report(stream, lake, report)
        raise
    announce_or_report(stream, lake, report)
