"""Look with the second client at what follows a bookmark, and at the last record of what was read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from sys import maxsize
from typing import Any, TypeVar

from kdi_assets.messages.kinesis.client import LATE_MS, SeenRecord, pages
from kdi_assets.messages.kinesis.errors import BookmarkDiffers, SeamOpen, ShardTrimmed
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.runtime.threads import start_in_thread

Asked = TypeVar("Asked")
Told = TypeVar("Told")

LEAST_RETENTION_SECONDS = 24 * 3600
RENEWALS = 4
"""How often in its retention an idle shard is said to be seen."""
SHARDS_AT_ONCE = 8
"""A question about a shard waits for two to four answers; botocore's client has ten connections."""


def of_each(asked: Sequence[Asked], ask: Callable[[Asked], Told]) -> dict[Asked, Told]:
    """The answer about each shard or stream, asked about several at once."""
    lanes = [asked[lane::SHARDS_AT_ONCE] for lane in range(min(SHARDS_AT_ONCE, len(asked)))]
    running = [start_in_thread(partial(_in_turn, lane, ask), name="kinesis") for lane in lanes]
    return {one: answer for lane in running for one, answer in lane.result().items()}


def _in_turn(asked: Sequence[Asked], ask: Callable[[Asked], Told]) -> dict[Asked, Told]:
    return {one: ask(one) for one in asked}


@dataclass(frozen=True, slots=True)
class Ahead:
    """What follows a bookmark.

    Attributes:
        first: The first record after it that arrived in time; ``None`` without one.
        ended: The shard is closed, and nothing follows.
        horizon: The record of the bookmark is gone, and none after it: reading begins at the oldest record.
    """

    first: SeenRecord | None = None
    ended: bool = False
    horizon: bool = False


@dataclass(frozen=True, slots=True)
class HeldRecords:
    """Which records a stream holds.

    Attributes:
        now: The server's time, in milliseconds since 1970.
        seconds: Its retention.
    """

    now: int
    seconds: float

    @property
    def since(self) -> int:
        """Records that arrived before are gone, or go at any time."""
        return round(self.now - 1000 * self.seconds)

    def since_after(self, bookmark: Bookmark) -> int:
        """The same, if the retention was shorter when the bookmark was made: a longer one brings nothing back."""
        return max(self.since, round(self.now - 1000 * (bookmark.held_seconds or self.seconds)))

    @property
    def always_since(self) -> int:
        """Records that arrived later are held whatever the retention was."""
        return self.now - 1000 * LEAST_RETENTION_SECONDS


def look_ahead(
    client: Any,
    stream: str,
    shard: str,
    bookmark: Bookmark,
    *,
    until: int,
    held: HeldRecords,
    table: str,
    is_open: bool = True,
) -> Ahead:
    """What follows the bookmark.

    Args:
        until: Records that arrived later do not count, in milliseconds since 1970.
        table: Its name; errors say what to decide for it.
        is_open: Kinesis lists the shard as open. One that is closed is looked at to its end, however old its answers
            are: its children may have records that arrived in time.

    Raises:
        BookmarkDiffers: Another record has its sequence number.
        ShardTrimmed: Its record is gone, and maybe others with it; or retention passed it before a record was read.
    """
    if not bookmark.sequence:
        if may_have_lost(bookmark, held):
            raise trimmed(stream, shard, bookmark, until, table=table)
        return _first_after(client, stream, shard, bookmark, until, start_of(bookmark), is_open=is_open)
    if there := record_of(client, stream, shard, bookmark):
        if there.digest != bookmark.digest:
            raise BookmarkDiffers(stream=stream, shard=shard, table=table, sequence=bookmark.sequence)
        return _first_after(client, stream, shard, bookmark, until, at_record(bookmark), is_open=is_open)
    if may_have_lost(bookmark, held):
        raise trimmed(stream, shard, bookmark, until, table=table)
    return oldest_after(client, stream, shard, bookmark, until=until, is_open=is_open)


def oldest_after(
    client: Any, stream: str, shard: str, bookmark: Bookmark, *, until: int, is_open: bool = True
) -> Ahead:
    """What follows the bookmark if its record is gone: the oldest record that is held, and was not read.

    Args:
        until, is_open: As of ``look_ahead``.
    """
    found = _first_after(client, stream, shard, bookmark, until, start_of(bookmark), is_open=is_open)
    return Ahead(found.first, found.ended, horizon=True)


