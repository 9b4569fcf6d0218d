"""Replay of dates: their messages are read from Kafka again and become what today's definition makes of them.

By coordinates, not by date: the messages of a date are those whose rows have it, and the open dead letters produced on
it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING

from kdi_assets.replay.replay import Reached, look, replay
from kdi_assets.replay.replay_transaction import ReplayTransaction, until_not_overtaken
from kdi_assets.replay.report import MessagesNotInKafka, ReplayReport
from kdi_assets.replay.selected_messages import held_by_kafka, select_messages
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def replay_dates(
    stream: Stream,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    first: date,
    last: date,
    dry: bool = False,
    into: str = "",
    leave_missing: bool = False,
    accept_dead_letters: bool = False,
    run_id: str = "",
    at: Reached = lambda point: None,
) -> ReplayReport:
    """Read the messages of dates again and put what they become in the place of what they became.

    Args:
        first, last: Inclusive: of rows their ``date``, of dead letters the date of Kafka's timestamp, UTC.
        dry: Only say what would be different; what is found when rows are written and committed is not seen.
        into: The same, and the URI of a table to make, of every row as it is and as it would be
            (``compared.compared``); empty: none.
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
    looks, nothing = dry or bool(into), ReplayReport(stream.name, first=first, last=last)
    accepts = " --accept-dead-letters" if accept_dead_letters else ""

    def act(case: ReplayTransaction) -> ReplayReport:
        with select_messages(case, first, last) as meant:
            at("messages chosen")
            with held_by_kafka(case, meant, first, last) as held:
                at("messages read")
                if looks:
                    return look(case, held, nothing, into=into)
                if held.missing.messages and not leave_missing:
                    raise MessagesNotInKafka(
                        stream=stream.name,
                        first=first,
                        last=last,
                        messages=meant.messages.count,
                        missing=held.missing,
                        flags=accepts,
                    )
                return replay(case, held, nothing, at=at, accept_dead_letters=accept_dead_letters)

    flags = " --dry-run" if looks else f"{' --leave-missing' if leave_missing else ''}{accepts}"
    command = f"kdi replay {stream.name} --from {first} --to {last}{flags}"
    return until_not_overtaken(
        stream, lake, session, "replay", act, command=command, nothing=nothing, run_id=run_id, settles=not looks
    )
