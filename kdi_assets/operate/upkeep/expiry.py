"""Expiry: rows whose dates are kept no longer leave, and old dead letters, and the ledger accounts for them.

Order, as of an erasure: the offsets are written to ``<table>_erased``; one ledger commit removes the rows and declares
the messages; then the dead letters are deleted, which that commit already declared. If the process ends before the last
step, no reader of ours shows these letters, and the next upkeep deletes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import cache, partial
from typing import TYPE_CHECKING

from kdi_assets.delta.errors import OvertakenCommit, StagedFilesGone
from kdi_assets.delta.files import CHANGE, TableAt, replace_files
from kdi_assets.delta.internals import path_of, removals
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.lost_races import until_won
from kdi_assets.delta.markers import kept_from as marked_kept_from
from kdi_assets.delta.transaction import Staged
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.entry import RefineEntry
from kdi_assets.follow.upstream import later
from kdi_assets.operate.upkeep.errors import UpkeepFailed, spark_failures
from kdi_assets.operate.upkeep.expiring_messages import ExpiringMessages, expiring_messages
from kdi_assets.operate.upkeep.old_letters import count_old_letters, delete_letters
from kdi_assets.operate.upkeep.unconsumed import Followers, waiting_followers
from kdi_assets.runtime.spark_internals import scala_seq
from kdi_assets.streams.ledger.commit import commit, next_entry
from kdi_assets.streams.ledger.dates import as_dates
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.erased import append_expired
from kdi_assets.streams.ledger.errors import RowsUnaccounted
from kdi_assets.streams.ledger.history import LiveHistory, history_at
from kdi_assets.streams.ledger.positions import LedgerState, read_ledger
from kdi_assets.streams.ledger.rewrite import as_deletions, rows_of_messages
from kdi_assets.streams.spark_errors import jvm_loss_named
from kdi_assets.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEP = "the removal of rows that are kept no longer"
LONGEST_SILENCE, PATIENCE = timedelta(days=30), timedelta(days=7)
"""After so long without a ledger entry a scheduled expiry does not trust the clock; so long dates may wait."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """What is kept no longer, or was removed.

    Attributes:
        kept_from: The oldest date that is kept.
        rows_by_date: Rows with older dates. Before they are removed, of all messages; a message that also has rows of
            kept dates stays.
        dead_letters: Messages with dead letters that leave, as ``old_letters`` has them.
        waits_for: Why nothing is removed yet: followers that have not consumed the dates, or a drain that must come
            first.
        committed: The entry of the commit, in the ledger or of the refined table; ``None``: no row was removed.
        newest_entry: When the newest ledger entry was made that says so, or the newest commit of a refined table, UTC;
            ``None``: unknown, or nothing is older.
    """

    kept_from: date
    rows_by_date: Mapping[date, int] = field(default_factory=dict)
    dead_letters: int = 0
    waits_for: tuple[str, ...] = ()
    committed: LedgerEntry | RefineEntry | None = None
    newest_entry: datetime | None = None

    @property
    def rows(self) -> int:
        return sum(self.rows_by_date.values())

    @property
    def is_due(self) -> bool:
        """Whether something is kept no longer, and nothing has to come before it is removed."""
        return bool(self.rows_by_date or self.dead_letters) and not self.waits_for

    @property
    def is_overdue(self) -> bool:
        """Whether rows wait that should have left more than ``PATIENCE`` ago."""
        return bool(self.waits_for and self.rows_by_date) and min(self.rows_by_date) < self.kept_from - PATIENCE

    def unless_clock_is_wrong(self, name: str, *, now: datetime) -> Expiry:
        """What a schedule may do: after a long silence it waits, because a clock that is ahead would end all rows.

        Args:
            name: Of the stream or the refined table.
        """
        if not self.is_due or self.newest_entry is None or now - self.newest_entry <= LONGEST_SILENCE:
            return self
        why = (
            f"the clock of this machine says {now:%Y-%m-%d}, and the newest commit of the table is of "
            f"{self.newest_entry:%Y-%m-%d}; if that is right, `kdi upkeep {name} --yes` does it"
        )
        return replace(self, waits_for=(why,))

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


@dataclass(frozen=True, slots=True)
class _Removal:
    """A table at the version at which something of it is kept no longer.

    Attributes:
        history: Up to this version.
    """

    stream: Stream
    lake: str
    followers: Followers
    ledger: LedgerState
    history: LiveHistory
    kept_from: date

    def waits_for(self, rows: Mapping[date, int]) -> tuple[str, ...]:
        if self.ledger.restored_to is not None:
            return (f"{self.stream.name}: the table was restored, and no drain has set its positions back yet",)
        if self.ledger.entry is None:
            return (f"{self.stream.name}: no drain has taken over the table yet, or its entries are gone",)
        return waiting_followers(self.stream, rows, self.followers, self.lake, kept_from=self.kept_from)


def plan_expiry(stream: Stream, lake: str, followers: Followers, *, now: datetime) -> Expiry | None:
    """What is kept no longer; changes nothing, needs no JVM.

    Returns:
        ``None`` if all rows are kept for ever, or there is no table.

    Raises:
        KdiError: The log or the storage cannot be read.
    """
    return _plan(stream, lake, followers, now)[0]


def _plan(stream: Stream, lake: str, followers: Followers, now: datetime) -> tuple[Expiry | None, _Removal | None]:
    """What is kept no longer, and how it is removed; the history is read only if there is something."""
    kept_from = stream.kept_from(now)
    ledger = None if kept_from is None else read_ledger(stream, lake, topic_id="", topic_partitions=0)
    if kept_from is None or ledger is None:
        return None, None
    history = cache(partial(history_at, ledger, stream, lake))
    rows = rows_before(TableLog.existing(ledger.uri, ledger.version), kept_from)
    letters = count_old_letters(stream, lake, history, before=kept_from)
    if not rows and not letters:
        return Expiry(kept_from), None
    removal = _Removal(stream, lake, followers, ledger, history(), kept_from)
    newest = next((e.planned_at for e in reversed(removal.history.entries) if e.planned_at), None)
    return Expiry(kept_from, rows, letters, removal.waits_for(rows), newest_entry=newest), removal


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
        found, removal = _plan(stream, lake, followers, now)
        if found is None or removal is None or not found.is_due:
            return found
        with jvm_loss_named(stream):
            return _expire(session(), removal, found, at)

    return until_won(attempt, lost=(OvertakenCommit, StagedFilesGone), gives_up=partial(gave_up, stream.name))


def gave_up(table: str, race: KdiError) -> UpkeepFailed:
    """What the upkeep says of an expiry that lost too many races."""
    return UpkeepFailed(table=table, step=STEP, detail=race.message_parts()[0])


def _expire(spark: SparkSession, removal: _Removal, found: Expiry, at: Callable[[str], None]) -> Expiry:
    stream, lake, history = removal.stream, removal.lake, removal.history
    doing = "looking for rows that are kept no longer"
    with (
        spark_failures(stream.name, STEP, doing=doing, commits=True),
        expiring_messages(spark, stream, lake, removal.ledger, history, removal.kept_from) as messages,
    ):
        letters = messages.letter_count + messages.superseded_count
        found = replace(found, rows_by_date=messages.rows_by_date, dead_letters=letters)
        # Again, of the rows that leave: those of messages that stay wait for nobody.
        if waits := removal.waits_for(messages.rows_by_date):
            return replace(found, waits_for=waits)
        entries: Sequence[LedgerEntry] = history.entries
        if not messages.is_nothing:
            entry = _commit(spark, removal, messages, at)
            at("commit sent")
            entries, found = (*entries, entry), replace(found, committed=entry)
    delete_letters(spark, stream, lake, entries, before=removal.kept_from)
    at("letters deleted")
    return found


def _commit(
    spark: SparkSession, removal: _Removal, messages: ExpiringMessages, at: Callable[[str], None]
) -> LedgerEntry:
    """Write the offsets, then remove the rows and declare the messages in one commit."""
    stream, ledger = removal.stream, removal.ledger
    marked = marked_kept_from(TableLog.existing(ledger.uri, ledger.version))
    entry = next_entry(
        stream,
        ledger,
        kind="expire",
        topic_id=removal.history.entries[-1].topic_id,
        erasure=messages.counts,
        kept_from=later(removal.kept_from, marked),
        removed_by_date=messages.rows_by_date,
        planned_at=datetime.now(UTC),
    )
    uri = stream.erased_uri(removal.lake)
    append_expired(messages.rows, messages.letters, uri, topic_id=entry.topic_id, attempt_id=entry.attempt_id)
    staged = _staged(TableAt.open(spark, ledger.uri, ledger.version), stream, messages, removal.kept_from)
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
