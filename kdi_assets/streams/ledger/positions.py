"""Positions: the next offset to read of every topic partition, from the table's own log at its newest version.

The log's transaction ids hold the positions; after a RESTORE, ``delta.markers`` finds the version at which they hold. A
position is the next offset to read, while the log keeps the last offset covered: only this module and the commit
adapter convert them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from kdi_assets.delta.errors import CommitUnreadable
from kdi_assets.delta.log import CommitInfo, TableLog
from kdi_assets.delta.markers import Markers, live_markers, table_txn_id, topic_txn_id, version_id
from kdi_assets.documents.model.kinesis_stream import KinesisStream
from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.streams.ledger.archive import Archive
from kdi_assets.streams.ledger.entry import DeadLettersAt, LedgerEntry
from kdi_assets.streams.ledger.entry_json import parse_entry
from kdi_assets.streams.ledger.errors import (
    TRANSACTION_RETENTION,
    LedgerGap,
    TransactionRetentionSet,
    WrittenByNewerRelease,
)
from kdi_assets.streams.ledger.routes import Routes

RETIRED = -1
"""Position of a topic partition that is gone with its topic; the log cannot remove its transaction id."""


def partition_id(app_id: str, partition: int) -> str:
    """Transaction id of a topic partition, kafka-delta-ingest's; its version is the last offset covered, or -1."""
    return f"{app_id}-{partition}"


def read_transactions(log: TableLog, stream: Stream, topic_partitions: int) -> dict[str, int]:
    """The versions of the ledger's transaction ids that the log has, as recorded.

    Args:
        topic_partitions: The end of the numbers that may have holes; ids that follow it without one are found too.
    """
    app_id = stream.app_id
    found = {version_id(app_id): log.transaction_version(version_id(app_id))}
    partition = 0
    while True:
        present = log.transaction_version(partition_id(app_id, partition))
        if present is None and partition >= topic_partitions:
            break  # later numbers have no holes: the first absent id ends them
        found[partition_id(app_id, partition)] = present
        partition += 1
    return {app: version for app, version in found.items() if version is not None}


def positions_in(transactions: Mapping[str, int], stream: Stream) -> dict[TopicPartition, int]:
    """The positions that transaction ids stand for, without ``RETIRED`` ones."""
    return {tp: position for tp, position in all_positions_in(transactions, stream).items() if position != RETIRED}


def all_positions_in(transactions: Mapping[str, int], stream: Stream) -> dict[TopicPartition, int]:
    """The positions that transaction ids stand for, ``RETIRED`` ones included."""
    prefix = f"{stream.app_id}-"
    return {
        TopicPartition(stream.topic, int(app.removeprefix(prefix))): last + 1
        for app, last in transactions.items()
        if app.startswith(prefix)
    }


@dataclass(frozen=True, slots=True)
class LedgerState:
    """What the log of a stream's table says at one version.

    Attributes:
        version: The table's newest version when it was read; the next ledger commit must directly follow it.
        ledger_version: The version of the newest ledger commit; ``None`` if the log names none.
        positions: Next offset of every topic partition that was ever resolved, for the rows at this version. A topic
            partition that appeared after the version that a RESTORE went to starts at 0 again.
        transactions: The versions of the ledger's transaction ids, as recorded.
        restored_to: The version that a RESTORE went to, if no ledger commit followed it.
        table_id_matches: Whether the newest ledger commit was made to the table with this id.
        topic_id_matches: Whether it was made for the topic with this id.
        entry: The newest entry of the live rows; ``None`` if there is none, or neither log nor archive has it.
        undone_entry: The newest entry of all, if a RESTORE undid it and it can be read.
        has_unknown_files: Whether the table has data files and no positions, like a clone.
        log: The open table at ``version``; ``None`` if the state is kept for longer than a plan.
    """

    uri: str
    version: int
    table_id: str
    ledger_version: int | None
    positions: Mapping[TopicPartition, int]
    transactions: Mapping[str, int]
    restored_to: int | None
    table_id_matches: bool
    topic_id_matches: bool
    entry: LedgerEntry | None
    has_unknown_files: bool = False
    undone_entry: LedgerEntry | None = None
    log: TableLog | None = field(default=None, compare=False, repr=False)

    @property
    def table(self) -> TableLog:
        """The table at ``version``."""
        return self.log or TableLog.existing(self.uri, self.version)

    def vanished(self, found: Collection[TopicPartition]) -> list[TopicPartition]:
        """The topic partitions with a position that the source no longer has.

        Args:
            found: Those that it has. A shard that was read to its end may expire.
        """
        bookmarks = self.entry.bookmarks if self.entry else {}
        ended = {tp for tp, mark in bookmarks.items() if mark.ended}
        return sorted(self.positions.keys() - set(found) - ended)

    @property
    def dead_letters_at(self) -> DeadLettersAt | None:
        """The dead-letter table that the newest entry recorded."""
        return self.entry.dead_letters_at if self.entry else None

    @property
    def routes(self) -> Routes | None:
        """The route conditions by which the table is drained.

        A RESTORE does not bring back older conditions, because the other tables of the route group keep theirs. If the
        newest entry cannot be read, nothing is drained until someone decides.
        """
        newest = self.entry if self.restored_to is None else self.undone_entry
        if newest or not (self.entry and self.entry.routes):
            return newest.routes if newest else None
        return replace(self.entry.routes, stopped=True)


