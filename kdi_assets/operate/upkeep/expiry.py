"""Expiry: rows whose dates are kept no longer leave, and old dead letters, and the ledger accounts for them.

Order, as of an erasure: the offsets are written to ``<table>_erased``; one ledger commit removes the rows and declares
the messages; then the dead letters are deleted, which that commit already declared. If the process ends before the last
step, no reader of ours shows these letters, and the next upkeep deletes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from kdi_assets.delta.errors import OvertakenCommit, StagedFilesGone
from kdi_assets.delta.files import CHANGE, TableAt, replace_files, rows_at
from kdi_assets.delta.internals import path_of, removals
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.lost_races import until_won
from kdi_assets.delta.markers import kept_from as marked_kept_from
from kdi_assets.delta.transaction import Staged, delta_log
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.entry import RefineEntry
from kdi_assets.follow.upstream import later
from kdi_assets.operate.upkeep.errors import UpkeepFailed, spark_failures
from kdi_assets.operate.upkeep.expiring_messages import ExpiringMessages, count_old_letters, expiring_messages
from kdi_assets.operate.upkeep.unconsumed import Followers, waiting_followers
from kdi_assets.runtime.spark_failures import root_cause, spark_exceptions
from kdi_assets.runtime.spark_internals import scala_seq
from kdi_assets.streams.ledger.commit import commit, next_entry
from kdi_assets.streams.ledger.dates import as_dates
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.erased import append_expired, without_erased
from kdi_assets.streams.ledger.errors import RowsUnaccounted
from kdi_assets.streams.ledger.history import LiveHistory, history_at
from kdi_assets.streams.ledger.letters import committed_attempts, outside_losses
from kdi_assets.streams.ledger.positions import LedgerState, read_ledger
from kdi_assets.streams.ledger.rewrite import as_deletions, rows_of_messages
from kdi_assets.streams.spark_errors import jvm_loss_named
from kdi_assets.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEP = "the removal of rows that are kept no longer"


@dataclass(frozen=True, slots=True)
class Expiry:
    """What is kept no longer, or was removed.

    Attributes:
        kept_from: The oldest date that is kept.
        rows_by_date: Rows with older dates. Before they are removed, of all messages; a message that also has rows of
            kept dates stays.
        dead_letters: Dead letters of messages with an older timestamp (UTC).
        waits_for: Why nothing is removed yet: followers that have not consumed the dates, or a drain that must come
            first.
        committed: The entry of the commit, in the ledger or of the refined table; ``None``: no row was removed.
    """

    kept_from: date
    rows_by_date: Mapping[date, int] = field(default_factory=dict)
    dead_letters: int = 0
    waits_for: tuple[str, ...] = ()
    committed: LedgerEntry | RefineEntry | None = None

    @property
    def rows(self) -> int:
        return sum(self.rows_by_date.values())

    @property
    def is_due(self) -> bool:
        """Whether something is kept no longer, and nothing has to come before it is removed."""
        return bool(self.rows_by_date or self.dead_letters) and not self.waits_for

    def line(self, name: str) -> str:
        """What is kept no longer, in one line.

        Args:
            name: Of the stream or the refined table.
        """
        what = ", ".join(
            [f"{counted(self.rows, 'row')} on {counted(len(self.rows_by_date), 'date')} before {self.kept_from}"]
            + ([counted(self.dead_letters, "dead letter")] if self.dead_letters else [])
        )
        if self.committed:
            return f"{name} v{self.committed.version}: {what}: kept no longer, and removed"
        if self.waits_for:
            return f"{name}: {what}: kept no longer; they stay until this is done: {'; '.join(self.waits_for)}"
        if not self.is_due:
            return f"{name}: nothing is older than {self.kept_from}"
        return f"{name}: {what}: kept no longer"


def plan_expiry(stream: Stream, lake: str, followers: Followers, *, now: datetime) -> Expiry | None:
    """What is kept no longer; changes nothing, needs no JVM.

    Returns:
        ``None`` if all rows are kept for ever, or there is no table.

    Raises:
        KdiError: The log or the storage cannot be read.
    """
    kept_from = stream.kept_from(now)
    ledger = None if kept_from is None else read_ledger(stream, lake, topic_id="", topic_partitions=0)
    if kept_from is None or ledger is None:
        return None
    rows = rows_before(TableLog.existing(ledger.uri, ledger.version), kept_from)
    history = history_at(ledger, stream, lake)
    letters = count_old_letters(stream, lake, history.entries, before=kept_from)
    found = Expiry(kept_from, rows, letters)
    if not rows and not letters:
        return found
    return replace(found, waits_for=_waits_for(stream, lake, ledger, rows, followers, kept_from))


def rows_before(log: TableLog, kept_from: date) -> dict[date, int]:
    """Rows of older dates by the files' statistics; 0 for files without statistics."""
    if "date" not in log.partition_columns or not log.data_files.num_rows:
        return {}
    days = as_dates(log.data_files["partition.date"]).to_pylist()
    found: dict[date, int] = {}
    for day, rows in zip(days, log.data_files["num_records"].to_pylist(), strict=True):
        if day is not None and day < kept_from:
            found[day] = found.get(day, 0) + (rows or 0)
    return dict(sorted(found.items()))


