"""Replay of dates: read their messages from Kafka again, and judge them by the present definition.

The messages of a date are found by their coordinates: those whose rows have the date, and the open dead letters that
were produced on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING

from kdi_assets.documents.model.stream import OffsetRange, Stream
from kdi_assets.messages.of_stream import source_of
from kdi_assets.messages.topic_state import AtPosition
from kdi_assets.streams.drain.errors import NothingDrained
from kdi_assets.streams.drain.plan import plan_drain
from kdi_assets.streams.drain.snapshot import truncation
from kdi_assets.streams.ledger.rewrite import MESSAGE
from kdi_assets.streams.replay.replay import Reached, preview, replay
from kdi_assets.streams.replay.replay_transaction import ReplayTransaction, run_transaction
from kdi_assets.streams.replay.report import MessagesGone, ReplayReport
from kdi_assets.streams.replay.selected_messages import ReplayMessages, read_from_source, select_messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def replay_dates(
    stream: Stream,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    first: date,
    last: date,
    dry_run: bool = False,
    into: str = "",
    leave_missing: bool = False,
    accept_dead_letters: bool = False,
    run_id: str = "",
    at: Reached = lambda point: None,
) -> ReplayReport:
    """Read the messages of dates again, and exchange their rows and dead letters for the new ones.

    Args:
        first, last: Inclusive: the ``date`` of rows, and the date of Kafka's timestamp of dead letters, UTC. Dates that
            the stream keeps no longer are left out.
        dry_run: Only report the differences; errors of the write and the commit are not found.
        into: The same, and the URI of a table to create with the old and new rows (``row_diff.compare``).
        leave_missing: Go on if the source no longer gives all messages; the rows of missing ones stay.
        at: Called at ``"messages chosen"``, ``"messages read"`` and the points of ``replay``; tests stop it there.

    Raises ``MessagesGone``, ``NothingDrained`` without a table; as ``Source.again``, ``replay``, ``run_transaction``.
    """
    previews, empty = dry_run or bool(into), ReplayReport(stream.name, first=first, last=last)
    flags = " --accept-dead-letters" if accept_dead_letters else ""

    def body(transaction: ReplayTransaction) -> ReplayReport:
        # Rows of older dates leave by the next upkeep: judged again now, their messages would become dead letters.
        kept = max(first, stream.kept_from(transaction.now) or first)
        with _messages(transaction, kept, last, at) as messages:
            if previews:
                return preview(transaction, messages, empty, into=into)
            _refuse_missing(stream, messages, first, last, flags, leave=leave_missing)
            return replay(transaction, messages, empty, at=at, accept_dead_letters=accept_dead_letters)

    again = _command(stream, first, last, flags, leave_missing=leave_missing, yes=not previews)
    report = run_transaction(stream, lake, session, "replay", body, again, empty=empty, run_id=run_id, dry_run=previews)
    if report is empty:
        raise NothingDrained(stream=stream.name)
    return report


def _command(stream: Stream, first: date, last: date, flags: str, *, leave_missing: bool, yes: bool) -> str:
    """The command that does the same again."""
    options = f"{' --leave-missing' if leave_missing else ''}{flags}{' --yes' if yes else ''}"
    return f"kdi replay {stream.name} --from {first} --to {last}{options}"


@contextmanager
def _messages(transaction: ReplayTransaction, first: date, last: date, at: Reached) -> Iterator[ReplayMessages]:
    if tuple(transaction.message_key) != MESSAGE:
        _refuse_other_messages(transaction)
    with select_messages(transaction, first, last) as selected:
        at("messages chosen")
        with read_from_source(transaction, selected, first, last) as messages:
            at("messages read")
            yield messages


def _refuse_other_messages(transaction: ReplayTransaction) -> None:
    """Refuse a topic whose end the brokers lost: they gave, or will give, its offsets to other messages.

    Without timestamps in the table, its rows would be exchanged for those of the other messages.

    Raises:
        BrokerEndBelowPosition: A topic partition ends below its position.
        TopicTruncated: Another message is at the offset that was read last.
        KdiError: As ``plan_drain``.
    """
    stream, topic, entry = transaction.stream, transaction.topic, transaction.ledger.entry
    plan_drain(stream, ledger=transaction.ledger, topic=topic, now=transaction.now)
    read = entry.last_read if entry else {}
    held = {tp: r for tp, r in read.items() if tp in topic.partitions and r.offset >= topic.partitions[tp].earliest}
    found = source_of(stream).last_messages([OffsetRange(tp, r.offset, r.offset + 1) for tp, r in held.items()])
    if refusal := truncation(stream, held, {tp: AtPosition(message) for tp, message in found.items()}):
        raise refusal


def _refuse_missing(stream: Stream, found: ReplayMessages, first: date, last: date, flags: str, *, leave: bool) -> None:
    """Refuse a replay of dates whose messages are partly gone, unless their rows are to be left as they are."""
    if leave or not found.missing.messages:
        return
    count = found.selected.messages.count + found.missing.messages
    raise MessagesGone(
        stream=stream.name,
        first=first,
        last=last,
        messages=count,
        missing=found.missing,
        system=stream.cluster.system,
        flags=flags,
    )
