"""Replay of dead letters: judge them again by the present definition.

Good ones become rows if their coordinates are absent from the table; the others keep their new reason. Drains may run
at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

from kdi_assets.delta.transaction import Staged
from kdi_assets.documents.model.stream import Stream
from kdi_assets.streams.drain.report import Commit
from kdi_assets.streams.ledger.letters import DISCARDED
from kdi_assets.streams.replay.dead_letter_filter import ALL, DeadLetterFilter
from kdi_assets.streams.replay.open_letters import HAS_ROW, open_letters
from kdi_assets.streams.replay.replay import Reached, preview, replay
from kdi_assets.streams.replay.replay_transaction import ReplayTransaction, run_transaction
from kdi_assets.streams.replay.report import ReplayReport
from kdi_assets.streams.replay.selected_messages import read_from_letters
from kdi_assets.streams.rules.verdict import ROW, VERDICTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def replay_letters(
    stream: Stream,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    letter_filter: DeadLetterFilter = ALL,
    dry_run: bool = False,
    run_id: str = "",
    at: Reached = lambda point: None,
) -> ReplayReport:
    """Judge open dead letters again; the good ones become rows, exactly once.

    Args:
        dry_run: Only report the outcomes; errors of the write and the commit are not found.
        at: Called at ``"messages read"`` and the points of ``replay``; tests stop it there.

    Raises:
        AnotherDrainActive, KdiError: As ``run_transaction``.
    """
    empty = ReplayReport(stream.name)

    def body(transaction: ReplayTransaction) -> ReplayReport:
        with read_from_letters(transaction, letter_filter) as messages:
            at("messages read")
            if dry_run:
                return preview(transaction, messages, empty)
            return replay(transaction, messages, empty, at=at)

    command = f"kdi dead-letters replay {stream.name}{letter_filter.options()}{'' if dry_run else ' --yes'}"
    return run_transaction(stream, lake, session, "replay", body, command, empty=empty, run_id=run_id, dry_run=dry_run)


def discard_letters(
    stream: Stream,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    decided_by: str,
    because: str,
    letter_filter: DeadLetterFilter = ALL,
    dry_run: bool = False,
    at: Reached = lambda point: None,
) -> ReplayReport:
    """Give up open dead letters: they stay in their table, and no replay reads them again.

    Args:
        decided_by, because: Who decided, and why; the ledger records both.

    Raises:
        AnotherDrainActive, KdiError: As ``run_transaction``.
    """
    empty = ReplayReport(stream.name)

    def body(transaction: ReplayTransaction) -> ReplayReport:
        with open_letters(transaction, letter_filter) as letters:
            discarded = letters.withheld + letters.complete
            counts = {VERDICTS[ROW]: letters.with_row.count, DISCARDED: discarded.count}
            outcomes = {outcome: count for outcome, count in counts.items() if count}
            report = replace(empty, outcomes=outcomes, waiting=letters.waiting)
            if dry_run or not outcomes:
                return report
            frame = letters.outcomes(f"CASE WHEN {HAS_ROW} THEN '{VERDICTS[ROW]}' ELSE '{DISCARDED}' END")
            entry = transaction.append_dead_letters(frame, letters.with_row + discarded, ranges=letters.ranges)
        at("letters written")
        entry = replace(entry, decided_by=decided_by, because=because, outcomes=outcomes, returned=letters.returned)
        return replace(report, commit=Commit.of(transaction.commit(Staged(), entry)))

    options = f"{letter_filter.options()} --because {quote(because)}{'' if dry_run else ' --yes'}"
    command = f"kdi dead-letters discard {stream.name}{options}"
    return run_transaction(stream, lake, session, "discard", body, command, empty=empty, dry_run=dry_run)
