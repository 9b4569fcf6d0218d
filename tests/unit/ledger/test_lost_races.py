"""The loop of those who try again after another writer was first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from kdi_assets.delta.errors import OvertakenCommit
from kdi_assets.delta.log import CommitInfo, TableLog
from kdi_assets.delta.lost_races import COMMIT_ATTEMPTS, WORK_ATTEMPTS, LostRaces, until_won
from kdi_assets.delta.single_commit import refuse_conflicts
from kdi_assets.streams.ledger import history
from kdi_assets.streams.ledger.history import live_history
from kdi_assets.streams.replay.replay_transaction import ReplayTransaction, run_transaction
from tests.memory_source import Memory, MemorySource
from tests.table_by_hand import TP, TableByHand, orders


class Lost(Exception):
    """Another writer was first."""


class Busy(Exception):
    """Another writer was first again and again."""


class Runner:
    """Loses some races, and then wins."""

    def __init__(self, *, losses: int) -> None:
        self.attempts, self._losses = 0, losses

    def __call__(self) -> int:
        self.attempts += 1
        if self.attempts <= self._losses:
            raise Lost(f"race {self.attempts}")
        return self.attempts


@pytest.mark.parametrize("most", [WORK_ATTEMPTS, COMMIT_ATTEMPTS])
def test_the_last_attempt_may_win(most: int) -> None:
    assert until_won(Runner(losses=most - 1), lost=Lost, most=most) == most


@pytest.mark.parametrize("most", [WORK_ATTEMPTS, COMMIT_ATTEMPTS])
def test_nobody_tries_once_more_than_the_limit(most: int) -> None:
    runner = Runner(losses=most)

    with pytest.raises(Busy, match=f"race {most}") as refused:
        until_won(runner, lost=Lost, gives_up=lambda race: Busy(str(race)), most=most)

    assert runner.attempts == most
    assert isinstance(refused.value.__cause__, Lost)


def test_without_another_error_the_last_race_is_raised() -> None:
    with pytest.raises(Lost, match=f"race {WORK_ATTEMPTS}"):
        until_won(Runner(losses=WORK_ATTEMPTS), lost=Lost)


def test_what_is_no_lost_race_ends_the_attempts() -> None:
    attempts: Iterator[Exception] = iter((Lost(), ValueError("a refusal"), Lost()))

    def attempt() -> None:
        raise next(attempts)

    with pytest.raises(ValueError, match="a refusal"):
        until_won(attempt, lost=Lost)


def test_a_step_that_wins_ends_the_count_of_those_in_a_row() -> None:
    races = LostRaces()
    for _ in range(3):
        for _ in range(WORK_ATTEMPTS - 1):
            races.add(Lost())
        races.end()

    with pytest.raises(Lost, match=f"race {WORK_ATTEMPTS}"):
        for race in range(1, WORK_ATTEMPTS + 2):
            races.add(Lost(f"race {race}"))


def test_a_replay_begins_from_one_version_whatever_is_committed_while_it_looks(
    lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: someone commits between the look at the positions and the one at the history."""
    table, stream = TableByHand(lake), replace(orders(), cluster=Memory("main", "", source=MemorySource({TP: {}})))
    table.ledger_commit("start")
    begun_at = table.version
    seen: list[tuple[int, int]] = []

    def overtaken(*arguments: Any, **options: Any) -> Any:
        table.commit(ago=timedelta())
        return live_history(*arguments, **options)

    def body(transaction: ReplayTransaction) -> Any:
        seen.append((transaction.ledger.version, transaction.history.version))

    monkeypatch.setattr(history, "live_history", overtaken)
    empty, no_session = cast("Any", None), cast("Any", lambda: None)
    with pytest.raises(AttributeError):  # the body gave no report
        run_transaction(
            stream, lake, no_session, "replay", body, command="kdi replay orders", empty=empty, dry_run=True
        )

    assert (seen, table.version) == ([(begun_at, begun_at)], begun_at + 1)


def test_a_commit_that_goes_while_it_is_checked_counts_as_a_conflict(lake: str) -> None:
    table = TableByHand(lake)
    table.commit(ago=timedelta())
    newest = TableLog.existing(str(table.log.parent))

    def cleaned_up(commit: CommitInfo) -> bool:
        table.file(commit.version).unlink()
        return bool(newest.actions(commit.version))

    with pytest.raises(OvertakenCommit, match="commit 1 "):
        refuse_conflicts(newest, after=0, replaces=(), conflicts=cleaned_up)