def read_ledger(
    stream: Stream, lake: str, *, topic_id: str, topic_partitions: int, version: int | None = None
) -> LedgerState | None:
    """Read the ledger of a stream without a JVM.

    Args:
        topic_partitions: The end of the source's numbers; positions of more topic partitions are found too.
        version: Read the ledger at this version of the table; by default the newest.

    Returns:
        ``None`` if the table does not exist.

    Raises:
        LedgerGap: Commits since the newest ledger commit cannot be read.
        TransactionRetentionSet: The table would lose positions.
        NotADeltaTable: The folder has files, but no Delta table.
        TableUnreadable: The log is damaged.
        CommitUnreadable: The log does not have the version.
    """
    log = TableLog.open(stream.table_uri(lake), version)
    if log is None:
        return None
    log.refuse_empty_commits()
    if retention := log.configuration.get(TRANSACTION_RETENTION):
        raise TransactionRetentionSet(stream=stream.name, uri=log.uri, value=retention)
    reader = _LedgerReader(stream, lake, topic_id, topic_partitions)
    try:
        live = reader.live(log)
        return reader.state(log, live, reader.entry(live))
    except CommitUnreadable as gone:
        of_kinesis = isinstance(stream, KinesisStream)
        raise LedgerGap(
            stream=stream.name, uri=log.uri, version=gone.version, why=gone.why, has_numbers=of_kinesis
        ) from gone


def read_ledger_despite_gap(stream: Stream, lake: str, *, topic_id: str, topic_partitions: int) -> LedgerState:
    """The ledger where ``read_ledger`` raises ``LedgerGap``: positions as recorded, which may not match the rows."""
    log = TableLog.existing(stream.table_uri(lake))
    reader = _LedgerReader(stream, lake, topic_id, topic_partitions)
    entry = None
    with suppress(CommitUnreadable):
        entry = reader.entry(log)
    return reader.state(log, log, entry)


def known_positions(ledger: LedgerState, stream: Stream) -> dict[TopicPartition, int]:
    """The positions of every topic partition in the log, ``RETIRED`` where it is gone with its topic."""
    return {**dict.fromkeys(all_positions_in(ledger.transactions, stream), RETIRED), **ledger.positions}


@dataclass(frozen=True, slots=True)
class _LedgerReader:
    stream: Stream
    lake: str
    topic_id: str
    topic_partitions: int

    def state(self, log: TableLog, live: TableLog, entry: LedgerEntry | None) -> LedgerState:
        """The state at a version, with the positions of the version whose rows the table has."""
        restored, newest = live.version != log.version, self._markers(log)
        undone = self._entry_if_readable(log) if restored else None
        recorded = self._transactions(log, undone or entry)
        positions = positions_in(recorded, self.stream)
        if restored:
            positions = {**dict.fromkeys(positions, 0), **positions_in(self._transactions(live, entry), self.stream)}
        return LedgerState(
            uri=log.uri,
            version=log.version,
            table_id=log.table_id,
            ledger_version=newest.committed,
            positions=positions,
            transactions=recorded,
            restored_to=live.version if restored else None,
            table_id_matches=newest.holds(table_txn_id(newest.writer, log.table_id)),
            # Both: a RESTORE to before a new topic brings back positions of the old topic; the log has the new id.
            topic_id_matches=self._topic_id_matches(live) and self._topic_id_matches(log),
            entry=entry,
            has_unknown_files=newest.committed is None and not positions and log.data_files.num_rows > 0,
            undone_entry=undone,
            log=log,
        )

    def live(self, log: TableLog) -> TableLog:
        """The version whose rows the table has now; its positions hold.

        Raises:
            CommitUnreadable: As ``live_markers``.
        """
        first = "the stream's first ledger commit"
        return live_markers(log, self.stream.app_id, first=first, older_ids=self._transactions).log

    def _transactions(self, log: TableLog, entry: LedgerEntry | None = None) -> dict[str, int]:
        # Shards of an earlier stream of the name may lie behind a hole, after the last one that the source has now.
        known = max((tp.partition + 1 for tp in entry.positions), default=0) if entry else 0
        return read_transactions(log, self.stream, max(self.topic_partitions, known))

    def _markers(self, log: TableLog) -> Markers:
        return Markers(self.stream.app_id, log)

    def _topic_id_matches(self, log: TableLog) -> bool:
        return self._markers(log).holds(topic_txn_id(self.stream.app_id, self.topic_id))

    def _entry_if_readable(self, log: TableLog) -> LedgerEntry | None:
        # Positions do not depend on the entry that a RESTORE undid.
        with suppress(CommitUnreadable, WrittenByNewerRelease):
            return self.entry(log)
        return None

    def entry(self, live: TableLog) -> LedgerEntry | None:
        version = self._markers(live).committed
        if version is None:
            return None
        commit: CommitInfo | None
        try:
            commit = live.commit(version)
        except CommitUnreadable as unreadable:
            # Cleaned up: the checkpoint has the positions, and the archive has the rest of the entry.
            commit = Archive(self.stream.archive_uri(self.lake), live.table_id).commit(version)
            if commit is None and not unreadable.gone:
                raise
        return parse_entry(commit.user_metadata, version, self.stream.app_id) if commit else None
