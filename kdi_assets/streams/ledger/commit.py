"""Commit: the ledger entry, and rows and positions in one Delta transaction that directly follows the planned version.

If another commit took the next version (``single_commit``), this module checks the commits that came between.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.errors import OvertakenCommit
from kdi_assets.delta.internals import set_transactions
from kdi_assets.delta.log import CommitInfo, TableLog
from kdi_assets.delta.markers import days_of, kept_from_id, table_txn_id, topic_txn_id, version_id
from kdi_assets.delta.single_commit import CommitRequest, VersionTaken, commit_behind, commit_once, refuse_conflicts
from kdi_assets.delta.transaction import Staged, start_table
from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.messages.shard_bookmarks import Bookmark
from kdi_assets.settings import deployment_name
from kdi_assets.streams.ledger.entry import (
    BELOW_POSITIONS,
    REPLAY_PREFIX,
    DeadLettersAt,
    Kind,
    LedgerEntry,
    unmoved_last_read,
)
from kdi_assets.streams.ledger.entry_json import entry_to_json, parse_entry
from kdi_assets.streams.ledger.errors import PositionWithoutBookmark
from kdi_assets.streams.ledger.positions import LedgerState, known_positions, partition_id

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


_MAY_FOLLOW: Mapping[Kind, Collection[Kind]] = {
    "drain": BELOW_POSITIONS,
    "replay": ("drain", "renewal"),
    "discard": ("drain", "renewal"),
    "erase": ("drain", "renewal"),
    "expire": ("drain", "renewal"),
}
"""By kind, the ledger commits that it may follow although its plan did not know them. Drains touch offsets from the
positions on; replays, discards, erasures and expiries only offsets below them."""


def next_entry(
    stream: Stream,
    ledger: LedgerState | None,
    *,
    kind: Kind,
    topic_id: str,
    positions: Mapping[TopicPartition, int] | None = None,
    bookmarks: Mapping[TopicPartition, Bookmark] | None = None,
    attempt_id: str = "",
    **fields: Any,
) -> LedgerEntry:
    """Make the entry of the next commit; the only place where entries are made.

    Every entry repeats all positions that the log has, and what later commits need. A commit that left one out would
    leave a stale transaction id, and messages would be lost or doubled.

    Args:
        ledger: The newest state of the ledger; ``None`` if the commit creates the table.
        topic_id: Of the topic that the positions belong to: the ledger's own, or one that a decision changes to.
        positions: Next offsets that the commit sets; other topic partitions keep theirs.
        bookmarks: The same of Kinesis, whose positions mean nothing without them.
        attempt_id: By default a new one.
        fields: Of ``LedgerEntry``. Dead letters, routes and the messages read last are carried over if not named here.

    Raises:
        PositionWithoutBookmark: As ``refuse_unmarked``.
    """
    newest = ledger.entry if ledger else None
    refuse_unmarked(stream, newest, topic_id, positions or {}, bookmarks or {})
    return LedgerEntry(
        version=-1,
        kind=kind,
        app_id=stream.app_id,
        attempt_id=attempt_id or f"{REPLAY_PREFIX if kind == 'replay' else ''}{uuid.uuid4()}",
        topic=stream.topic,
        topic_id=topic_id,
        table_id=ledger.table_id if ledger else "",
        deployment=deployment_name(),
        **{**_carried_over(stream, ledger, topic_id, positions or {}, bookmarks or {}), **fields},
    )


def _carried_over(
    stream: Stream,
    ledger: LedgerState | None,
    topic_id: str,
    moved: Mapping[TopicPartition, int],
    bookmarks: Mapping[TopicPartition, Bookmark],
) -> dict[str, Any]:
    """The fields that an entry has from the one before it: all positions with those that moved; others if not named."""
    after = {**(known_positions(ledger, stream) if ledger else {}), **moved}
    newest = ledger.entry if ledger else None
    same_topic = newest if newest and newest.topic_id == topic_id else None
    return {
        "positions": after,
        "bookmarks": {**(same_topic.bookmarks if same_topic else {}), **bookmarks},
        "dead_letters_at": ledger.dead_letters_at if ledger else None,
        "routes": ledger.routes if ledger else None,
        "last_read": unmoved_last_read(same_topic, after),
    }


def refuse_unmarked(
    stream: Stream,
    newest: LedgerEntry | None,
    topic_id: str,
    positions: Mapping[TopicPartition, int],
    bookmarks: Mapping[TopicPartition, Bookmark],
) -> None:
    """Refuse to move a position of Kinesis and to leave its bookmark: later records would get the wrong numbers.

    Raises:
        PositionWithoutBookmark: The newest entry has a bookmark of it, and there is no new one.
    """
    if newest is None or newest.topic_id != topic_id:
        return
    for tp in sorted(newest.bookmarks.keys() & positions.keys() - bookmarks.keys()):
        # Without a position, and with that of an earlier stream, nothing of the shard was read.
        if max(0, positions[tp]) != max(0, newest.positions.get(tp, 0)):
            raise PositionWithoutBookmark(stream=stream.name, topic_partition=tp, position=positions[tp])


def may_follow(entry: LedgerEntry, other: LedgerEntry | None) -> bool:
    """Whether the entry's commit may follow another ledger commit that its plan did not know."""
    return other is not None and other.kind in _MAY_FOLLOW.get(entry.kind, ())


