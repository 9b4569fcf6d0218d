"""Erasure: messages leave the table, its dead letters and its removed rows, and the ledger accounts for them.

Order: the offsets are written to ``<table>_erased``; one ledger commit removes the rows and declares the erased
messages; then the dead letters are deleted, which that commit already declared. If the process ends before the last
step, no reader of ours shows these letters, and ``again`` deletes them. In the other order the audit would miss letters
that nobody declared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import partial
from typing import TYPE_CHECKING

from kdi_assets.delta.errors import OvertakenCommit, StagedFilesGone
from kdi_assets.delta.lost_races import until_won
from kdi_assets.delta.transaction import Staged, delta_log
from kdi_assets.documents.model.stream import OffsetRange, Stream
from kdi_assets.errors import KdiError
from kdi_assets.operate.erase.deletion import delete_letters, delete_removed_rows
from kdi_assets.operate.erase.selection import ErasedMessages, EraseFilter, EraseSelection
from kdi_assets.operate.upkeep.errors import EraseRefused, EraseUnfinished
from kdi_assets.runtime.application_end import cluster_failure
from kdi_assets.runtime.progress import WorkStep, announced
from kdi_assets.runtime.root_cause import root_cause
from kdi_assets.runtime.spark_failures import spark_exceptions
from kdi_assets.streams.drain.errors import AnotherDrainActive
from kdi_assets.streams.ledger.commit import commit, next_entry
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.erased import append_erased
from kdi_assets.streams.ledger.history import LiveHistory, history_at
from kdi_assets.streams.ledger.positions import LedgerState, read_ledger
from kdi_assets.streams.ledger.rewrite import as_deletions, old_rows
from kdi_assets.streams.spark_errors import jvm_loss_named, spark_failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class EraseReport:
    """An erasure, shown or done.

    Attributes:
        rows_by_date: Rows, by date.
        messages: Messages that had rows.
        dead_letters: Messages that were dead letters.
        letter_records: Records in the dead-letter table, those of replays included.
        removed_rows: Rows in ``<table>_removed``.
        left_letters: Records of dead letters that an earlier erasure has left, because its process ended.
        uncertain_rows, uncertain_at: As of ``ErasedMessages``.
        committed: The ledger entry; ``None`` if it was only shown, or nothing is selected.
    """

    stream: str
    version: int
    rows_by_date: Mapping[date, int] = field(default_factory=dict)
    messages: int = 0
    dead_letters: int = 0
    letter_records: int = 0
    removed_rows: int = 0
    left_letters: int = 0
    uncertain_rows: int = 0
    uncertain_at: tuple[OffsetRange, ...] = ()
    committed: LedgerEntry | None = None

    @property
    def rows(self) -> int:
        return sum(self.rows_by_date.values())


def erase(
    stream: Stream,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    chosen: EraseFilter,
    decided_by: str = "",
    because: str = "",
    dry_run: bool = False,
    at: Callable[[str], None] = lambda point: None,
) -> EraseReport:
    """Erase messages. Needs no broker: what is not drained yet is not touched.

    Args:
        decided_by, because: Who decided, and why; the ledger records both.
        dry_run: Only count.
        at: Called at ``"files written"``, ``"commit sent"`` and ``"letters deleted"``; tests stop it there.

    Raises:
        EraseRefused: There is no ledger, a RESTORE is not answered yet, or a condition is wrong.
        AnotherDrainActive: Too many races were lost.
        EraseUnfinished: The rows are erased; dead letters or removed rows are not deleted yet.
        KdiError: The log cannot be read; Spark failed.
    """

    def attempt() -> EraseReport:
        ledger = _newest_ledger(stream, lake)  # what comes after it, the commit meets
        history = history_at(ledger, stream, lake)
        with jvm_loss_named(stream), _selected(stream, lake, session(), ledger, history, chosen) as (selection, found):
            report = _report(stream, selection.ledger, found)
            if not (chosen.again or found.letter_records):
                report = replace(report, left_letters=_left_letters(stream, lake, session(), ledger, history))
            if dry_run or found.is_nothing:
                return report
            entry = _commit(selection, found, chosen, decided_by, because, at)
            at("commit sent")
            _delete(selection, found, at)
        return replace(report, version=entry.version, committed=entry)

    return until_won(attempt, lost=(OvertakenCommit, StagedFilesGone), gives_up=partial(_another_active, stream))


def _another_active(stream: Stream, race: KdiError) -> AnotherDrainActive:
    detail, command = race.message_parts()[0], f"kdi erase {stream.name} --where CONDITION"
    return AnotherDrainActive(stream=stream.name, detail=detail, command=command)


@contextmanager
def _selected(
    stream: Stream, lake: str, spark: SparkSession, ledger: LedgerState, history: LiveHistory, chosen: EraseFilter
) -> Iterator[tuple[EraseSelection, ErasedMessages]]:
    topic_id = history.entries[-1].topic_id
    selection = EraseSelection(spark, stream, lake, ledger, history, topic_id)
    with spark_failures(stream, "selecting the messages"), selection.select(chosen) as found:
        yield selection, found


def _left_letters(stream: Stream, lake: str, spark: SparkSession, ledger: LedgerState, history: LiveHistory) -> int:
    """Records of dead letters of messages that were erased: the process of that erasure ended too early."""
    if not any(entry.kind == "erase" for entry in history.entries):
        return 0
    with _selected(stream, lake, spark, ledger, history, EraseFilter(again=True)) as (_, left):
        return 0 if left.rows_by_date else left.letter_records  # with their rows, a RESTORE brought them back


def _newest_ledger(stream: Stream, lake: str) -> LedgerState:
    """The ledger, if nothing must be committed before.

    Raises:
        EraseRefused: There is no table, no ledger entry, or a RESTORE without an answer.
    """
    ledger = read_ledger(stream, lake, topic_id="", topic_partitions=0)
    detail, run = "there is no table yet" if ledger is None else "", f"kdi drain {stream.name}"
    if ledger and ledger.restored_to is not None:
        detail = "the table was restored, and no drain has set its positions back yet"
        run = f"kdi upkeep {stream.name} --yes" if stream.status == "retired" else run
    elif ledger and ledger.entry is None:
        detail = "no drain has taken over the table yet, or its entries are gone"
    if ledger is None or detail:
        raise EraseRefused(stream=stream.name, detail=detail, run=run)
    return ledger


def _report(stream: Stream, ledger: LedgerState, found: ErasedMessages) -> EraseReport:
    return EraseReport(
        stream.name,
        ledger.version,
        rows_by_date=found.rows_by_date,
        messages=sum(found.became_rows.values()),
        dead_letters=sum(found.dead_letters.values()),
        letter_records=found.letter_records,
        removed_rows=found.removed_rows,
        uncertain_rows=found.uncertain_rows,
        uncertain_at=found.uncertain_at,
    )


def _commit(
    selection: EraseSelection,
    found: ErasedMessages,
    chosen: EraseFilter,
    decided_by: str,
    because: str,
    at: Callable[[str], None],
) -> LedgerEntry:
    """Write the offsets, then remove the rows and declare the messages in one commit."""
    stream, ledger = selection.stream, selection.ledger
    entry = next_entry(
        stream,
        ledger,
        kind="erase",
        topic_id=selection.topic_id,
        erasure=found.erasure(chosen, selection.spark),
        decided_by=decided_by,
        because=because,
        planned_at=datetime.now(UTC),
    )
    with spark_failures(stream, "writing the offsets"):
        uri, topic_id = stream.erased_uri(selection.lake), selection.topic_id
        append_erased(found.marked_rows, found.marked_letters, uri, topic_id=topic_id, attempt_id=entry.attempt_id)
    with spark_failures(stream, "removing the rows"):
        staged = _staged(selection, found)
        at("files written")
        entry = replace(entry, removed_by_date=staged.removed_by_date)
        return commit(selection.spark, staged, ledger.uri, read_version=ledger.version, entry=entry)


def _staged(selection: EraseSelection, found: ErasedMessages) -> Staged:
    stream, ledger = selection.stream, selection.ledger
    old = old_rows(selection.spark, stream, ledger.uri, found.frame, version=ledger.version, within=found.bounds)
    return old.rewrite_files(as_deletions(old.rows)) if old else Staged()


def _delete(selection: EraseSelection, found: ErasedMessages, at: Callable[[str], None]) -> None:
    """Delete what lies beside the table.

    Raises:
        EraseUnfinished: Spark failed, or other commits came first again and again.
    """
    from delta.exceptions import DeltaConcurrentModificationException

    stream, lake = selection.stream, selection.lake
    steps = (
        (delete_letters, stream.dead_letters_uri(lake), found.letter_records),
        (delete_removed_rows, stream.removed_uri(lake), found.removed_rows),
    )
    for delete, uri, records in steps:
        try:
            if records:
                delta_log(selection.spark, uri)  # refuses a session that commits by another log store
                # A drain that appends dead letters conflicts with a deletion that reads the whole table.
                with announced(WorkStep(name=stream.name, doing=f"removing messages from {uri}", commits=True)):
                    until_won(partial(delete, selection, found), lost=DeltaConcurrentModificationException)
        except spark_exceptions() as failed:
            root = root_cause(failed)
            waited = cluster_failure(root)  # what to run is the same, and not what that error says
            detail = waited.message_parts()[0] if waited else root
            raise EraseUnfinished(stream=stream.name, table=uri, detail=detail) from failed
        at("letters deleted")
