"""The subject of a check: one stream at one moment. Each fact is read once, and only if a check needs it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import Stream
from kdi_assets.operate.monitoring.backlog import Backlog
from kdi_assets.operate.monitoring.backlog_reader import read_backlog
from kdi_assets.streams.ledger.recent_commits import LedgerCommit, drains_since

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


COMMITS_AFTER_DRAIN = 50
"""How many commits a check of the history reads after a drain, unless it finds something, or found something before:
1,500 commits took half a second of CPU, and are as many requests on object storage."""


class CheckSubject:
    """A stream with its table and topic.

    Attributes:
        session: Called only by checks that use Spark.
        drained: Whether the same run has just drained the table.
        newest: How many of the newest commits a check of the history reads at most; ``None``: as many as it wants.
    """

    def __init__(
        self,
        stream: Stream,
        lake: str,
        session: Callable[[], SparkSession],
        *,
        drained: bool = False,
        backlog: Backlog | None = None,
        now: datetime | None = None,
        newest: int | None = None,
    ) -> None:
        self.stream, self.lake, self.session, self.drained = stream, lake, session, drained
        self.now, self.newest = now or datetime.now(UTC), newest
        self._backlog = backlog

    @property
    def uri(self) -> str:
        """Where the table lies."""
        return self.stream.table_uri(self.lake)

    @cached_property
    def backlog(self) -> Backlog:
        """The backlog that was passed in, or the present one."""
        return self._backlog or read_backlog(self.stream, self.lake)

    @cached_property
    def of_newest_commits(self) -> CheckSubject:
        """The stream, of whose history a check reads ``COMMITS_AFTER_DRAIN`` commits."""
        return CheckSubject(self.stream, self.lake, self.session, now=self.now, newest=COMMITS_AFTER_DRAIN)

    @cached_property
    def log(self) -> TableLog | None:
        """The table's log at its newest version; ``None`` if there is no table.

        Raises:
            KdiError: It cannot be read.
        """
        return TableLog.open(self.uri)

    def drains_since(self, moment: datetime) -> tuple[LedgerCommit, ...]:
        """The drains since a moment that no RESTORE undid, the oldest first.

        Raises:
            KdiError: The log cannot be read.
        """
        return drains_since(self.log, self.stream.app_id, moment, newest=self.newest) if self.log else ()