def rebase(entry: LedgerEntry, other: LedgerEntry) -> LedgerEntry:
    """The entry as it must be after another entry: what it does not change itself is taken from the other."""
    if entry.kind in BELOW_POSITIONS:
        moved = {name: getattr(other, name) for name in ("positions", "bookmarks", "routes", "last_read")}
        entry = replace(entry, **moved)
    return replace(entry, dead_letters_at=_newer(entry.dead_letters_at, other.dead_letters_at))


def _newer(ours: DeadLettersAt | None, theirs: DeadLettersAt | None) -> DeadLettersAt | None:
    # The later one: from it the loss of the dead letters of either commit can be noticed.
    if ours is None or theirs is None:
        return ours or theirs
    return theirs if theirs.table_id == ours.table_id and theirs.version > ours.version else ours


def create_table(
    spark: SparkSession, schema: StructType, uri: str, *, properties: Mapping[str, str], entry: LedgerEntry
) -> LedgerEntry:
    """Create the table partitioned by ``date``, with its first positions in the same commit: version 0.

    Raises:
        OvertakenCommit: Another process created it first.
    """
    started = start_table(spark, uri, schema, properties)
    if started is None:
        raise OvertakenCommit(uri=uri, version=0, operation="CREATE TABLE")
    transaction, table_id = started
    entry = replace(entry, version=0, table_id=table_id)
    set_transactions(spark, transaction, ledger_transactions(entry, 0))
    try:
        commit_once(spark, transaction, Staged(), _request(entry, uri), 0)
    except VersionTaken as first:
        raise OvertakenCommit(uri=uri, version=0, operation="CREATE TABLE") from first
    return entry


def commit(spark: SparkSession, staged: Staged, uri: str, *, read_version: int, entry: LedgerEntry) -> LedgerEntry:
    """Commit rows and positions directly after the version read, or after commits that do not conflict.

    Args:
        read_version: The table version that the plan was checked against.
        entry: Made by ``next_entry``; its version is set here.

    Returns:
        The entry as committed.

    Raises:
        OvertakenCommit: A ledger commit, RESTORE, overwrite or metadata change came between.
        TableBusy: Commits that do not conflict came first too often in a row.
        StagedFilesGone: The files are missing, e.g. after a VACUUM.
        PlannedTableGone: The table is no longer the one of the plan.
    """

    def follow(newest: TableLog, after: int) -> CommitRequest:
        nonlocal entry
        check_for_conflicts(newest, after=after, entry=entry, replaces=staged.replaces)
        for found in newest.commits(after=after):
            if other := parse_entry(found.user_metadata, found.version, entry.app_id):
                entry = rebase(entry, other)
        return _request(entry, uri)

    version = commit_behind(read_version, spark, staged, _request(entry, uri), follow=follow)
    return replace(entry, version=version)


def check_for_conflicts(newest: TableLog, *, after: int, entry: LedgerEntry, replaces: Collection[str]) -> None:
    """Check the commits after version ``after``.

    Args:
        entry: Of the commit that was planned at version ``after``.
        replaces: Files that it replaces.

    Raises:
        OvertakenCommit: As ``refuse_conflicts``.
    """
    partitions = (partition_id(entry.app_id, tp.partition) for tp in entry.positions)
    ids = {version_id(entry.app_id), *partitions}

    def conflicts(found: CommitInfo) -> bool:
        other = parse_entry(found.user_metadata, found.version, entry.app_id)
        moved = bool(ids & found.transactions.keys()) and not may_follow(entry, other)
        # A decision is based on all rows of the table, so every later commit is a conflict.
        return entry.kind == "resolve" or found.replaces_rows or moved

    refuse_conflicts(newest, after=after, replaces=replaces, conflicts=conflicts)


def ledger_transactions(entry: LedgerEntry, version: int) -> dict[str, int]:
    """Every transaction id of the ledger: an id that a commit does not set would be stale after the next RESTORE.

    Only the first date that is kept is set by expiries alone: a RESTORE does not set it back.
    """
    app_id = entry.app_id
    names = (version_id(app_id), topic_txn_id(app_id, entry.topic_id), table_txn_id(app_id, entry.table_id))
    ids = {partition_id(app_id, tp.partition): offset - 1 for tp, offset in entry.positions.items()}
    left = entry.kept_from if entry.removed_by_date else None  # not if only dead letters left
    kept_from = {kept_from_id(entry.table_id): days_of(left)} if left else {}
    return {**ids, **dict.fromkeys(names, version), **kept_from}


def _request(entry: LedgerEntry, uri: str) -> CommitRequest:
    def user_metadata(version: int) -> str:
        return entry_to_json(replace(entry, version=version))

    return CommitRequest(uri, entry.table_id, entry.attempt_id, partial(ledger_transactions, entry), user_metadata)