def _waits_for(
    stream: Stream, lake: str, ledger: LedgerState, rows: Mapping[date, int], followers: Followers, kept_from: date
) -> tuple[str, ...]:
    if ledger.restored_to is not None:
        return (f"{stream.name}: the table was restored, and no drain has set its positions back yet",)
    if ledger.entry is None:
        return (f"{stream.name}: no drain has taken over the table yet, or its entries are gone",)
    return waiting_followers(stream, rows, followers, lake, kept_from=kept_from)


def expire(
    stream: Stream,
    lake: str,
    followers: Followers,
    *,
    session: Callable[[], SparkSession],
    now: datetime,
    at: Callable[[str], None] = lambda point: None,
) -> Expiry | None:
    """Remove what is kept no longer; needs no broker, and nothing to do makes no commit.

    Args:
        at: Called at ``"files written"``, ``"commit sent"`` and ``"letters deleted"``; tests stop it there.

    Returns:
        As ``plan_expiry``, with what was removed.

    Raises:
        UpkeepFailed: Spark failed, or too many races were lost; the next upkeep goes on.
        KdiError: The log cannot be read.
    """

    def attempt() -> Expiry | None:
        found = plan_expiry(stream, lake, followers, now=now)
        if found is None or not found.is_due:
            return found
        ledger = read_ledger(stream, lake, topic_id="", topic_partitions=0)
        if ledger is None or ledger.entry is None or ledger.restored_to is not None:
            raise OvertakenCommit(uri=stream.table_uri(lake), version=-1, operation="RESTORE")
        with jvm_loss_named(stream):
            return _expire(session(), stream, lake, ledger, found, followers, at)

    def gives_up(race: KdiError) -> UpkeepFailed:
        return UpkeepFailed(table=stream.name, step=STEP, detail=race.message_parts()[0])

    return until_won(attempt, lost=(OvertakenCommit, StagedFilesGone), gives_up=gives_up)


def _expire(
    spark: SparkSession,
    stream: Stream,
    lake: str,
    ledger: LedgerState,
    found: Expiry,
    followers: Followers,
    at: Callable[[str], None],
) -> Expiry:
    history = history_at(ledger, stream, lake)
    doing = "looking for rows that are kept no longer"
    with (
        spark_failures(stream.name, STEP, doing=doing, commits=True),
        expiring_messages(spark, stream, lake, ledger, history, found.kept_from) as messages,
    ):
        found = replace(found, rows_by_date=messages.rows_by_date, dead_letters=messages.letter_count)
        # Again, of this version: a drain may have come since the plan.
        if waits := waiting_followers(stream, messages.rows_by_date, followers, lake, kept_from=found.kept_from):
            return replace(found, waits_for=waits)
        entries: Sequence[LedgerEntry] = history.entries
        if not messages.is_nothing:
            entry = _commit(spark, stream, lake, ledger, history, messages, found.kept_from, at)
            at("commit sent")
            entries, found = (*entries, entry), replace(found, committed=entry)
    _delete_letters(spark, stream, lake, entries)
    at("letters deleted")
    return found


