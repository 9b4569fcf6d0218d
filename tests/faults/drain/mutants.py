"""Engines with one bug each, and the scenario that reveals it. The oracle alone must notice.

If the engine's own accounting would stop a mutant, the mutant has that accounting removed: the oracle must not depend
on the code that it judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable, write_deltalake
from py4j.protocol import Py4JNetworkError
from pytest import MonkeyPatch

from kdi_assets.delta import single_commit
from kdi_assets.delta import transaction as delta_transaction
from kdi_assets.documents.model.stream import OffsetRange, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.messages.formats.decoder import VALUE
from kdi_assets.messages.kafka import topic as kafka
from kdi_assets.messages.kafka.source import KafkaSource
from kdi_assets.streams.drain import drain as draining
from kdi_assets.streams.drain import execute_plan as carrying
from kdi_assets.streams.drain import plan as planning
from kdi_assets.streams.drain.accounting import Account
from kdi_assets.streams.drain.dead_letters import AppendedLetters
from kdi_assets.streams.drain.execute_plan import Execution, Step
from kdi_assets.streams.drain.plan import Plan
from kdi_assets.streams.ledger import commit as adapter
from kdi_assets.streams.ledger import letters as ledger_letters
from kdi_assets.streams.ledger.entry import RangeCounts
from kdi_assets.streams.ledger.positions import _LedgerReader
from kdi_assets.streams.replay import open_letters
from kdi_assets.streams.replay.replay_letters import replay_letters
from kdi_assets.streams.rules import judge as judging
from kdi_assets.streams.rules.judge import verdict_sql
from kdi_assets.streams.rules.verdict import DEAD_LETTER, ROW, TOMBSTONE
from kdi_assets.streams.spark_errors import ReadOrWriteFailed
from tests import oracle
from tests.driven import DrivenStream, Once
from tests.faults.topics import TransactionalPublisher, add_topic_partitions, await_markers
from tests.kafka_log import Produced
from tests.tables.dead_letters import WRONG

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Scenario = Callable[[DrivenStream], Sequence[Produced]]


class Crash(BaseException):
    """Ends a drain at a point."""


@dataclass(frozen=True)
class Mutant:
    """An engine with a bug.

    Attributes:
        mutate: Adds the bug.
        scenario: Reveals it; it ends with the tables as they are after the next good drain.
    """

    name: str
    mutate: Callable[[MonkeyPatch], None]
    scenario: Scenario


# What happens


def _drain(web: DrivenStream, **options: Any) -> None:
    """A drain that may be refused: what is left of the engine may notice the bug."""
    with suppress(KdiError):
        web.drain(**options)


def drained_twice(web: DrivenStream) -> Sequence[Produced]:
    for seed in (1, 2, 3):
        web.produce(12, bad=0.3, tombstones=0.1, seed=seed)
        _drain(web)
    return web.publisher.flush()


def crashed_around_the_letters(web: DrivenStream) -> Sequence[Produced]:
    def crash() -> None:
        raise Crash

    for doom in ("dead letters written", "commit sent"):
        web.produce(20, bad=0.5)
        with suppress(Crash):
            web.drain(at=Once(doom, crash))
    _drain(web)
    return web.publisher.flush()


def overtaken(web: DrivenStream) -> Sequence[Produced]:
    """Another drain commits between this one's files and its commit."""
    web.drain_rounds(1, 12)
    web.produce(12)
    _drain(web, at=Once("files written", web.drain))
    return web.publisher.flush()


def answer_lost(web: DrivenStream) -> Sequence[Produced]:
    """The commit lands, and the connection breaks before the answer."""
    web.drain_rounds(1, 12)
    web.produce(12)
    real = delta_transaction.send_commit
    lost: list[int] = []

    def send(*arguments: Any) -> int:
        version = real(*arguments)
        if not lost:
            lost.append(version)
            raise Py4JNetworkError("the connection broke")
        return version

    with MonkeyPatch.context() as breaking:
        breaking.setattr(single_commit, "send_commit", send)
        _drain(web)
    return web.publisher.flush()


def transaction_open(web: DrivenStream) -> Sequence[Produced]:
    """A transaction is open while a drain runs, and is committed after it."""
    web.produce(6)
    transaction = TransactionalPublisher(web.stream.kafka.bootstrap_servers, web.stream.topic)
    transaction.begin()
    replace(web, publisher=transaction).produce(4, seed=5)
    _drain(web)
    transaction.end(commit=True)
    await_markers(web.stream.kafka, web.stream.topic)
    web.publisher.log += transaction.log
    web.produce(6, seed=1)
    _drain(web)
    return web.publisher.flush()


