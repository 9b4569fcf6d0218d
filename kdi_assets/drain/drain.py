"""Drain: look, settle, plan, carry out, until what was there at the first look is in the table."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from kdi_assets.drain.carry_out import Commit as Commit
from kdi_assets.drain.carry_out import carry_out
from kdi_assets.drain.failures import jvm_loss_named
from kdi_assets.drain.plan import Plan
from kdi_assets.drain.refusals import (
    AccountingMismatch,
    AnotherDrainActive,
    DeadLettersGone,
    ReadOrWriteFailed,
    UnexplainedGap,
)
from kdi_assets.drain.settle import Settlement, settle
from kdi_assets.drain.size import offset_bytes
from kdi_assets.drain.survey import Survey, survey
from kdi_assets.errors import Transient
from kdi_assets.ledger.commit import OvertakenCommit, StagedFilesGone
from kdi_assets.ledger.entry import FieldCounts
from kdi_assets.sources.kafka_messages import oldest_timestamps
from kdi_assets.stream import Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOSSES = 2
"""A drain that was overtaken so often in a row leaves the field to the other one."""


@dataclass(frozen=True, slots=True)
class DrainReport:
    """What one drain did.

    Attributes:
        commits: One per plan that was carried out; none if nothing was waiting.
        settled: Why positions were committed before reading, if they were.
        positions: Next offset of every topic partition at the end.
        backlog_before: Offsets that waited at the first look.
        backlog_after: Offsets that waited at the end: what came meanwhile.
        lag_seconds: Age of the oldest message that waited at the first look; ``None`` if none did.
        cpu_seconds: Of this process and the driver's JVM together; on a shared driver others' work is in it.
    """

    stream: str
    commits: tuple[Commit, ...]
    positions: Mapping[TopicPartition, int]
    backlog_before: int
    backlog_after: int
    settled: tuple[str, ...] = ()
    lag_seconds: float | None = None
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def version(self) -> int | None:
        """The newest table version of this drain."""
        return self.commits[-1].version if self.commits else None

    @property
    def rows_added(self) -> int:
        return sum(c.rows for c in self.commits)

    @property
    def rows_by_date(self) -> dict[date, int]:
        rows: Counter[date] = Counter()
        for commit in self.commits:
            rows.update(commit.rows_by_date)
        return dict(sorted(rows.items()))

    @property
    def dead_letters(self) -> int:
        return sum(c.dead_letters for c in self.commits)

    @property
    def unmet(self) -> dict[str, int]:
        """By expectation, the messages that did not meet it."""
        unmet: Counter[str] = Counter()
        for commit in self.commits:
            unmet.update(commit.unmet)
        return dict(unmet)

    @property
    def unknown(self) -> FieldCounts:
        """Fields that messages had and the record had not."""
        return sum((commit.unknown for commit in self.commits), FieldCounts())

    @property
    def misfits(self) -> FieldCounts:
        """Fields that were left out because their values did not suit the type."""
        return sum((commit.misfits for commit in self.commits), FieldCounts())

    @property
    def filtered(self) -> int:
        return sum(c.filtered for c in self.commits)


def drain(
    stream: Stream,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    run_id: str = "",
    accept_dead_letters: bool = False,
    report: Callable[[str], None] = lambda line: None,
    on_commit: Callable[[Commit], None] = lambda commit: None,
    at: Callable[[str], None] = lambda point: None,
) -> DrainReport:
    """Drain everything that waits now into the stream's table, exactly once.

    Args:
        lake: Root of the tables.
        session: Gives the Spark session; called only if there is something to do.
        run_id: Recorded in the ledger entry; Dagster's, if there is one.
        accept_dead_letters: Go on beyond the stream's limit of dead letters: someone has seen them.
        report: Called with a line about each step, for a log.
        on_commit: Called after each commit, before the next plan.
        at: Called at the named points of a drain (``"before reading"``, …); tests stop the drain there.

    Raises:
        AnotherDrainActive: Overtaken twice in a row.
        KdiError: Every refusal of ``survey`` and ``carry_out``.
    """
    clock, commits, settled, lost, conflicts = _Clock(), [], [], 0, 0
    seen = first = survey(stream, lake)
    lag, until = _lag_seconds(stream, first), {tp: offsets.end for tp, offsets in first.topic.partitions.items()}
    while step := _next_step(seen, stream, lake, until):
        report(_told(stream, step))
        try:
            with _looked_at_again(stream, lake), jvm_loss_named(stream):
                spark = clock.watching(session())
                if isinstance(step, Plan):
                    commits.append(
                        carry_out(
                            step,
                            stream,
                            lake,
                            spark,
                            run_id=run_id,
                            conflicts=conflicts,
                            accept_dead_letters=accept_dead_letters,
                            at=at,
                        )
                    )
                else:
                    settle(spark, step, stream, lake, ledger=seen.ledger, topic=seen.topic, run_id=run_id)
                    settled.append(step.reason)
            if isinstance(step, Plan):
                on_commit(commits[-1])
            lost = conflicts = 0
        except OvertakenCommit as overtaken:
            lost, conflicts = lost + 1, conflicts + 1
            if lost >= LOSSES:
                raise AnotherDrainActive(stream=stream.name, detail=overtaken.parts()[0]) from overtaken
        except (StagedFilesGone, DeadLettersGone):
            lost += 1
            if lost >= LOSSES:
                raise
        seen = survey(stream, lake)
    return DrainReport(
        stream=stream.name,
        commits=tuple(commits),
        settled=tuple(settled),
        positions=seen.positions(),
        backlog_before=first.backlog(),
        backlog_after=seen.backlog(),
        lag_seconds=lag,
        seconds=clock.seconds(),
        cpu_seconds=clock.cpu_seconds(),
    )


def _next_step(
    seen: Survey, stream: Stream, lake: str, until: Mapping[TopicPartition, int]
) -> Plan | Settlement | None:
    """What a drain does now; nothing if all below ``until`` is in the table."""
    if seen.settlement:
        return seen.settlement
    plan = seen.plan(stream, until, offset_bytes=offset_bytes(stream, lake, seen))
    return plan if plan and plan.ranges else None


@contextmanager
def _looked_at_again(stream: Stream, lake: str) -> Iterator[None]:
    """A failure of the body may come of what changed since the look: then another one says what, and what decides it.

    Raises:
        KdiError: What that look refuses; else the failure itself.
    """
    try:
        yield
    except ReadOrWriteFailed:
        survey(stream, lake).plan(stream)  # what was planned may be gone by now, or out of reach
        raise
    except (AccountingMismatch, UnexplainedGap):
        with suppress(Transient):  # a broker that does not answer now says less than what was found
            survey(stream, lake).plan(stream)
        raise


def _told(stream: Stream, step: Plan | Settlement) -> str:
    if isinstance(step, Plan):
        return f"{stream.name}: draining {step.offset_count:,} offsets: {', '.join(map(str, step.ranges))}"
    return f"{stream.name}: committing positions: {step.reason}"


def _lag_seconds(stream: Stream, first: Survey) -> float | None:
    """Age of the oldest message that waits."""
    held = first.topic.partitions
    waiting = {tp: at for tp, at in first.positions().items() if held[tp].earliest <= at < held[tp].end}
    ages = [datetime.now(UTC) - moment for moment in oldest_timestamps(stream.cluster, waiting).values()]
    return max(0.0, *(age.total_seconds() for age in ages)) if ages else None


class _Clock:
    """Wall and CPU seconds of a drain."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()
        self._spark: SparkSession | None = None
        self._jvm_cpu = 0.0

    def watching(self, spark: SparkSession) -> SparkSession:
        if self._spark is None:
            self._spark, self._jvm_cpu = spark, _jvm_cpu_seconds(spark)
        return spark

    def seconds(self) -> float:
        return time.monotonic() - self._wall

    def cpu_seconds(self) -> float:
        return time.process_time() - self._cpu + self._of_the_jvm()

    def _of_the_jvm(self) -> float:
        from py4j.protocol import Py4JError

        if self._spark is not None:
            with suppress(Py4JError, ConnectionError):  # it has ended since: a figure must not fail what is committed
                return _jvm_cpu_seconds(self._spark) - self._jvm_cpu
        return 0.0


def _jvm_cpu_seconds(spark: SparkSession) -> float:
    jvm: Any = spark._jvm
    spent = jvm.java.lang.ProcessHandle.current().info().totalCpuDuration()
    return float(spent.get().toMillis()) / 1000 if spent.isPresent() else 0.0
