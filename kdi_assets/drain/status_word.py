"""Burrow's status words for a topic partition, from the stream's last ledger commits. No clock, no I/O.

A consumer of Burrow's commits all the time; a stream commits when it drains, and one without a backlog does not. So a
stop is told by how long something has waited, and not by how long ago the last commit was.

Source: Burrow, "Consumer Lag Evaluation Rules".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

PATIENCE = 3
"""So many times as long as `drain_when` lets a message wait, and nothing was committed: it stands still."""
LEAST_PATIENCE_SECONDS = 60.0


class StatusWord(StrEnum):
    """How the drains of a topic partition go; ordered from good to bad.

    OK: nothing waits, or everything was drained lately.
    WARN: drains go on, and the backlog does not get less.
    REWIND: the position went back: a RESTORE, or somebody's decision.
    STALL: the stream commits, and this topic partition's position does not move.
    STOP: something waits, and nothing is committed.
    """

    OK = "OK"
    WARN = "WARN"
    REWIND = "REWIND"
    STALL = "STALL"
    STOP = "STOP"

    @property
    def rank(self) -> int:
        """0 is the best."""
        return list(StatusWord).index(self)


@dataclass(frozen=True, slots=True)
class Sample:
    """A topic partition at one ledger commit: position after it, and the end as it was planned, if that is known."""

    position: int
    end: int | None

    @property
    def backlog(self) -> int | None:
        """What the commit left, of what was there when it was planned."""
        return None if self.end is None else max(0, self.end - self.position)


def status_word(
    window: Sequence[Sample], *, position: int, end: int, waiting_seconds: float | None, patience_seconds: float | None
) -> StatusWord:
    """Judge one topic partition.

    Args:
        window: The last ledger commits, the oldest first.
        position: Now.
        end: Now, exclusive.
        waiting_seconds: How long the next message has waited, and no commit came; ``None`` if unknown.
        patience_seconds: How long the stream lets a message wait; ``None`` if it says nothing about time.
    """
    if position >= end:
        return StatusWord.OK
    if _stopped(waiting_seconds, patience_seconds):
        return StatusWord.STOP
    seen = [*window, Sample(position, end)]
    if any(after.position < before.position for before, after in pairwise(seen)):
        return StatusWord.REWIND
    left = [sample.backlog for sample in seen]
    if len(window) < 2 or any(backlog in (None, 0) for backlog in left):
        return StatusWord.OK
    if all(sample.position == position for sample in window):
        return StatusWord.STALL
    if all((after or 0) >= (before or 0) for before, after in pairwise(left)):
        return StatusWord.WARN
    return StatusWord.OK


def _stopped(waiting_seconds: float | None, patience_seconds: float | None) -> bool:
    if waiting_seconds is None or patience_seconds is None:
        return False
    return waiting_seconds > max(PATIENCE * patience_seconds, LEAST_PATIENCE_SECONDS)


def worst(words: Sequence[StatusWord]) -> StatusWord | None:
    """The worst of some words; ``None`` of none."""
    return max(words, key=lambda word: word.rank, default=None)
