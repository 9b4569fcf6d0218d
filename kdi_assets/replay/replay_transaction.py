"""One replay as one commit: records of dead letters are appended first, the entry makes them count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kdi_assets.drain.dead_letters import append_letters, refuse_gone
from kdi_assets.drain.errors import AccountingMismatch, AnotherDrainActive, DeadLettersGone, NotDrainedYet
from kdi_assets.drain.position_commit import commit_positions
from kdi_assets.drain.route_change import routes_to_drain_by
from kdi_assets.drain.snapshot import take_snapshot
from kdi_assets.drain.spark_errors import jvm_loss_named, refused_to, spark_failures
from kdi_assets.ledger.commit import commit, next_entry
from kdi_assets.ledger.delta_transaction import Staged
from kdi_assets.ledger.entry import Kind, LedgerEntry
from kdi_assets.ledger.errors import OvertakenCommit, StagedFilesGone
from kdi_assets.ledger.history import LiveHistory, live_history
from kdi_assets.ledger.positions import LedgerState
from kdi_assets.replay.report import ReplayReport, Tally
from kdi_assets.sources.kafka.topic import TopicState
from kdi_assets.stream.stream import OffsetRange, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRIES = 5
"""So often others may come first before they have the field."""


@dataclass(frozen=True, slots=True)
class ReplayTransaction:
    """A stream of whose messages something is to become, at one version of its table."""

    stream: Stream
    lake: str
    spark: SparkSession
    topic: TopicState
    ledger: LedgerState
    history: LiveHistory
    now: datetime
    entry: LedgerEntry

    def tell(self, said: DataFrame, expected: Tally, *, ranges: Sequence[OffsetRange]) -> LedgerEntry:
        """Append what becomes of letters, and letters; it does not count before the commit of the entry.

        Args:
            said: As ``judge.verdicts`` gives it, or ``judge.to_dead_letters``, or both.
            expected: How many these are.

        Raises:
            AccountingMismatch: Others were written.
        """
        uri, between = self.stream.dead_letters_uri(self.lake), self.stream.date_window
        with spark_failures(self.stream, "writing what becomes of dead letters"):
            dates = (between.start, between.last(self.now))
            written = append_letters(said, uri, attempt_id=self.entry.attempt_id, between=dates)
        if Tally(written.count, written.digest) != expected:
            raise self.mismatch(f"{written.count:,} dead letters were written, of {expected.count:,}", ranges)
        return replace(self.entry, dead_letters_at=written.at, letters_by_date=written.by_date)

    def mismatch(self, detail: str, ranges: Sequence[OffsetRange]) -> AccountingMismatch:
        """The refusal of what does not add up."""
        return AccountingMismatch(stream=self.stream.name, detail=detail, ranges=tuple(ranges))

    def commit(self, staged: Staged, entry: LedgerEntry) -> LedgerEntry:
        """Make rows and outcomes count.

        Raises:
            OvertakenCommit: Something else happened to the table than drains.
            DeadLettersGone: The outcomes, or letters that count, may not be there any more.
        """
        for counted_on in {self.ledger.dead_letters_at, entry.dead_letters_at}:
            refuse_gone(self.stream, self.lake, counted_on)
        with spark_failures(self.stream, "committing"):
            return commit(self.spark, staged, self.ledger.uri, read_version=self.ledger.version, entry=entry)


def until_not_overtaken(
    stream: Stream,
    lake: str,
    session: Callable[[], SparkSession],
    kind: Kind,
    act: Callable[[ReplayTransaction], ReplayReport],
    *,
    command: str,
    nothing: ReplayReport,
    run_id: str = "",
    settles: bool = True,
) -> ReplayReport:
    """Look at the stream and act, again where others came first.

    Args:
        act: Is given what its commit is planned on.
        command: What was asked for, as refusals are to name it.
        nothing: The answer where nothing was drained yet.
        settles: Whether what must be committed before anything is read is, as a drain would: the answer to a RESTORE.

    Raises:
        AnotherDrainActive: Overtaken again and again.
        NotDrainedYet: The table is another writer's still.
        KdiError: What a drain would refuse as well.
    """
    with refused_to(command):
        for left in reversed(range(TRIES)):
            seen = take_snapshot(stream, lake)
            pending = seen.position_commit
            if pending and pending.kind == "takeover":
                raise NotDrainedYet(stream=stream.name, uri=stream.table_uri(lake))
            if seen.ledger is None or (pending and pending.kind != "restore"):
                return nothing
            if kind == "replay" and not pending:
                routes_to_drain_by(stream, seen.ledger, seen.positions())  # else nobody knows whose a message is
            try:
                with jvm_loss_named(stream):
                    if pending and settles:
                        commit_positions(session(), pending, stream, lake, ledger=seen.ledger, topic=seen.topic)
                        continue
                    return act(_deciding(stream, lake, session(), seen.topic, seen.ledger, kind, run_id))
            except (OvertakenCommit, StagedFilesGone, DeadLettersGone) as overtaken:
                if not left:
                    raise AnotherDrainActive(stream=stream.name, detail=overtaken.message_parts()[0]) from overtaken
        raise AnotherDrainActive(stream=stream.name, detail="the table was restored again and again")


def _deciding(
    stream: Stream, lake: str, spark: SparkSession, topic: TopicState, ledger: LedgerState, kind: Kind, run_id: str
) -> ReplayTransaction:
    history = live_history(ledger.uri, stream.app_id, archive_uri=stream.archive_uri(lake))
    if history is None or history.version != ledger.version:
        raise OvertakenCommit(uri=ledger.uri, version=ledger.version + 1, operation="while it was looked at")
    now = datetime.now(UTC)
    entry = next_entry(stream, ledger, kind=kind, topic_id=topic.topic_id, run_id=run_id, planned_at=now)
    return ReplayTransaction(stream, lake, spark, topic, ledger, history, now, entry)
