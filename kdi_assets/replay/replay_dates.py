"""Replay of dates: their messages are read from Kafka again and become what today's definition makes of them.

By coordinates, not by date: the messages of a date are those whose rows have it, and the open dead letters produced on
it. Their old rows go and the new ones come, wherever their date falls now, in one commit that is planned on the version
at which the messages were chosen; whatever is added meanwhile is none of them. No position moves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING

from kdi_assets.drain.failures import refused_to, spark_failures
from kdi_assets.drain.kept import kept
from kdi_assets.drain.report import Commit
from kdi_assets.drain.verdict import DEAD_LETTER, FILTERED, ROW, TOMBSTONE, VERDICTS
from kdi_assets.ledger.delta import Staged
from kdi_assets.ledger.entry import LedgerEntry, Untraced
from kdi_assets.ledger.rewrite import FILE, of_messages, old_rows, rows_with_files
from kdi_assets.replay.compared import Change, Example, Moved, compared, counts, examples, feed, moved
from kdi_assets.replay.deciding import Deciding, Told, until_not_overtaken
from kdi_assets.replay.gone import MessagesNotInKafka, Missing
from kdi_assets.replay.judged_again import JudgedAgain, judged_again
from kdi_assets.replay.meant import Held, held_by_kafka, messages_meant
from kdi_assets.stream import Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Reached = Callable[[str], None]
_UNTRACED = {VERDICTS[TOMBSTONE]: "tombstones", VERDICTS[FILTERED]: "filtered"}


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of the messages of dates, or what would.

    Attributes:
        first, last: The dates, inclusive.
        messages: How many messages were read again.
        outcomes: What they are now, one of ``verdict.VERDICTS``; or ``elsewhere``: another table's by now, left alone.
        rows_by_date: Rows made of them, by their date.
        removed_by_date: The rows that were there of them, by their date.
        changes: Rows, by what is different about them.
        missing: Messages that Kafka no longer holds; what became of them before stays.
        waiting: Messages at or behind the positions, which the next drain reads; left alone.
        torn: Messages of which someone deleted some rows; left alone, or these would come back.
        unplaced: Rows of the dates that do not say where their message stood; left alone.
        commit: ``None`` if nothing is different, or nothing was to be done.
        examples, moved: Of a look that does nothing.
    """

    stream: str
    first: date
    last: date
    messages: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    rows_by_date: Mapping[date, int] = field(default_factory=dict)
    removed_by_date: Mapping[date, int] = field(default_factory=dict)
    changes: Mapping[Change, int] = field(default_factory=dict)
    missing: Missing = Missing()
    waiting: int = 0
    torn: int = 0
    unplaced: int = 0
    commit: Commit | None = None
    examples: tuple[Example, ...] = ()
    moved: tuple[Moved, ...] = ()


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
) -> Replayed:
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

    def replay(case: Deciding) -> Replayed:
        with _again(case, first, last, at) as held:
            if held.missing.messages and not leave_missing:
                meant = held.meant.messages.count + held.missing.messages
                raise MessagesNotInKafka(
                    stream=stream.name, first=first, last=last, messages=meant, missing=held.missing, flags=accepts
                )
            done = _done(held, Replayed(stream.name, first, last))
            return (
                _replayed(case, held, done, at, accept_dead_letters=accept_dead_letters)
                if held.meant.messages.count
                else done
            )

    nothing = Replayed(stream.name, first, last)
    flags = (" --leave-missing" if leave_missing else "") + accepts
    with refused_to(f"kdi replay {stream.name} --from {first} --to {last}{flags}"):
        return until_not_overtaken(stream, lake, session, "replay", replay, nothing=nothing, run_id=run_id)


def look_at_dates(
    stream: Stream,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    first: date,
    last: date,
    into: str = "",
) -> Replayed:
    """What ``replay_dates`` would do now; nothing of the stream is written.

    Args:
        into: URI of a table to make, of every row as it is and as it would be (``compared.compared``); empty: none.

    Raises:
        KdiError: As there, but for what is found when rows are written and committed.
    """

    def look(case: Deciding) -> Replayed:
        with _again(case, first, last, lambda point: None) as held:
            done = _done(held, Replayed(stream.name, first, last))
            if not held.meant.messages.count and not held.missing.messages:
                return done
            with _side_by_side(case, held) as (both, outcomes), spark_failures(stream, "comparing rows"):
                if into:
                    both.write.format("delta").mode("error").save(into)
                shown = examples(both, stream)
                return replace(done, outcomes=outcomes, changes=counts(both), examples=shown, moved=moved(both))

    nothing = Replayed(stream.name, first, last)
    with refused_to(f"kdi replay {stream.name} --from {first} --to {last} --dry-run"):
        return until_not_overtaken(stream, lake, session, "replay", look, nothing=nothing, settles=False)


