"""Drain: snapshot, position commits, plan, execution; until what was there at the start is in the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Required, TypedDict, Unpack

from kdi_assets.drain.accounting import refuse_large_timestamps
from kdi_assets.drain.errors import (
    AccountingMismatch,
    AnotherDrainActive,
    DeadLettersGone,
    ReadOrWriteFailed,
    Undrainable,
    UnexplainedGap,
)
from kdi_assets.drain.execute_plan import ReadMessages, execute_plan
from kdi_assets.drain.plan import Plan
from kdi_assets.drain.position_commit import PositionCommit, commit_positions
from kdi_assets.drain.report import Commit as Commit
from kdi_assets.drain.report import DrainReport as DrainReport
from kdi_assets.drain.snapshot import next_messages, offset_bytes, take_snapshot
from kdi_assets.drain.spark_errors import jvm_loss_named
from kdi_assets.errors import Transient
from kdi_assets.ledger.errors import OvertakenCommit, StagedFilesGone
from kdi_assets.sources.kafka.messages import last_messages
from kdi_assets.sources.kafka.topic import TopicState
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOSSES = 2
"""A drain that was overtaken so often in a row leaves the field to the other one."""


class DrainOptions(TypedDict, total=False):
    """What a drain is given beside its stream.

    Attributes:
        lake: Root of the tables.
        session: Gives the Spark session; called only if there is something to do.
        run_id: Recorded in the ledger entry; Dagster's, if there is one.
        accept_dead_letters: Go on beyond the stream's limit of dead letters: someone has seen them.
        report: Called with a line about each step, for a log.
    """

    lake: Required[str]
    session: Required[Callable[[], SparkSession]]
    run_id: str
    accept_dead_letters: bool
    report: Callable[[str], None]


def drain(
    stream: Stream,
    *,
    on_commit: Callable[[Commit], None] = lambda commit: None,
    at: Callable[[str], None] = lambda point: None,
    **options: Unpack[DrainOptions],
) -> DrainReport:
    """Drain everything that waits now into the stream's table, exactly once.

    Args:
        on_commit: Called after each commit, before the next plan.
        at: Called at the named points of a drain (``"before reading"``, …); tests stop the drain there.

    Raises:
        AnotherDrainActive: Overtaken twice in a row.
        KdiError: Every refusal of ``take_snapshot`` and ``execute_plan``.
    """
    draining = Draining(stream, on_commit=on_commit, at=at, **options)
    while step := draining.next_step():
        draining.do(step)
    return draining.done()


class Draining:
    """A stream on the way: what comes next, and what was done.

    Args:
        topic: As it is now, where somebody has looked; the others are those of ``drain``.
    """

    def __init__(
        self,
        stream: Stream,
        *,
        on_commit: Callable[[Commit], None],
        at: Callable[[str], None],
        topic: TopicState | None = None,
        **options: Unpack[DrainOptions],
    ) -> None:
        self.stream, self._lake, self._session = stream, options["lake"], options["session"]
        self._run_id, self._options = options.get("run_id", ""), options
        self._on_commit, self._at = on_commit, at
        self._clock, self._lost, self._conflicts = _Clock(), 0, 0
        self._commits: list[Commit] = []
        self._settled: list[str] = []
        self._undrainable: Undrainable | None = None
        with self._clock.running():
            self._seen = self._first = take_snapshot(stream, self._lake, topic)
        self._lag: float | None = None
        self._until = {tp: offsets.end for tp, offsets in self._first.topic.partitions.items()}

    def next_step(self) -> Plan | PositionCommit | None:
        """What is to be done now; nothing if all that was there at the first look is in the table.

        Raises:
            TopicTruncated: The messages that were read last are others now.
            Undrainable: All is done but what no drain can take, and what lies behind that.
        """
        if self._seen.settlement:
            return self._seen.settlement
        with self._clock.running():
            expected = offset_bytes(self.stream, self._lake, self._seen)
            plan = self._seen.plan(self.stream, self._until, offset_bytes=expected)
            if plan and plan.ranges:
                # Before every plan: behind the next one, the last message read is one that came after a truncation.
                written = next_messages(self.stream, self._seen)
                if written and self._lag is None:
                    self._lag = max(0.0, (datetime.now(UTC) - min(written)).total_seconds())
                read = last_messages(self.stream.cluster, plan.ranges)
                return replace(plan, last_read={**plan.last_read, **read})
        if self._undrainable:
            raise self._undrainable
        return None

    def do(self, step: Plan | PositionCommit, *, read: ReadMessages | None = None) -> None:
        """Do what ``next_step`` said, and look again.

        Args:
            read: Gives the messages of a plan; by default Kafka does.

        Raises:
            AnotherDrainActive: Overtaken twice in a row.
            KdiError: What was refused.
        """
        if report := self._options.get("report"):
            report(_told(self.stream, step))
        with self._clock.running():
            try:
                with _looked_at_again(self.stream, self._lake, step), jvm_loss_named(self.stream):
                    if isinstance(step, Plan):
                        self._carry_out(step, read)
                    else:
                        self._settle(step)
                if isinstance(step, Plan):
                    self._on_commit(self._commits[-1])
                self._lost = self._conflicts = 0
            except Undrainable as refused:
                # What lies before these offsets, and in other topic partitions, waits for nobody's decision.
                self._undrainable = self._undrainable or refused
                self._until |= {r.topic_partition: r.start for r in refused.offsets}
            except OvertakenCommit as overtaken:
                self._lost, self._conflicts = self._lost + 1, self._conflicts + 1
                if self._lost >= LOSSES:
                    raise AnotherDrainActive(stream=self.stream.name, detail=overtaken.parts()[0]) from overtaken
            except (StagedFilesGone, DeadLettersGone):
                self._lost += 1
                if self._lost >= LOSSES:
                    raise
            self._seen = take_snapshot(self.stream, self._lake)

    def done(self) -> DrainReport:
        """What the drain did."""
        return DrainReport(
            stream=self.stream.name,
            commits=tuple(self._commits),
            settled=tuple(self._settled),
            positions=self._seen.positions(),
            backlog_before=self._first.backlog(),
            backlog_after=self._seen.backlog(),
            lag_seconds=self._lag,
            seconds=self._clock.seconds,
            cpu_seconds=self._clock.cpu_seconds,
        )

    def _carry_out(self, plan: Plan, read: ReadMessages | None) -> None:
        spark = self._clock.watching(self._session())
        self._commits.append(
            execute_plan(
                plan,
                self.stream,
                self._lake,
                spark,
                read=read,
                run_id=self._run_id,
                conflicts=self._conflicts,
                accept_dead_letters=self._options.get("accept_dead_letters", False),
                at=self._at,
            )
        )

    def _settle(self, settlement: PositionCommit) -> None:
        spark, seen = self._clock.watching(self._session()), self._seen
        commit_positions(
            spark, settlement, self.stream, self._lake, ledger=seen.ledger, topic=seen.topic, run_id=self._run_id
        )
        self._settled.append(settlement.reason)


@contextmanager
def _looked_at_again(stream: Stream, lake: str, step: Plan | PositionCommit) -> Iterator[None]:
    """A failure of the body may come of what changed since the look: then another one says what, and what decides it.

    Raises:
        TimestampTooLarge: Spark failed at messages of the plan.
        KdiError: What that look refuses; else the failure itself.
    """
    try:
        yield
    except ReadOrWriteFailed as failed:
        take_snapshot(stream, lake).plan(stream)  # what was planned may be gone by now, or out of reach
        if isinstance(step, Plan) and "overflow" in failed.detail:  # an expression of the document may overflow too
            refuse_large_timestamps(stream, step.ranges)
        raise
    except (AccountingMismatch, UnexplainedGap):
        with suppress(Transient):  # a broker that does not answer now says less than what was found
            take_snapshot(stream, lake).plan(stream)
        raise


def _told(stream: Stream, step: Plan | PositionCommit) -> str:
    if isinstance(step, Plan):
        return f"{stream.name}: draining {step.offset_count:,} offsets: {', '.join(map(str, step.ranges))}"
    return f"{stream.name}: committing positions: {step.reason}"


class _Clock:
    """Wall and CPU seconds of a drain: while it runs, and not while it waits for another one."""

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = self._jvm_before = 0.0
        self._spark: SparkSession | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        wall, cpu = time.monotonic(), self._cpu()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - wall
            self.cpu_seconds += max(0.0, self._cpu() - cpu)

    def watching(self, spark: SparkSession) -> SparkSession:
        if self._spark is None:
            self._spark = spark
            self._jvm_before = self._jvm_cpu()
        return spark

    def _cpu(self) -> float:
        return time.process_time() + self._jvm_cpu() - self._jvm_before

    def _jvm_cpu(self) -> float:
        from py4j.protocol import Py4JError

        if self._spark is not None:
            with suppress(Py4JError, ConnectionError):  # it has ended since: a figure must not fail what is committed
                jvm: Any = self._spark._jvm
                spent = jvm.java.lang.ProcessHandle.current().info().totalCpuDuration()
                return float(spent.get().toMillis()) / 1000 if spent.isPresent() else 0.0
        return self._jvm_before
