"""Positions: the next offset of every topic partition, as the table's own log answers at its newest version.

``txn`` actions are the truth, with two corrections that this module makes. A RESTORE brings old rows back and leaves
newer ``txn`` actions standing, so the positions are then those of the version that it went to. And a position is the
next offset to read, where the log keeps the last one covered: only here and in the commit adapter that differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from kdi_assets.ledger.archive import Archive
from kdi_assets.ledger.commit_info import CommitInfo
from kdi_assets.ledger.delta_log import TableLog, restore_target
from kdi_assets.ledger.entry import DeadLettersAt, LedgerEntry, entry_of
from kdi_assets.ledger.errors import (
    TRANSACTION_RETENTION,
    CommitUnreadable,
    LedgerGap,
    TransactionRetentionSet,
    WrittenByNewerRelease,
)
from kdi_assets.ledger.routes import Routes
from kdi_assets.ledger.transaction_ids import (
    RETIRED,
    all_positions_in,
    positions_in,
    read_transactions,
    table_txn_id,
    topic_txn_id,
    version_id,
)
from kdi_assets.stream.stream import Stream, TopicPartition


@dataclass(frozen=True, slots=True)
class LedgerState:
    """What the log of a stream's table says at one version.

    Attributes:
        version: The table's newest version when it was read; a commit must land directly behind it.
        ledger_version: The version of the newest ledger commit, ``None`` if no commit of ours is known.
        positions: Next offset of every topic partition that was ever resolved, for the rows that are there now. After a
            RESTORE to before a topic partition appeared, it begins at 0 again.
        transactions: The log's transaction ids of this ledger as they stand.
        restored_to: The version that a RESTORE went to which no ledger commit has answered yet.
        knows_table: Whether the newest ledger commit was made to a table of this id.
        knows_topic: Whether it was made for a topic of this id.
        entry: The newest ledger entry of the live rows; ``None`` if there is none, or neither log nor archive has it.
        undone: The newest of all, where a RESTORE undid it; ``None`` where it is the live one, or not readable.
        unclaimed: Whether the table has data files and no position at all, as a clone does.
        log: The table at ``version``, still open; ``None`` where the state was kept longer than a plan.
    """

    uri: str
    version: int
    table_id: str
    ledger_version: int | None
    positions: Mapping[TopicPartition, int]
    transactions: Mapping[str, int]
    restored_to: int | None
    knows_table: bool
    knows_topic: bool
    entry: LedgerEntry | None
    unclaimed: bool = False
    undone: LedgerEntry | None = None
    log: TableLog | None = field(default=None, compare=False, repr=False)

    @property
    def table(self) -> TableLog:
        """The table at ``version``."""
        return self.log or TableLog.existing(self.uri, self.version)

    @property
    def dead_letters_at(self) -> DeadLettersAt | None:
        """The dead-letter table that the ledger counts on so far."""
        return self.entry.dead_letters_at if self.entry else None

    @property
    def routes(self) -> Routes | None:
        """By which conditions of its route group the table is drained.

        A RESTORE brings no former ones back: the other tables did not go back with it. Where the newest entry is not
        readable, nothing is drained until somebody decides.
        """
        newest = self.entry if self.restored_to is None else self.undone
        if newest or not (self.entry and self.entry.routes):
            return newest.routes if newest else None
        return replace(self.entry.routes, stopped=True)


def read_ledger(
    stream: Stream, lake: str, *, topic_id: str, topic_partitions: int, version: int | None = None
) -> LedgerState | None:
    """Read the ledger of a stream without a JVM.

    Args:
        topic_partitions: How many the broker has; a position beyond them is found all the same.
        version: As the ledger was at this version of the table; by default the newest.

    Returns:
        ``None`` if the table does not exist.

    Raises:
        LedgerGap: Commits behind the newest ledger commit are unreadable.
        TransactionRetentionSet: The table would forget positions.
        NotADeltaTable: Something else lies there.
        TableUnreadable: The log is damaged.
        CommitUnreadable: The version asked for is not in the log.
    """
    log = TableLog.open(stream.table_uri(lake), version)
    if log is None:
        return None
    log.refuse_torn()
    if retention := log.configuration.get(TRANSACTION_RETENTION):
        raise TransactionRetentionSet(stream=stream.name, uri=log.uri, value=retention)
    ledger = _Ledger(stream, lake, topic_partitions)
    try:
        live, positions = ledger.live(log)
        entry = ledger.entry(live)
        return _state(ledger, log, live, positions, entry, topic_id=topic_id)
    except CommitUnreadable as gone:
        raise LedgerGap(stream=stream.name, uri=log.uri, version=gone.version, why=gone.why) from gone


def ledger_as_logged(stream: Stream, lake: str, *, topic_id: str, topic_partitions: int) -> LedgerState:
    """The ledger where ``read_ledger`` finds a gap: with the ids as they stand, whether or not they suit the rows."""
    log = TableLog.existing(stream.table_uri(lake))
    ledger = _Ledger(stream, lake, topic_partitions)
    entry = None
    with suppress(CommitUnreadable):
        entry = ledger.entry(log)
    positions = positions_in(read_transactions(log, stream, topic_partitions), stream)
    return _state(ledger, log, log, positions, entry, topic_id=topic_id)


def _state(
    ledger: _Ledger,
    log: TableLog,
    live: TableLog,
    positions: Mapping[TopicPartition, int],
    entry: LedgerEntry | None,
    *,
    topic_id: str,
) -> LedgerState:
    stream = ledger.stream
    raw = read_transactions(log, stream, ledger.topic_partitions)
    newest = raw.get(version_id(stream.app_id))
    restored = live.version != log.version
    if restored:
        positions = {**dict.fromkeys(positions_in(raw, stream), 0), **positions}
    return LedgerState(
        uri=log.uri,
        version=log.version,
        table_id=log.table_id,
        ledger_version=newest,
        positions=positions,
        transactions=raw,
        restored_to=live.version if restored else None,
        knows_table=newest is not None and log.transaction(table_txn_id(stream.app_id, log.table_id)) == newest,
        # Both: a RESTORE to before a new topic brings back positions of the old one, under the new one's id.
        knows_topic=ledger.names_topic(live, topic_id) and ledger.names_topic(log, topic_id),
        entry=entry,
        unclaimed=newest is None and not positions and log.data_files.num_rows > 0,
        undone=ledger.undone(log) if restored else None,
        log=log,
    )


def known_positions(ledger: LedgerState, stream: Stream) -> dict[TopicPartition, int]:
    """The positions of every topic partition that the log knows, ``RETIRED`` where it is gone with its topic."""
    return {**dict.fromkeys(all_positions_in(ledger.transactions, stream), RETIRED), **ledger.positions}


@dataclass(frozen=True, slots=True)
class _Ledger:
    stream: Stream
    lake: str
    topic_partitions: int

    def live(self, log: TableLog) -> tuple[TableLog, dict[TopicPartition, int]]:
        """The version whose positions hold for the rows at ``log``'s version, and these positions.

        Raises:
            CommitUnreadable: A commit that decides about it is gone, or the table was restored to before the ledger.
        """
        transactions = read_transactions(log, self.stream, self.topic_partitions)
        positions, since = positions_in(transactions, self.stream), transactions.get(version_id(self.stream.app_id))
        if since is None and not positions:
            return log, {}  # a table that nobody drained into yet, whatever was restored in it
        target = self._last_restore(log, since)
        if target is None:
            return log, positions
        restored = TableLog.existing(log.uri, target)
        if since is not None and restored.transaction(version_id(self.stream.app_id)) is None:
            why = "is older than the stream's first ledger commit, and the table was restored to it"
            raise CommitUnreadable(log.uri, target, why=why)
        # A version that is itself a RESTORE answers the transactions from before it: hence the same question again.
        return self.live(restored)

    def _last_restore(self, log: TableLog, since: int | None) -> int | None:
        """Where the last RESTORE behind the newest ledger commit went; without one, behind another writer's."""
        for version in range(log.version, -1 if since is None else since, -1):
            try:
                commit = log.commit(version)
            except CommitUnreadable:
                if since is None:
                    return None  # a table that never was ours: its older log may be cleaned up
                raise
            if commit.is_restore:
                return restore_target(log, commit)
            if since is None and any(app.startswith(f"{self.stream.app_id}-") for app in commit.transactions):
                return None
        return None

    def names_topic(self, log: TableLog, topic_id: str) -> bool:
        """Whether the newest ledger commit at the log's version was made for this topic."""
        newest = log.transaction(version_id(self.stream.app_id))
        return newest is not None and log.transaction(topic_txn_id(self.stream.app_id, topic_id)) == newest

    def undone(self, log: TableLog) -> LedgerEntry | None:
        """The newest entry, which a RESTORE undid: good to know, and nothing that positions depend on."""
        with suppress(CommitUnreadable, WrittenByNewerRelease):
            return self.entry(log)
        return None

    def entry(self, live: TableLog) -> LedgerEntry | None:
        version = live.transaction(version_id(self.stream.app_id))
        if version is None:
            return None
        commit: CommitInfo | None
        try:
            commit = live.commit(version)
        except CommitUnreadable as unreadable:
            # Cleaned up: the positions are in the checkpoint, and what else it said is in the archive.
            commit = Archive(self.stream.archive_uri(self.lake), live.table_id).commit(version)
            if commit is None and not unreadable.gone:
                raise
        return entry_of(commit.user_metadata, version, self.stream.app_id) if commit else None
