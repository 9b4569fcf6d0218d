"""For hand-written assets: what is new in a table since an asset's last commit, and the commit that binds both.

The bookmark is in the log of the table that the asset writes, in the commit of its rows
(``follow.refine.upstream_bookmarks``).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Literal

from kdi_assets.delta.errors import OvertakenCommit
from kdi_assets.delta.files import TableAt, rows_at
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.markers import version_id
from kdi_assets.delta.single_commit import CommitRequest, commit_behind
from kdi_assets.follow.refine.columns import other_columns
from kdi_assets.follow.refine.consumer_errors import (
    NotPartitionedByDate,
    OtherColumns,
    RowsAppendedAgain,
    RowsOfOtherConsumer,
    RowsOfOtherDates,
)
from kdi_assets.follow.refine.entry import RefineEntry, RefineKind, VersionRange, metadata_of
from kdi_assets.follow.refine.errors import MATERIALIZE_AGAIN, BookmarksUnreadable, another_active
from kdi_assets.follow.refine.read import appended_rows, change_rows, of_kept_dates
from kdi_assets.follow.refine.spark_errors import spark_failures
from kdi_assets.follow.refine.stage import StagedChange, create_table, stage_change
from kdi_assets.follow.refine.table_change import NoRows, RowsOfDates, TableChange, WholeTable
from kdi_assets.follow.refine.topics import TopicsOfRows, known_topics, read_topics
from kdi_assets.follow.refine.upstream_bookmarks import (
    Bookmarks,
    bookmark_transactions,
    follow_harmless,
    open_consumed,
    others_transactions,
    read_bookmarks,
)
from kdi_assets.follow.upstream import UpstreamChanges, changes_since

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RowsKind = Literal["appended", "changed", "everything"]


@dataclass(frozen=True, slots=True)
class NewRows:
    """What is new in a table, for one consumer. Call one of the three commits, once.

    Attributes:
        kind: ``appended``: ``rows`` are rows that were added. ``changed``: they are those of the change feed, with
            ``_change_type``, ``_commit_version`` and ``_commit_timestamp``. ``everything``: all rows of the table,
            because it is the first time, or what is new can no longer be told.
        rows: The upstream table's columns. Lazy.
        dates: The dates of these rows; ``None``: unknown, the table has no date partitions, or ``kind`` is
            ``everything``.
        version: The upstream table's version up to which they are, inclusive.
    """

    kind: RowsKind
    rows: DataFrame
    dates: frozenset[date] | None
    version: int
    consumer: str
    changes: UpstreamChanges
    output: str
    output_version: int
    output_id: str
    has_committed: bool
    topics: TopicsOfRows | None = None

    @property
    def kept_from(self) -> date | None:
        """The first date that the upstream table keeps; ``None``: it keeps all.

        Of earlier dates nothing is new, also if their rows leave, and ``everything`` has no such rows.
        """
        return self.changes.kept_from

    @property
    def rows_passed_over(self) -> int:
        """How many rows came, since the consumer's last commit, to dates before ``kept_from``: ``rows`` lacks them."""
        return self.changes.rows_passed_over

    def append(self, rows: DataFrame) -> int:
        """Add rows to the consumer's table, with the bookmark, and return the table's version.

        Raises:
            RowsAppendedAgain: These are all rows of the upstream table, and the consumer has committed before.
            OtherColumns: The rows have other columns or types than the table.
        """
        if self.kind == "everything" and self.has_committed:
            raise RowsAppendedAgain(table=self.consumer, upstream=self.changes.uri)
        return self._commit(TableChange(rows, NoRows()), "changes")

    def replace_dates(self, rows: DataFrame, dates: Collection[date]) -> int:
        """Replace the rows of some dates in the consumer's table, which is partitioned by ``date``.

        Raises:
            OtherColumns: The rows have other columns or types than the table.
            NotPartitionedByDate: The table has no partitions by ``date``.
            RowsOfOtherDates: Rows have none of these dates.
            RowsOfOtherConsumer: Another consumer has rows in the table.
        """
        return self._commit(TableChange(rows, RowsOfDates(frozenset(dates))), "dates")

    def replace_everything(self, rows: DataFrame) -> int:
        """Replace all rows of the consumer's table; the table gets their columns.

        Raises:
            RowsOfOtherConsumer: Another consumer has rows in the table.
        """
        return self._commit(TableChange(rows, WholeTable()), "rebuild")

    def _commit(self, change: TableChange, kind: RefineKind) -> int:
        spark, attempt_id = change.rows.sparkSession, str(uuid.uuid4())
        versions = VersionRange(self.changes.table, self.changes.table_id, self.changes.since, self.version)
        entry = RefineEntry(self.consumer, attempt_id, kind, (versions,))
        consumed = {self.changes.table_id: self.version}
        try:
            with spark_failures(self.consumer, "committing"):
                topics = self.topics or read_topics(spark, [self.changes])
                version, table_id = self.output_version, self.output_id
                if version < 0:
                    version, table_id = 0, self._created(change, attempt_id, entry)
                table, newest = TableAt.open(spark, self.output, version), TableLog.existing(self.output, version)
                staged, names = self._staged(change, table), table.transaction_ids

                def transactions(version: int) -> dict[str, int]:
                    others = others_transactions(newest, names, self.consumer, version)
                    return {**others, **bookmark_transactions(self.consumer, consumed, version, topics=topics)}

                request = CommitRequest(self.output, table_id, attempt_id, transactions, metadata_of(entry))
                replaces = staged.staged.replaces

                def follow(log: TableLog, after: int) -> CommitRequest:
                    nonlocal newest
                    newest = log  # a commit that it follows may have set the bookmarks of another consumer
                    return follow_harmless(request, log, after, consumer=self.consumer, replaces=replaces)

                return commit_behind(version, spark, staged.staged, request, follow=follow)
        except OvertakenCommit as overtaken:
            # No other attempt: only the asset can compute its rows again, from what is new then.
            raise another_active(self.consumer, overtaken, run=MATERIALIZE_AGAIN) from overtaken

    def _created(self, change: TableChange, attempt_id: str, entry: RefineEntry) -> str:
        """Create the table without rows, and return its id."""
        request = CommitRequest(self.output, "", attempt_id, lambda _: {}, metadata_of(entry))
        by_date = dict(change.rows.dtypes).get("date") == "date"
        return create_table(change.rows.sparkSession, request, change.rows.schema, {}, by_date=by_date)

    def _staged(self, change: TableChange, table: TableAt) -> StagedChange:
        """The change, written; refused if the table would not have the rows as the asset gave them."""
        own, end = version_id(self.consumer), version_id("")
        others = sorted(name for name in table.transaction_ids if name.endswith(end) and name != own)
        if others and not isinstance(change.replaces, NoRows):
            raise RowsOfOtherConsumer(table=self.consumer, other=others[0].removesuffix(end))
        dates = change.replaces.dates if isinstance(change.replaces, RowsOfDates) else None
        if not isinstance(change.replaces, WholeTable):
            if found := other_columns(change.rows.schema, table.schema):
                raise OtherColumns(table=self.consumer, found=", ".join(found))
            change = replace(change, rows=change.rows.select(*(f"`{name}`" for name in table.schema.names)))
        if dates is not None and not table.is_partitioned_by_date:
            raise NotPartitionedByDate(table=self.consumer, uri=self.output)
        staged = stage_change(change, table, name=self.consumer)
        # By the files that no version names yet: a row without one of the dates would be added by each repetition.
        on_dates = sum(rows for day, rows in staged.rows_by_date.items() if dates and day in dates)
        if dates is not None and staged.rows_added > on_dates:
            raise RowsOfOtherDates(table=self.consumer, rows=staged.rows_added - on_dates)
        return staged


