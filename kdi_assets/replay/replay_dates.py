"""Replay of dates: their messages are read from Kafka again and become what today's definition makes of them.

By coordinates, not by date: the messages of a date are those whose rows have it, and the open dead letters produced on
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING

from kdi_assets.replay.deciding import Deciding, until_not_overtaken
from kdi_assets.replay.gone import MessagesNotInKafka
from kdi_assets.replay.meant import Held, held_by_kafka, messages_meant
from kdi_assets.replay.replay import Reached, look, replay
from kdi_assets.replay.report import ReplayReport
from kdi_assets.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def replay_dates(
    stream: Stream,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    first: date,
    last: date,
    leave_missing: bool = False,
    accept_dead_letters: bool = False,
    run_id: str = "",
    at: Reached = lambda point: None,
) -> ReplayReport:
    """Read the messages of dates again and put what they become in the place of what they became.

    Args:
        first, last: Inclusive: of rows their ``date``, of dead letters the date of Kafka's timestamp, UTC.
        leave_missing: Whether to go on where Kafka no longer holds all of them; the others' rows stay as they are.
        accept_dead_letters: However many there are.
        run_id: Recorded in the ledger entry.
        at: Called at the named points (``"messages chosen"``, ``"messages read"``, ``"files written"``, ``"letters
            written"``, ``"commit sent"``); tests stop it there.

    Raises:
        MessagesNotInKafka: Not all of them are there any more.
        TooManyDeadLetters: More of them than the stream's limit allows would be dead letters.
        AnotherDrainActive: Overtaken again and again.
        KdiError: What a drain would refuse as well.
    """
    accepts = " --accept-dead-letters" if accept_dead_letters else ""
    nothing = ReplayReport(stream.name, first=first, last=last)

    def act(case: Deciding) -> ReplayReport:
        with _again(case, first, last, at) as held:
            if held.missing.messages and not leave_missing:
                meant = held.meant.messages.count + held.missing.messages
                raise MessagesNotInKafka(
                    stream=stream.name, first=first, last=last, messages=meant, missing=held.missing, flags=accepts
                )
            return replay(case, held, nothing, at=at, accept_dead_letters=accept_dead_letters)

    command = f"{_command(stream, first, last)}{' --leave-missing' if leave_missing else ''}{accepts}"
    return until_not_overtaken(stream, lake, session, "replay", act, command=command, nothing=nothing, run_id=run_id)


def look_at_dates(
    stream: Stream,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    first: date,
    last: date,
    into: str = "",
) -> ReplayReport:
    """What ``replay_dates`` would do now; nothing of the stream is written.

    Args:
        into: URI of a table to make, of every row as it is and as it would be (``compared.compared``); empty: none.

    Raises:
        KdiError: As there, but for what is found when rows are written and committed.
    """
    nothing = ReplayReport(stream.name, first=first, last=last)

    def act(case: Deciding) -> ReplayReport:
        with _again(case, first, last, lambda point: None) as held:
            return look(case, held, nothing, into=into)

    command = f"{_command(stream, first, last)} --dry-run"
    return until_not_overtaken(stream, lake, session, "replay", act, command=command, nothing=nothing, settles=False)


def _command(stream: Stream, first: date, last: date) -> str:
    return f"kdi replay {stream.name} --from {first} --to {last}"


@contextmanager
def _again(case: Deciding, first: date, last: date, at: Reached) -> Iterator[Held]:
    """The messages of the dates, read again as far as Kafka has them."""
    with messages_meant(case, first, last) as meant:
        at("messages chosen")
        with held_by_kafka(case, meant, first, last) as held:
            at("messages read")
            yield held