@contextmanager
def _again(case: Deciding, first: date, last: date, at: Reached) -> Iterator[Held]:
    """The messages of the dates, read again as far as Kafka has them."""
    with messages_meant(case, first, last) as meant:
        at("messages chosen")
        with held_by_kafka(case, meant, first, last) as held:
            at("messages read")
            yield held


def _done(held: Held, nothing: Replayed) -> Replayed:
    meant = held.meant
    return replace(
        nothing,
        messages=meant.messages.count,
        missing=held.missing,
        waiting=meant.waiting,
        torn=meant.torn,
        unplaced=meant.unplaced,
    )


def _replayed(case: Deciding, held: Held, done: Replayed, at: Reached, *, accept_dead_letters: bool) -> Replayed:
    """Exchange the rows of what Kafka has, and say what became of letters, in one commit.

    Raises:
        AccountingMismatch: What was chosen, read, judged, written and taken out does not add up.
    """
    with judged_again(case, held, accept_dead_letters=accept_dead_letters) as judged:
        at("files written")
        staged, changes = _exchanged(case, held, judged)
        done = replace(
            done,
            outcomes=judged.outcomes,
            rows_by_date=dict(sorted(staged.rows_by_date.items())),
            removed_by_date=staged.removed_by_date,
            changes={change: rows for change, rows in changes.items() if rows},
        )
        told = judged.tell(case, held)
        if told is None and not set(changes) - {"same"}:
            return replace(done, rows_by_date={}, removed_by_date={})  # nothing is different: what is there stays
        at("letters written")
        landed = case.commit(staged, _entry(case, done, judged, staged, told))
        at("commit sent")
        return replace(done, commit=Commit.of(landed))


def _exchanged(case: Deciding, held: Held, judged: JudgedAgain) -> tuple[Staged, dict[Change, int]]:
    """The files of the new rows, and those that go for them, written anew with what else they hold."""
    stream, added = case.stream, judged.staged
    with spark_failures(stream, "exchanging rows"):
        bounds, version = held.meant.bounds, case.ledger.version
        old = old_rows(case.spark, stream, case.ledger.uri, judged.rows_that_go, version=version, within=bounds)
        if (found := old.messages if old else 0) < judged.going:
            detail = f"{found:,} messages have rows in the table, of {judged.going:,} whose rows go"
            raise case.mismatch(detail, held.meant.ranges)
        if old is None:
            return added, {"added": added.rows} if added.rows else {}
        with kept(compared(old.rows, old.written(added), stream).where("change <> 'same'")) as differing:
            changes = counts(differing)
            if not changes:  # what came out the same stays as it is
                return Staged(), {"same": added.rows}
            same = added.rows - sum(n for change, n in changes.items() if change != "gone")
            exchanged = old.exchanged(feed(differing), added)
    return exchanged, {**changes, "same": same} if same else changes


def _entry(case: Deciding, done: Replayed, judged: JudgedAgain, staged: Staged, told: Told | None) -> LedgerEntry:
    returned = Counter[TopicPartition]()
    withdrawn: defaultdict[TopicPartition, Untraced] = defaultdict(Untraced)
    digest = 0
    for tp, was_letter, known, outcome, messages in judged.became:
        if not known:
            continue  # another writer's: no entry counts them
        if was_letter and outcome == VERDICTS[ROW]:
            returned[tp] += messages.count
        if not was_letter and outcome == VERDICTS[DEAD_LETTER]:
            returned[tp] -= messages.count
        if not was_letter and outcome in _UNTRACED:
            withdrawn[tp] += Untraced(**{_UNTRACED[outcome]: messages.count})
            digest ^= messages.digest
    entry = replace(
        case.entry,
        dead_letters_at=told.at if told else case.dead_letters_at,
        letters_by_date=told.by_date if told else {},
        dates=(done.first, done.last),
        outcomes=done.outcomes,
        returned={tp: n for tp, n in sorted(returned.items()) if n},
        withdrawn=dict(sorted(withdrawn.items())),
        withdrawn_digest=digest,
        rows_by_date=done.rows_by_date,
        removed_by_date=done.removed_by_date,
        bytes=staged.bytes,
    )
    return judged.counts.noted_in(entry)


@contextmanager
def _side_by_side(case: Deciding, held: Held) -> Iterator[tuple[DataFrame, dict[str, int]]]:
    """Every row of the dates as it is and as it would be, as ``compared`` gives it; and what messages would be."""
    from pyspark.sql import functions as F

    stream, version = case.stream, case.ledger.version
    table = rows_with_files(case.spark, stream, case.ledger.uri, version=version, within=held.asked).drop(FILE)
    with judged_again(case, held, accept_dead_letters=True, dry=True) as judged:
        now = judged.rows(case, held)
        both = compared(of_messages(table, stream, judged.rows_that_go), now, stream)
        if held.lacking is not None:
            lost = compared(of_messages(table, stream, held.lacking), now.limit(0), stream)
            both = both.unionByName(lost.withColumn("change", F.lit("missing")))
        with kept(both) as side_by_side:
            yield side_by_side, judged.outcomes