def new_rows(spark: SparkSession, *, upstream: str, output: str, consumer: str) -> NewRows | None:
    """What is new in a table since the consumer's last commit; ``None`` if nothing is.

    Args:
        upstream: Path or URI of the table that is read.
        output: Path or URI of the table that the consumer writes; it need not exist yet.
        consumer: A name that no other consumer uses in the output table.

    Raises:
        UpstreamMissing: The upstream table does not exist yet.
        UpstreamGone: The upstream table does not exist, and the consumer has committed before.
        BookmarksUnreadable: Commits of the output table since the consumer's last one cannot be read, or a RESTORE
            undid all of them.
        TableUnreadable: A commit of the upstream table is there, and cannot be read.
    """
    written = TableLog.open(output)
    bookmarks = _bookmarks(written, consumer) if written else None
    found = open_consumed(upstream, bookmarks, consumer=consumer, upstream=upstream)
    changes = changes_since(found.log, found.since, table=upstream)
    if changes.kind == "nothing":
        return None
    at = (written.version, written.table_id) if written else (-1, "")
    kind, rows = _read(spark, changes)
    dates = None if kind == "everything" else changes.dates
    committed = bookmarks is not None and bookmarks.committed is not None
    topics = known_topics(written, consumer, [changes]) if written and kind != "everything" else None
    return NewRows(kind, rows, dates, changes.version, consumer, changes, output, *at, committed, topics)


def _bookmarks(written: TableLog, consumer: str) -> Bookmarks:
    try:
        return read_bookmarks(written, consumer, alone=False)
    except BookmarksUnreadable as unread:
        unread.by_hand = True
        raise


def _read(spark: SparkSession, changes: UpstreamChanges) -> tuple[RowsKind, DataFrame]:
    if changes.kind == "appended":
        return "appended", appended_rows(spark, changes)
    if changes.has_feed:
        return "changed", change_rows(spark, changes)
    return "everything", of_kept_dates(rows_at(spark, changes.uri, changes.version), changes.kept_from)
