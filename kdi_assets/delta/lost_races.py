"""Races that are lost: another writer was first, so the work begins again from what that one left.

The limit depends only on what an attempt costs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
RaceError = TypeVar("RaceError", bound=Exception)

COMMIT_ATTEMPTS = 50
"""Attempts that cost a commit, well under a second: the files are written, and what came first did not conflict."""
WORK_ATTEMPTS = 3
"""Attempts that cost the work itself: rows are read and written again. Of two that begin together on a new table, one
loses the creation, then the first rows, and its third attempt finds nothing left to do. Who loses the third one meets
somebody who works on the same table all the time."""


@dataclass(slots=True)
class LostRaces:
    """The races lost in a row, for work that is done step by step; all other work goes by ``until_won``."""

    most: int = WORK_ATTEMPTS
    count: int = 0

    def add(self, race: RaceError, *, gives_up: Callable[[RaceError], Exception] | None = None) -> None:
        """Count a lost race; if no attempt is left, raise what ``gives_up`` makes of it, by default the race itself."""
        self.count += 1
        if self.count >= self.most:
            if gives_up is None:
                raise race
            raise gives_up(race) from race

    def end(self) -> None:
        """Forget them: an attempt was first."""
        self.count = 0


def until_won(
    attempt: Callable[[], T],
    *,
    lost: type[RaceError] | tuple[type[RaceError], ...],
    gives_up: Callable[[RaceError], Exception] | None = None,
    most: int = WORK_ATTEMPTS,
) -> T:
    """Try until no other writer is first.

    Args:
        attempt: Plans anew each time, from what the other writer left.
        lost: What an attempt raises that lost a race.
        gives_up: As in ``LostRaces.add``.
        most: How many attempts, by what one costs.
    """
    races = LostRaces(most)
    while True:
        try:
            return attempt()
        except lost as race:
            races.add(race, gives_up=gives_up)