def oldest_look(marks: Iterable[Bookmark]) -> int | None:
    """Up to when all of these shards were seen, in milliseconds since 1970; ``None`` without one."""
    return min((mark.complete_until for mark in marks), default=None)


def may_have_lost(bookmark: Bookmark, held: HeldRecords) -> bool:
    """Whether retention may have passed records after a bookmark whose own record is gone, or that has none."""
    if not bookmark.sequence:
        return 0 < bookmark.complete_until < held.since_after(bookmark)
    # A record that is gone before its time was hidden by a shorter retention, and maybe others with it.
    in_time = bookmark.seen_at >= held.since_after(bookmark) and bookmark.arrived <= held.since + LATE_MS
    return not in_time and bookmark.seen_at < held.always_since


def trimmed(stream: str, shard: str, bookmark: Bookmark, until: int, *, table: str) -> ShardTrimmed:
    """The refusal of a drain that retention has passed.

    Args:
        until: In milliseconds since 1970.
    """
    between = {"since": utc(bookmark.complete_until).isoformat(), "until": utc(until).isoformat()}
    return ShardTrimmed(stream=stream, shard=shard, table=table, **between)


def refuse_other_last(client: Any, stream: str, shard: str, bookmark: Bookmark) -> None:
    """Refuse a last record that this client does not see as the reader did.

    Raises:
        SeamOpen: It sees another one, or none.
    """
    there = record_of(client, stream, shard, bookmark)
    if there is None or there.digest != bookmark.digest:
        detail = f"the second client does not see the last record read, {bookmark.sequence}, as the first did"
        raise SeamOpen(stream=stream, shard=shard, detail=detail)


def refuse_hole(client: Any, stream: str, shard: str, before: str, after: str) -> None:
    """Refuse two records that the reader read one after the other, if this client sees one between them.

    Args:
        after: Empty: the shard ended, and this client must not see a record after the first one.

    Raises:
        SeamOpen: It does.
    """
    mark = Bookmark(before)
    found = _first_after(client, stream, shard, mark, maxsize, at_record(mark)).first
    if (found.sequence if found else "") != after:
        detail = f"after {before} the reader read {after or 'the end'}, and the second client sees {found}"
        raise SeamOpen(stream=stream, shard=shard, detail=detail)


def oldest_record(client: Any, stream: str, shard: str, *, until: int) -> SeenRecord | None:
    """The oldest record of a shard that can be read; ``None`` if it arrived later than ``until``, or there is none."""
    return _first_after(client, stream, shard, Bookmark(), until, start_of(Bookmark())).first


def first_since(client: Any, stream: str, shard: str, moment: int, *, until: int) -> SeenRecord | None:
    """The first record that arrived at a moment or later, in milliseconds since 1970; ``None`` as ``oldest_record``."""
    return _first_after(client, stream, shard, Bookmark(), until, start_of(Bookmark(at=moment))).first


def start_of(bookmark: Bookmark) -> Mapping[str, Any]:
    """Where a shard begins of which no record was read."""
    if bookmark.at is None:
        return {"ShardIteratorType": "TRIM_HORIZON"}
    return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": utc(bookmark.at)}


def at_record(bookmark: Bookmark) -> Mapping[str, Any]:
    """The record of a bookmark."""
    return {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": bookmark.sequence}


def record_of(client: Any, stream: str, shard: str, bookmark: Bookmark) -> SeenRecord | None:
    """The record that has the bookmark's sequence number now; three answers are known if it cannot be read."""
    try:
        for page in pages(client, stream, shard, most=1, **at_record(bookmark)):
            for record in page.records:
                return record if record.sequence == bookmark.sequence else None
            if page.reaches(bookmark.arrived + LATE_MS):
                break
    except client.exceptions.InvalidArgumentException:
        return None
    return None


def _first_after(
    client: Any,
    stream: str,
    shard: str,
    bookmark: Bookmark,
    until: int,
    start: Mapping[str, Any],
    *,
    is_open: bool = True,
) -> Ahead:
    after = int(bookmark.sequence or -1)
    for page in pages(client, stream, shard, most=2, **start):
        for record in page.records:
            if int(record.sequence) > after:
                return Ahead(record) if record.arrived <= until else Ahead()
        if page.following is None:
            return Ahead(ended=True)
        if is_open and page.reaches(until):
            break
    return Ahead()


def utc(milliseconds: int) -> datetime:
    """The moment."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
