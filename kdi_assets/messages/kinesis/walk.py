"""One shard as a watch sees it: what follows a table's bookmark, one call at a time, by an iterator that is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from sys import maxsize
from typing import Any

from kdi_assets.errors import KdiError, Transient
from kdi_assets.messages.kinesis.client import (
    LATE_MS,
    MOST_PAGES,
    RecordsPage,
    SeenRecord,
    milliseconds,
    page_at,
    server_time,
)
from kdi_assets.messages.kinesis.errors import BookmarkDiffers, EndlessAnswers
from kdi_assets.messages.kinesis.look_ahead import HeldRecords, at_record, may_have_lost, start_of, trimmed
from kdi_assets.messages.shard_bookmarks import Bookmark

ITERATOR_SECONDS = 280.0
"""Kinesis gives an iterator five minutes; an older one is not tried."""
IDLE_SECONDS = 120.0
"""A shard is idle if nothing follows that arrived so long before an answer; on some, no answer is ever 0 behind."""
UNANSWERED_SECONDS = 300.0
"""How long every call about a shard may fail before that is the answer; an older answer is none."""


@dataclass(slots=True)
class ShardWalk:
    """How far one shard was walked after the bookmark of one table. Times are milliseconds since 1970 of the server.

    Attributes:
        table: Its name; refusals say what to decide for it.
        seconds: The stream's retention.
        clock: Seconds that only grow.
        first: The first record after the bookmark, once it was seen: then nothing more is asked.
        ended: The shard is closed, and nothing follows.
        refusal: Why a drain would be refused, or what does not come to an end.
        idle_at: Nothing that arrived before follows the bookmark; 0 if the shard was never walked to its end.
        due_at: When it may be asked again, by the clock; 0 if it never was.
        asked: The number of its last call.
        bookmark_is_gone: Its record is.
        error: Of the last call, if that failed.
    """

    stream: str
    shard: str
    table: str
    mark: Bookmark
    seconds: float
    clock: Callable[[], float]
    first: SeenRecord | None = None
    ended: bool = False
    refusal: KdiError | None = None
    idle_at: int = 0
    due_at: float = 0.0
    asked: int = 0
    bookmark_is_gone: bool = False
    error: KdiError | None = None
    _verified: bool = False
    _seen_until: int = 0
    _until: int = 0
    _behind: int = 0
    _least_behind: int = maxsize
    _pages: int = 0
    _iterator: str = ""
    _taken: float = 0.0
    _answered: tuple[int, float] | None = None
    _failing_since: float | None = None

    def follows(self, mark: Bookmark) -> bool:
        """Whether this is the walk after the bookmark, which may have been seen again since."""
        mine = self.mark
        same = (mine.sequence, mine.digest, mine.at) == (mark.sequence, mark.digest, mark.at)
        return same and not (self.refusal and mine != mark)

    @property
    def now(self) -> int:
        """The server's time; 0 before its first answer."""
        if self._answered is None:
            return 0
        at, when = self._answered
        return at + round(1000 * (self.clock() - when))

    @property
    def known(self) -> bool:
        """Whether it is known that a record waits, or that none did some minutes ago."""
        if self.first or self.ended:
            return True
        if self._answered is None or self.clock() - self._answered[1] > UNANSWERED_SECONDS:
            return False
        return self._answered[0] - self.idle_at <= 1000 * IDLE_SECONDS

    @property
    def is_near_end(self) -> bool:
        """Whether one call from time to time is enough to follow it."""
        return self.known and self._behind <= LATE_MS

    @property
    def has_answer(self) -> bool:
        """Whether no call can tell more: nothing changes until the bookmark moves, or retention passes the record."""
        if self.refusal:
            return not isinstance(self.refusal, EndlessAnswers)
        if self.first and self.first.arrived < self.now - 1000 * self.seconds:
            return False
        return bool(self.first) or self.ended

    @property
    def problem(self) -> KdiError | None:
        """Why a drain would be refused, or why nobody knows; one call too many is not a problem yet."""
        if self.refusal or not isinstance(self.error, Transient):
            return self.refusal or self.error
        failed_since = self.clock() if self._failing_since is None else self._failing_since
        return self.error if self.clock() - failed_since >= UNANSWERED_SECONDS else None

    def is_due(self, renew_after_ms: float) -> bool:
        """Whether a drain renews the bookmark: the shard has ended, or was not seen for so long."""
        return (self.ended and not self.mark.ended) or self.mark.complete_until < self.idle_at - renew_after_ms

    def failed(self, error: KdiError) -> None:
        """A call got no answer; the next look tries again."""
        self.error, self._iterator = error, ""
        self._failing_since = self.clock() if self._failing_since is None else self._failing_since

    def step(self, client: Any) -> None:
        """Ask once, and once more for an iterator if there is none that can be used.

        Raises:
            botocore.exceptions.ClientError, BotoCoreError: No answer, or a refusal.
        """
        self._begin_again_if_retention_passed()
        if self.clock() - self._taken > ITERATOR_SECONDS:
            self._iterator = ""
        kept = bool(self._iterator)
        page = self._try(client)
        if page is None and kept:  # with another iterator
            page = self._try(client)
        self._failing_since = self.error = None
        if page is None:
            return
        self._answered = page.at, self.clock()
        self._iterator, self._taken = page.following or "", self.clock()
        if self._verified or self._verify(page):
            self._take(page)

    def _try(self, client: Any) -> RecordsPage | None:
        """An answer; ``None`` if the iterator cannot be used, or there is none at the bookmark because it is gone."""
        fresh = not self._iterator
        try:
            return self._page(client)
        except client.exceptions.ExpiredIteratorException:
            if fresh:
                raise
        except client.exceptions.InvalidArgumentException as refused:  # of either call
            if fresh and (self._verified or not self.mark.sequence):
                raise
            if fresh:
                self._record_is_gone(milliseconds(server_time(refused.response)))
        self._iterator = ""
        return None

    def _begin_again_if_retention_passed(self) -> None:
        """What was seen before is no answer any more: a drain would find another first record, or refuse."""
        since = self.now - 1000 * self.seconds
        known_until = self.first.arrived if self.first else self.mark.complete_until
        if self._verified and 0 < known_until < since:
            self.first, self._verified, self._seen_until, self._iterator = None, False, 0, ""

    def _page(self, client: Any) -> RecordsPage:
        if not self._iterator:
            asked = client.get_shard_iterator(StreamName=self.stream, ShardId=self.shard, **self._start())
            self._iterator = asked["ShardIterator"]
        # The record of the bookmark and the one after it come with the first answer, if they are there.
        return page_at(client, self._iterator, most=1 if self._verified else 2)

    def _start(self) -> Mapping[str, Any]:
        if not self._verified and self.mark.sequence:
            return at_record(self.mark)
        if self._seen_until:  # so far it was walked already; arrival times are not in order
            return start_of(Bookmark(at=max(self._seen_until - LATE_MS, self.mark.at or 0)))
        return start_of(Bookmark(at=self.mark.at))

    def _verify(self, page: RecordsPage) -> bool:
        """Whether what follows the bookmark can be taken from this answer."""
        mark = self.mark
        if not mark.sequence:
            if may_have_lost(mark, HeldRecords(page.at, self.seconds)):
                self.refusal = trimmed(self.stream, self.shard, mark, page.at, table=self.table)
            self._verified = True
            return self.refusal is None
        if page.records and page.records[0].sequence == mark.sequence:
            if page.records[0].digest != mark.digest:
                names = {"stream": self.stream, "shard": self.shard, "table": self.table}
                self.refusal = BookmarkDiffers(sequence=mark.sequence, **names)
            self._verified = True
            return self.refusal is None
        if page.records or page.following is None or page.reaches(mark.arrived + LATE_MS):
            self._record_is_gone(page.at)
        else:
            self._count_page(page)
        return False

    def _record_is_gone(self, now: int) -> None:
        self._iterator, self._verified, self.bookmark_is_gone = "", True, True
        if may_have_lost(self.mark, HeldRecords(now, self.seconds)):
            self.refusal = trimmed(self.stream, self.shard, self.mark, now, table=self.table)

    def _take(self, page: RecordsPage) -> None:
        after = int(self.mark.sequence or -1)
        self.first = next((record for record in page.records if int(record.sequence) > after), None)
        self.ended = page.following is None and self.first is None
        self._seen_until = max(self._seen_until, page.at - page.behind)
        self._behind, until = page.behind, page.at + 1000  # the server tells whole seconds, and this one has begun
        self._until = self._until or until
        if self.first:
            self._pages, self._least_behind, self.refusal = 0, maxsize, None
        elif page.reaches(self._until):
            self.idle_at, self._until = page.at if page.behind == 0 else self._until, until
            self._pages, self._least_behind, self.refusal = 0, maxsize, None
        else:
            self._count_page(page)

    def _count_page(self, page: RecordsPage) -> None:
        """One more that comes no nearer to the shard's end, or else the first one."""
        self._pages = 1 if page.behind < self._least_behind else self._pages + 1
        self._least_behind = min(self._least_behind, page.behind)
        if self._pages >= MOST_PAGES:
            self.refusal = EndlessAnswers(stream=self.stream, shard=self.shard, answers=self._pages)
