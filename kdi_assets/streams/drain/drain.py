"""Drain: snapshot, plan or position commit, execution, next snapshot, until the ends of the first one are reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Required, TypedDict, Unpack

from kdi_assets.delta.errors import OvertakenCommit, StagedFilesGone, StorageFailed
from kdi_assets.delta.lost_races import LostRaces
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import Transient
from kdi_assets.messages.held import Held, ReadMessages
from kdi_assets.messages.of_stream import source_of
from kdi_assets.messages.topic_state import TopicState
from kdi_assets.runtime.cpu_clock import CpuClock
from kdi_assets.streams.drain.accounting import refuse_large_timestamps
from kdi_assets.streams.drain.errors import (
    AccountingMismatch,
    DeadLettersGone,
    Undrainable,
    UnexplainedGap,
    another_active,
)
from kdi_assets.streams.drain.execute_plan import DrainContext, execute_plan
from kdi_assets.streams.drain.plan import Plan, PositionCommit, most_offsets
from kdi_assets.streams.drain.position_commit import commit_positions
from kdi_assets.streams.drain.report import Commit, DrainReport, heard_by_listeners
from kdi_assets.streams.drain.snapshot import check_last_read, expected_offset_bytes, take_snapshot
from kdi_assets.streams.spark_errors import ReadOrWriteFailed, jvm_loss_named, spark_failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class DrainOptions(TypedDict, total=False):
    """What a caller sets in the ``DrainContext``."""

    lake: Required[str]
    session: Required[Callable[[], SparkSession]]
    run_id: str
    accept_dead_letters: bool
    report: Callable[[str], None]
    on_backlog: Callable[[int], None]


def drain(
    stream: Stream,
    *,
    on_commit: Callable[[Commit], None] = lambda commit: None,
    at: Callable[[str], None] = lambda point: None,
    **options: Unpack[DrainOptions],
) -> DrainReport:
    """Drain the stream's backlog into its table, exactly once.

    Args:
        on_commit: Called after each commit, before the next plan.
        at: As in ``DrainContext``.
        options: As in ``DrainContext``.

    Raises:
        AnotherDrainActive: Other commits came first too often in a row.
        KdiError: Every refusal of ``take_snapshot`` and ``execute_plan``.
    """
    context = DrainContext(stream=stream, at=at, **options)
    lake, session = context.lake, context.session
    with heard_by_listeners("drain", stream, lake, session, run_id=context.run_id, report=context.report) as heard:

        def committed(commit: Commit) -> None:
            heard(commit)
            on_commit(commit)

        draining = Draining(context, on_commit=committed)
        while step := draining.next_step():
            draining.take(step)
        return draining.report()


class Draining:
    """A drain in progress: its next step, and what it did so far.

    Args:
        context: Of the drain.
        on_commit: Called after each commit, before the next plan.
        topic: The topic as somebody has just read it; by default the first snapshot reads it.
    """

    def __init__(
        self, context: DrainContext, *, on_commit: Callable[[Commit], None], topic: TopicState | None = None
    ) -> None:
        self._clock, self._conflicts, self._overtaken = _Clock(), 0, False
        # Not `until_won`: a pass takes the steps of several streams in turn, and reads for all of them.
        self._lost = LostRaces()
        self._context = replace(context, session=lambda: self._clock.watching(context.session()))
        self._on_commit = on_commit
        self._commits: list[Commit] = []
        self._position_commits: list[str] = []
        self._undrainable: Undrainable | None = None
        self._lag: float | None = None
        self._read_held: ReadMessages | None = None
        self._until_taken = ExitStack()
        with self._clock.running():
            self._snapshot = take_snapshot(context.stream, context.lake, topic)
        self._backlog_before = self._snapshot.backlog()
        first = self._snapshot.topic
        if not first.as_of and not context.stream.explodes:
            context.on_backlog(self._backlog_before)
        self._as_of = first.as_of
        # Where a moment ends the drain, no offsets do: what is held first may be only a part of what came before it.
        self._until, self._has_ends = ({}, True) if first.as_of else (first.ends, False)

    @property
    def stream(self) -> Stream:
        return self._context.stream

    @property
    def holds_messages(self) -> bool:
        """Whether the source holds the messages of the next plan, so that they need not be read."""
        return self._read_held is not None

    def next_step(self) -> Plan | PositionCommit | None:
        """The next step; ``None`` if the table has everything up to the ends of the first snapshot, as it was held.

        Raises:
            TopicTruncated: Other messages are at the offsets that were read last.
            Undrainable: Nothing else is left than offsets that no drain can read, and what follows them.
        """
        if self._snapshot.position_commit:
            return self._snapshot.position_commit
        stream = self.stream
        with self._clock.running(), ExitStack() as unless_planned:
            unless_planned.callback(self._until_taken.close)
            expected = expected_offset_bytes(stream, self._snapshot)
            held = self._hold(most_offsets(stream, expected))
            snapshot = replace(self._snapshot, topic=held.topic)
            with spark_failures(stream, "looking for the end of the plan"):
                until = {tp: before for tp, (before, _) in held.edges(self._until).items()}
            plan = snapshot.plan(stream, until, offset_bytes=expected)
            if plan and plan.ranges:
                # Before every plan: its commit replaces the message read last, and a truncation would not be noticed.
                timestamps = check_last_read(stream, snapshot)
                if timestamps and self._lag is None:
                    self._lag = max(0.0, (datetime.now(UTC) - min(timestamps)).total_seconds())
                read = source_of(stream).last_messages(plan.ranges)
                with spark_failures(stream, "looking for the end of the plan"):
                    ends = held.edges({r.topic_partition: r.end for r in plan.ranges})
                    ranges = tuple(replace(r, end=ends[r.topic_partition][1]) for r in plan.ranges)
                    marks = held.marks(ranges)
                planned = replace(plan, ranges=ranges, last_read={**plan.last_read, **read}, marks=marks)
                unless_planned.pop_all()
                return planned
            if held.renewal and snapshot.ledger:
                has_ended = any(mark.ended for mark in held.renewal.values())
                reason = "a shard has ended" if has_ended else "nothing arrived for a quarter of the retention"
                positions = {**dict.fromkeys(held.renewal, 0), **snapshot.ledger.positions}
                return PositionCommit("renewal", positions, reason, held.renewal)
        if self._undrainable:
            raise self._undrainable
        return None

    def take(self, step: Plan | PositionCommit, *, read: ReadMessages | None = None) -> None:
        """Take the step, then another snapshot.

        Args:
            read: As in ``execute_plan``; what the source holds for the plan is read instead.

        Raises:
            AnotherDrainActive: Other commits came first too often in a row.
            KdiError: What the step refuses.
        """
        with self._clock.running():
            try:
                self._context.report(_log_line(self.stream, step))
                with _explained_by_snapshot(self._context, step), jvm_loss_named(self.stream):
                    if isinstance(step, PositionCommit):
                        self._commit_positions(step)
                    else:
                        self._commits.append(self._execute(step, self._read_held or read))
                if isinstance(step, Plan):
                    self._on_commit(self._commits[-1])
                self._lost.end()
                self._conflicts = 0
            except Undrainable as refused:
                # Go on with what comes before these offsets, and with other topic partitions: no decision holds them.
                self._undrainable = self._undrainable or refused
                self._until |= {r.topic_partition: r.start for r in refused.offsets}
            except OvertakenCommit as overtaken:
                self._conflicts, self._overtaken = self._conflicts + 1, True
                self._lost.add(overtaken, gives_up=partial(another_active, self.stream.name))
            except (StagedFilesGone, DeadLettersGone) as gone:
                self._lost.add(gone)
            finally:
                self._until_taken.close()
            self._snapshot = take_snapshot(self.stream, self._context.lake)

    def _execute(self, plan: Plan, read: ReadMessages | None) -> Commit:
        cpu_seconds = self._clock.unrecorded_cpu_seconds
        landed = execute_plan(plan, self._context, read=read, conflicts=self._conflicts, cpu_seconds=cpu_seconds)
        self._clock.recorded(landed.cpu_seconds or 0.0)
        return landed

    def report(self) -> DrainReport:
        """What the drain did."""
        return DrainReport(
            stream=self.stream.name,
            commits=tuple(self._commits),
            position_commits=tuple(self._position_commits),
            positions=self._snapshot.positions(),
            backlog_before=self._backlog_before,
            backlog_after=self._snapshot.backlog(),
            lag_seconds=self._lag,
            seconds=self._clock.seconds,
            cpu_seconds=self._clock.cpu_seconds,
            taken_by_another=self._overtaken and not self._commits,
        )

    def _hold(self, most: int) -> Held:
        """What the source holds until the next plan is taken: of what it reads ahead, no more than a plan may have."""
        topic, ledger = replace(self._snapshot.topic, as_of=self._as_of), self._snapshot.ledger
        self._read_held = None
        if ledger is None:
            return Held(topic)
        hold = source_of(self.stream).hold(self._context.session, topic, ledger, most=most)
        with spark_failures(self.stream, "reading messages before a plan"):
            held = self._until_taken.enter_context(hold)
        self._read_held = held.read
        if held.read and not self._has_ends:
            self._until, self._has_ends = held.topic.ends, True  # a source that reads ahead knows its ends only now
        return held

    def _commit_positions(self, step: PositionCommit) -> None:
        context, snapshot = self._context, self._snapshot
        commit_positions(
            context.session(),
            step,
            self.stream,
            context.lake,
            ledger=snapshot.ledger,
            topic=snapshot.topic,
            run_id=context.run_id,
        )
        self._position_commits.append(step.reason)


@contextmanager
def _explained_by_snapshot(context: DrainContext, step: Plan | PositionCommit) -> Iterator[None]:
    """Take another snapshot when the step fails: a change since the last one may be the cause, and its refusal says so.

    Raises:
        TimestampTooLarge: Spark cannot read messages of the plan.
        KdiError: What the snapshot refuses; else the failure itself.
    """
    stream = context.stream
    try:
        yield
    except ReadOrWriteFailed as failed:
        with suppress(StorageFailed):  # whether the commit landed, only the first failure leaves open
            take_snapshot(stream, context.lake).plan(stream)  # refuses planned offsets that are gone by now
        if isinstance(step, Plan) and "overflow" in failed.detail:  # an expression of the document may overflow too
            refuse_large_timestamps(stream, step.ranges)
        raise
    except (AccountingMismatch, UnexplainedGap):
        with suppress(Transient):  # brokers that do not answer now say less than the failure
            take_snapshot(stream, context.lake).plan(stream)
        raise


def _log_line(stream: Stream, step: Plan | PositionCommit) -> str:
    if isinstance(step, Plan):
        return f"{stream.name}: draining {step.offset_count:,} offsets: {', '.join(map(str, step.ranges))}"
    return f"{stream.name}: committing positions: {step.reason}"


class _Clock:
    """Wall and CPU seconds of a drain, without those in which another drain of the pass runs."""

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = self._recorded = 0.0
        self._cpu = CpuClock()
        self._cpu_before: float | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        wall, self._cpu_before = time.monotonic(), self._cpu.seconds()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - wall
            self.cpu_seconds, self._cpu_before = self._cpu_so_far(), None

    def watching(self, spark: SparkSession) -> SparkSession:
        """The session; the CPU seconds of its JVM count from now on."""
        return self._cpu.watching(spark)

    def unrecorded_cpu_seconds(self) -> float:
        """CPU seconds that no commit of the drain has recorded yet."""
        return self._cpu_so_far() - self._recorded

    def recorded(self, cpu_seconds: float) -> None:
        """A commit has recorded these."""
        self._recorded += cpu_seconds

    def _cpu_so_far(self) -> float:
        before = self._cpu_before
        return self.cpu_seconds + (0.0 if before is None else max(0.0, self._cpu.seconds() - before))