def _commit(
    spark: SparkSession,
    stream: Stream,
    lake: str,
    ledger: LedgerState,
    history: LiveHistory,
    messages: ExpiringMessages,
    kept_from: date,
    at: Callable[[str], None],
) -> LedgerEntry:
    """Write the offsets, then remove the rows and declare the messages in one commit."""
    entry = next_entry(
        stream,
        ledger,
        kind="expire",
        topic_id=history.entries[-1].topic_id,
        erasure=messages.counts,
        kept_from=later(kept_from, marked_kept_from(TableLog.existing(ledger.uri, ledger.version))),
        removed_by_date=messages.rows_by_date,
        planned_at=datetime.now(UTC),
    )
    uri = stream.erased_uri(lake)
    append_expired(messages.rows, messages.letters, uri, topic_id=entry.topic_id, attempt_id=entry.attempt_id)
    staged = _staged(TableAt.open(spark, ledger.uri, ledger.version), stream, messages, kept_from)
    at("files written")
    return commit(spark, staged, ledger.uri, read_version=ledger.version, entry=entry)


def _staged(table: TableAt, stream: Stream, messages: ExpiringMessages, kept_from: date) -> Staged:
    """The removal of the files of older dates; rows of messages that stay are written again.

    Raises:
        RowsUnaccounted: By the files' statistics, other rows than those selected would be removed.
    """
    adds = table.files_before(kept_from)
    if not messages.rows_by_date:
        return Staged()  # all rows of these files stay
    if messages.staying is None:
        staged = Staged(actions=scala_seq(table.spark, removals(adds)), replaces=frozenset(map(path_of, adds)))
        kept_rows = 0
    else:
        rows = table.rows_of(adds)
        kept = rows_of_messages(rows, stream, messages.staying)
        gone = as_deletions(rows_of_messages(rows, stream, messages.staying, others=True))
        kept = kept.selectExpr("*", f"CAST(NULL AS STRING) AS {CHANGE}")
        staged, written = replace_files(table, kept.unionByName(gone), removed=adds)
        kept_rows = written.rows or 0
    before, expected = table.counted(adds).rows, sum(messages.rows_by_date.values())
    if before is not None and before - kept_rows != expected:
        version = TableLog.existing(table.uri).version
        raise RowsUnaccounted(uri=table.uri, version=version, expected=expected, missing=before - kept_rows)
    return replace(staged, removed_by_date=messages.rows_by_date)


def _delete_letters(spark: SparkSession, stream: Stream, lake: str, entries: Sequence[LedgerEntry]) -> None:
    """Delete the dead letters, and the records of what became of them, that expiries declared.

    Only those of committed attempts: orphaned ones are not touched.

    Raises:
        UpkeepFailed: Spark failed, or other commits came first again and again.
    """
    from delta.exceptions import DeltaConcurrentModificationException
    from delta.tables import DeltaTable

    log, expiries = TableLog.open(stream.dead_letters_uri(lake)), [e for e in entries if e.kind == "expire"]
    if log is None or not expiries:
        return

    def attempt() -> None:
        stored = rows_at(spark, log.uri, TableLog.existing(log.uri).version)
        for condition in outside_losses(entries):
            stored = stored.where(condition)
        written = stored.join(committed_attempts(spark, entries), "attempt_id")
        expired = without_erased(spark, stream.erased_uri(lake), written, expiries, only=True)
        gone = expired.select("partition", "offset", "attempt_id").distinct()
        if not gone.limit(1).count():
            return
        same = " AND ".join(f"letter.{column} = gone.{column}" for column in gone.columns)
        DeltaTable.forPath(spark, log.uri).alias("letter").merge(gone.alias("gone"), same).whenMatchedDelete().execute()

    try:
        delta_log(spark, log.uri)  # refuses a session that commits by another log store
        # A drain that appends dead letters conflicts with a deletion that reads the whole table.
        until_won(attempt, lost=DeltaConcurrentModificationException)
    except spark_exceptions() as failed:
        step = "the removal of dead letters that are kept no longer"
        raise UpkeepFailed(table=stream.name, step=step, detail=root_cause(failed)) from failed