def messages_unread(web: DrivenStream) -> Sequence[Produced]:
    """The reader drops messages silently, once."""
    web.produce(20)
    with _dropping_reader():
        _drain(web)
    web.produce(10, seed=1)
    _drain(web)
    return web.publisher.flush()


def restored(web: DrivenStream) -> Sequence[Produced]:
    web.drain_rounds(2, 12)
    DeltaTable(web.uri).restore(1)
    _drain(web)
    return web.publisher.flush()


def swept(web: DrivenStream) -> Sequence[Produced]:
    web.drain_rounds(2, 20, bad=0.4)
    ledger_letters.remove_orphaned_dead_letters(web.stream, web.lake)
    return web.publisher.flush()


def partition_added(web: DrivenStream) -> Sequence[Produced]:
    web.drain_rounds(1, 6)
    add_topic_partitions(web, total=2)
    web.produce(12)
    _drain(web)
    return web.publisher.flush()


def replayed_while_drained(web: DrivenStream) -> Sequence[Produced]:
    """A drain commits between the outcomes of a replay and its commit."""
    web.with_definition(columns=WRONG).drain_rounds(1, 12)
    web.produce(12)
    with suppress(KdiError):
        replay_letters(web.stream, lake=web.lake, session=web.session, at=Once("letters written", web.drain))
    _drain(web)
    return web.publisher.flush()


def replayed_beside_rows_by_hand(web: DrivenStream) -> Sequence[Produced]:
    """Someone restores the table to before a replay and writes its rows back by hand; then a second replay."""
    web.with_definition(columns=WRONG).drain_rounds(1, 12)
    before = DeltaTable(web.uri).version()
    replay_letters(web.stream, lake=web.lake, session=web.session)
    rows = DeltaTable(web.uri).to_pyarrow_table()
    DeltaTable(web.uri).restore(before)
    _drain(web)
    write_deltalake(web.uri, rows, mode="append")
    with suppress(KdiError):
        replay_letters(web.stream, lake=web.lake, session=web.session)
    return web.publisher.flush()


@contextmanager
def _dropping_reader() -> Iterator[None]:
    real = KafkaSource.read

    def read(*arguments: Any, **options: Any) -> DataFrame:
        return real(*arguments, **options).where("offset % 5 <> 3")

    with MonkeyPatch.context() as dropping:
        dropping.setattr(KafkaSource, "read", read)
        yield


# What is wrong with the engine


def commit_before_letters(patch: MonkeyPatch) -> None:
    def pretended(execution: Execution) -> None:
        counts, recorded = execution.counts, execution.plan.ledger.dead_letters_at
        execution.letters = AppendedLetters(counts.dead_letters, counts.dead_letter_digest, recorded)

    write = Execution.write_dead_letters
    steps = [replace(step, run=pretended) if step.run is write else step for step in carrying.STEPS]
    patch.setattr(carrying, "STEPS", (*steps, Step(write)))


def every_letter_counts(patch: MonkeyPatch) -> None:
    class Anyone(frozenset[str]):
        def __contains__(self, attempt: object) -> bool:
            return True

    patch.setattr(oracle, "attempts_that_count", lambda stream, lake: Anyone())


def position_off_by(step: int) -> Callable[[MonkeyPatch], None]:
    def mutate(patch: MonkeyPatch) -> None:
        real: Any = Plan.positions_after.fget  # type: ignore[attr-defined]
        done: list[Plan] = []

        def positions_after(plan: Plan) -> Mapping[TopicPartition, int]:
            right: Mapping[TopicPartition, int] = real(plan)
            if done:
                return right
            done.append(plan)
            return {tp: position + step for tp, position in right.items()}

        patch.setattr(Plan, "positions_after", property(positions_after))

    return mutate


def expectation_unchecked(patch: MonkeyPatch) -> None:
    patch.setattr(adapter, "check_for_conflicts", lambda newest, **_: None)


def commit_again_without_looking(patch: MonkeyPatch) -> None:
    real = carrying.execute_plan

    def impatient(*arguments: Any, **options: Any) -> Any:
        try:
            return real(*arguments, **options)
        except ReadOrWriteFailed:
            return real(*arguments, **options)  # the same plan once more; the same files alone would count once

    patch.setattr(draining, "execute_plan", impatient)
    patch.setattr(single_commit, "find_attempt", lambda *arguments, **options: None)
    expectation_unchecked(patch)


def bad_row_swallowed(patch: MonkeyPatch) -> None:
    def verdict(*arguments: Any) -> str:
        return verdict_sql(*arguments).replace(f"THEN {DEAD_LETTER} ELSE {ROW}", f"THEN {TOMBSTONE} ELSE {ROW}")

    patch.setattr(judging, "verdict_sql", verdict)


