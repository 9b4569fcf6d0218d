"""The loop of those who try again after another writer was first."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kdi_assets.delta.lost_races import COMMIT_ATTEMPTS, WORK_ATTEMPTS, LostRaces, until_won


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
