"""One replay is one commit: what becomes of dead letters is appended first, and counts with the ledger entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from kdi_assets.delta.errors import OvertakenCommit, StagedFilesGone
from kdi_assets.delta.lost_races import COMMIT_ATTEMPTS, until_won
from kdi_assets.delta.transaction import Staged
from kdi_assets.documents.model.stream import OffsetRange, Stream
from kdi_assets.messages.topic_state import TopicState
from kdi_assets.runtime.cpu_clock import CpuClock
from kdi_assets.streams.drain.dead_letters import append_letters, check_letters_intact_or_retry
from kdi_assets.streams.drain.errors import AccountingMismatch, DeadLettersGone, NotDrainedYet, another_active
from kdi_assets.streams.drain.position_commit import commit_positions
from kdi_assets.streams.drain.report import heard_by_listeners
from kdi_assets.streams.drain.route_change import routes_to_drain_by
from kdi_assets.streams.drain.snapshot import Snapshot, snapshot_without_topic, take_snapshot
from kdi_assets.streams.ledger.commit import commit, next_entry
from kdi_assets.streams.ledger.entry import Kind, LedgerEntry
from kdi_assets.streams.ledger.history import LiveHistory, history_at
from kdi_assets.streams.ledger.positions import LedgerState
from kdi_assets.streams.ledger.rewrite import message_key
from kdi_assets.streams.replay.report import ReplayReport, Tally
from kdi_assets.streams.spark_errors import jvm_loss_named, refused_to, spark_failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOST_RACE = (OvertakenCommit, StagedFilesGone, DeadLettersGone)
"""What a transaction raises that lost a race of commits; it is tried again."""


@dataclass(frozen=True, slots=True)
class ReplayTransaction:
    """A replay of a stream's messages, planned on one version of its table.

    Attributes:
        clock: Runs since the replay began, lost commit races included.
    """

    stream: Stream
    lake: str
    spark: SparkSession
    topic: TopicState
    ledger: LedgerState
    history: LiveHistory
    now: datetime
    entry: LedgerEntry
    clock: CpuClock

    @property
    def message_key(self) -> Sequence[str]:
        """The coordinates by which the table's rows are found for a message."""
        return message_key(self.ledger.table.schema, self.stream)

    def append_dead_letters(self, letters: DataFrame, expected: Tally, *, ranges: Sequence[OffsetRange]) -> LedgerEntry:
        """Append outcomes of dead letters, and new dead letters; they count once the returned entry is committed.

        Args:
            letters: As ``judge.verdicts`` or ``judge.to_dead_letters`` gives them, or the union of both.
            expected: Their count and digest.

        Raises:
            AccountingMismatch: Others were written.
        """
        uri, window = self.stream.dead_letters_uri(self.lake), self.stream.date_window
        with spark_failures(self.stream, "writing what becomes of dead letters"):
            dates = (window.first, window.last(self.now))
            written = append_letters(letters, uri, attempt_id=self.entry.attempt_id, between=dates)
        if Tally(written.count, written.digest) != expected:
            raise self.mismatch(f"{written.count:,} dead letters were written, of {expected.count:,}", ranges)
        return replace(self.entry, dead_letters_at=written.at, letters_by_date=written.by_date)

    def mismatch(self, detail: str, ranges: Sequence[OffsetRange]) -> AccountingMismatch:
        """The error: counts of the replay do not agree."""
        return AccountingMismatch(stream=self.stream.name, detail=detail, ranges=tuple(ranges))

    def commit(self, staged: Staged, entry: LedgerEntry) -> LedgerEntry:
        """Commit rows and outcomes directly after the planned version, or after drains that came between.

        Raises:
            OvertakenCommit: A commit that is not a drain came between.
            DeadLettersGone: The outcomes, or letters that count, may be gone.
        """
        for counted_on in {self.ledger.dead_letters_at, entry.dead_letters_at}:
            check_letters_intact_or_retry(self.stream, self.lake, counted_on)
        entry = replace(entry, cpu_seconds=round(self.clock.seconds(), 3))
        with spark_failures(self.stream, "committing"):
            return commit(self.spark, staged, self.ledger.uri, read_version=self.ledger.version, entry=entry)