def good_row_condemned(patch: MonkeyPatch) -> None:
    def verdict(*arguments: Any) -> str:
        chosen = f"kafka.offset % 5 = 2 AND {VALUE} IS NOT NULL"
        return f"CASE WHEN {chosen} THEN {DEAD_LETTER} ELSE ({verdict_sql(*arguments)}) END"

    patch.setattr(judging, "verdict_sql", verdict)
    patch.setattr(judging, "reason_of", lambda rule, rules: "'wrong_type'")


def end_is_high_watermark(patch: MonkeyPatch) -> None:
    stable: dict[TopicPartition, int] = {}
    ask, read = kafka._list_offsets, KafkaSource.read

    def list_offsets(*arguments: Any) -> Any:
        answers: dict[TopicPartition, Any] = ask(*arguments)
        stable.update({tp: answer.end for tp, answer in answers.items()})
        return {tp: replace(answer, end=answer.high_watermark) for tp, answer in answers.items()}

    def read_visible(source: KafkaSource, spark: Any, ranges: Sequence[OffsetRange]) -> DataFrame:
        # Spark's own reader would wait for invisible messages, and fail; this reader takes what there is.
        visible = [replace(r, end=min(r.end, stable[r.topic_partition])) for r in ranges]
        return read(source, spark, [r for r in visible if r.offset_count > 0])

    patch.setattr(kafka, "_list_offsets", list_offsets)
    patch.setattr(KafkaSource, "read", read_visible)
    # The second client waits for invisible messages, and would refuse.
    patch.setattr(KafkaSource, "last_messages", lambda source, ranges: {})
    gap_unconfirmed(patch)


def gap_unconfirmed(patch: MonkeyPatch) -> None:
    patch.setattr(KafkaSource, "message_in", lambda source, ranges, **limits: None)
    patch.setattr(KafkaSource, "can_have_gaps", lambda source, topic: True)


def restore_ignored(patch: MonkeyPatch) -> None:
    patch.setattr(_LedgerReader, "live", lambda self, log: log)


def committed_letters_are_ghosts(patch: MonkeyPatch) -> None:
    real = ledger_letters._every_entry
    patch.setattr(ledger_letters, "_every_entry", lambda stream, commits: real(stream, commits)[-1:])


def new_partition_at_latest(patch: MonkeyPatch) -> None:
    def positions_of(ledger: Any, topic: Any) -> Mapping[TopicPartition, int]:
        return {tp: ledger.positions.get(tp, offsets.end) for tp, offsets in sorted(topic.partitions.items())}

    patch.setattr(planning, "positions_of", positions_of)


def totals_from_the_plan(patch: MonkeyPatch) -> None:
    def account_for(plan: Plan, *rest: Any, **options: Any) -> Account:
        return Account(tuple(RangeCounts(r, r.offset_count) for r in plan.ranges))

    patch.setattr(carrying, "account_for", account_for)


def replay_with_planned_positions(patch: MonkeyPatch) -> None:
    patch.setattr(adapter, "rebase", lambda entry, other: entry)


def replay_blind_to_rows(patch: MonkeyPatch) -> None:
    real = open_letters._rows_of
    patch.setattr(open_letters, "_rows_of", lambda *arguments: real(*arguments).where("false"))


MUTANTS = (
    Mutant("commit before dead letters", commit_before_letters, crashed_around_the_letters),
    Mutant("letters counted without asking the ledger", every_letter_counts, crashed_around_the_letters),
    Mutant("position one too high", position_off_by(1), drained_twice),
    Mutant("position one too low", position_off_by(-1), drained_twice),
    Mutant("expectation not checked", expectation_unchecked, overtaken),
    Mutant("commit attempted again without looking", commit_again_without_looking, answer_lost),
    Mutant("bad row swallowed", bad_row_swallowed, drained_twice),
    Mutant("good row condemned", good_row_condemned, drained_twice),
    Mutant("range end taken as high watermark", end_is_high_watermark, transaction_open),
    Mutant("gap not confirmed", gap_unconfirmed, messages_unread),
    Mutant("RESTORE ignored", restore_ignored, restored),
    Mutant("a committed attempt's letters removed as ghosts", committed_letters_are_ghosts, swept),
    Mutant("new topic partition started at latest", new_partition_at_latest, partition_added),
    Mutant("a replay sets the positions that it was planned on", replay_with_planned_positions, replayed_while_drained),
    Mutant("a replay does not look for rows", replay_blind_to_rows, replayed_beside_rows_by_hand),
    Mutant("totals taken from the plan instead of the read", totals_from_the_plan, messages_unread),
)
