"""Replay of dead letters: messages that could not become rows are judged again, by the definition of now.

What is good now becomes rows where its coordinates are absent, and of the rest a new reason is kept. Drains may run
meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING

from kdi_assets.drain.report import Commit
from kdi_assets.drain.rules.verdict import ROW, VERDICTS
from kdi_assets.ledger.delta_transaction import Staged
from kdi_assets.ledger.letters import DISCARDED
from kdi_assets.replay.dead_letter_filter import ALL, DeadLetterFilter
from kdi_assets.replay.open_letters import THERE, open_letters
from kdi_assets.replay.replay import Reached, look, replay
from kdi_assets.replay.replay_transaction import ReplayTransaction, until_not_overtaken
from kdi_assets.replay.report import ReplayReport
from kdi_assets.replay.selected_messages import held_by_letters
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def replay_letters(
    stream: Stream,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    chosen: DeadLetterFilter = ALL,
    dry: bool = False,
    run_id: str = "",
    at: Reached = lambda point: None,
) -> ReplayReport:
    """Judge open dead letters again; what is good now becomes rows, exactly once.

    Args:
        chosen: Which of the open letters.
        dry: Only say what would become of them; what is found when rows are written and committed is not seen.
        run_id: Recorded in the ledger entry.
        at: Called at the named points (``"messages read"``, ``"files written"``, ``"letters written"``, ``"commit
            sent"``); tests stop it there.

    Raises:
        AnotherDrainActive: Overtaken again and again.
        KdiError: What a drain would refuse as well.
    """
    nothing = ReplayReport(stream.name)

    def act(case: ReplayTransaction) -> ReplayReport:
        with held_by_letters(case, chosen) as held:
            at("messages read")
            return look(case, held, nothing) if dry else replay(case, held, nothing, at=at)

    command = f"kdi dead-letters replay {stream.name}{chosen.options()}{' --dry-run' if dry else ''}"
    return until_not_overtaken(
        stream, lake, session, "replay", act, command=command, nothing=nothing, run_id=run_id, settles=not dry
    )


def discard_letters(
    stream: Stream,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    decided_by: str,
    because: str,
    chosen: DeadLetterFilter = ALL,
    dry: bool = False,
    run_id: str = "",
    at: Reached = lambda point: None,
) -> ReplayReport:
    """Give open dead letters up: they stay where they are, and no replay looks at them again.

    Args:
        decided_by, because: Who decided, and why; recorded in the ledger entry.
        dry: Only count them.
        at: As that of ``replay_letters``.

    Raises:
        AnotherDrainActive: Overtaken again and again.
    """
    nothing = ReplayReport(stream.name)

    def discard(case: ReplayTransaction) -> ReplayReport:
        with open_letters(case, chosen) as letters:
            given_up = letters.withheld + letters.whole
            of = {VERDICTS[ROW]: letters.there.count, DISCARDED: given_up.count}
            outcomes = {outcome: count for outcome, count in of.items() if count}
            done = replace(nothing, outcomes=outcomes, waiting=letters.waiting)
            if dry or not outcomes:
                return done
            said = letters.told(f"CASE WHEN {THERE} THEN '{VERDICTS[ROW]}' ELSE '{DISCARDED}' END")
            told = case.tell(said, letters.there + given_up, ranges=letters.ranges)
        at("letters written")
        entry = replace(told, decided_by=decided_by, because=because, outcomes=outcomes, returned=letters.returned)
        return replace(done, commit=Commit.of(case.commit(Staged(), entry)))

    command = f"kdi dead-letters discard {stream.name}{chosen.options()} --because {quote(because)}"
    return until_not_overtaken(
        stream, lake, session, "discard", discard, command=command, nothing=nothing, run_id=run_id, settles=not dry
    )