def run_transaction(
    stream: Stream,
    lake: str,
    session: Callable[[], SparkSession],
    kind: Kind,
    body: Callable[[ReplayTransaction], ReplayReport],
    command: str,
    *,
    empty: ReplayReport,
    run_id: str = "",
    dry_run: bool = False,
) -> ReplayReport:
    """Run the body on a new transaction, and again after each lost commit race.

    Ledger and history are of one version; what is committed after it is met at our commit. After a commit of positions
    both are read again, which costs no attempt.

    Args:
        empty: The answer if nothing was drained yet.
        dry_run: Commit nothing, not even the positions that answer a RESTORE.

    Raises:
        AnotherDrainActive, NotDrainedYet, KdiError: Too many races were lost; another writer's table; as a drain.
    """
    clock = CpuClock()
    hearing = nullcontext(_nobody) if dry_run else heard_by_listeners(kind, stream, lake, session, run_id=run_id)
    with hearing as heard, refused_to(command):

        def attempt() -> ReplayReport:
            with jvm_loss_named(stream):
                looked = _newest_state(stream, lake, session, kind, dry_run=dry_run)
                if looked is None:
                    return empty
                spark = session() if dry_run else clock.watching(session())
                report = body(_begin(stream, lake, spark, *looked, kind, run_id, clock))
            if report.commit:
                heard(report.commit)
            return report

        return until_won(attempt, lost=LOST_RACE, gives_up=partial(another_active, stream.name))


def _newest_state(
    stream: Stream, lake: str, session: Callable[[], SparkSession], kind: Kind, *, dry_run: bool
) -> tuple[Snapshot, LedgerState, LiveHistory] | None:
    """As ``_look``, after a commit of positions if one had to come first."""
    look = partial(_look, stream, lake, session, kind, dry_run=dry_run)
    return until_won(look, lost=OvertakenCommit, most=COMMIT_ATTEMPTS)


def _look(
    stream: Stream, lake: str, session: Callable[[], SparkSession], kind: Kind, *, dry_run: bool
) -> tuple[Snapshot, LedgerState, LiveHistory] | None:
    """Ledger and history of one version; ``None`` if nothing was drained yet.

    Raises:
        OvertakenCommit: Positions had to be committed first, and what was read is older than that commit.
    """
    # What is given up is not read again: it needs no topic.
    without_topic = kind == "discard" and stream.status == "retired"
    snapshot = snapshot_without_topic(stream, lake) if without_topic else take_snapshot(stream, lake)
    ledger, pending = _drained_ledger(stream, lake, snapshot, kind), snapshot.position_commit
    if ledger is None:
        return None
    if pending and not dry_run:
        commit_positions(session(), pending, stream, lake, ledger=ledger, topic=snapshot.topic)
        raise OvertakenCommit(uri=ledger.uri, version=ledger.version + 1, operation="our commit of positions")
    return snapshot, ledger, history_at(ledger, stream, lake)


def _drained_ledger(stream: Stream, lake: str, snapshot: Snapshot, kind: Kind) -> LedgerState | None:
    """The table's state if a drain left it or a RESTORE brought it back; ``None`` if nothing was drained yet."""
    ledger, pending = snapshot.ledger, snapshot.position_commit
    if pending and pending.kind == "takeover":
        raise NotDrainedYet(stream=stream.name, uri=stream.table_uri(lake))
    if ledger is None or (pending and pending.kind != "restore"):
        return None
    if kind == "replay" and not pending:
        routes_to_drain_by(stream, ledger, snapshot.positions())  # refuses if a message's table is unclear
    return ledger


def _nobody(entry: LedgerEntry) -> None:
    """A dry run commits nothing that anybody could hear of."""


def _begin(
    stream: Stream,
    lake: str,
    spark: SparkSession,
    snapshot: Snapshot,
    ledger: LedgerState,
    history: LiveHistory,
    kind: Kind,
    run_id: str,
    clock: CpuClock,
) -> ReplayTransaction:
    now, topic = datetime.now(UTC), snapshot.topic
    entry = next_entry(stream, ledger, kind=kind, topic_id=topic.topic_id, run_id=run_id, planned_at=now)
    return ReplayTransaction(stream, lake, spark, topic, ledger, history, now, entry, clock)
