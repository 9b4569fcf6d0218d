"""Drain: look, settle, plan, carry out, until what was there at the first look is in the table."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from kdi_assets.drain.carry_out import Commit, carry_out
from kdi_assets.drain.dead_letters import refuse_replaced
from kdi_assets.drain.plan import Plan, plan_drain
from kdi_assets.drain.refusals import AnotherDrainActive
from kdi_assets.drain.settle import Settlement, settle, unsettled
from kdi_assets.ledger.commit import OvertakenCommit
from kdi_assets.ledger.state import LedgerState, read_ledger
from kdi_assets.sources.kafka import TopicState, read_topic
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
        cpu_seconds: Of this process and the driver's JVM together; on a shared driver others' work is in it.
    """

    stream: str
    commits: tuple[Commit, ...]
    settled: tuple[str, ...]
    positions: Mapping[TopicPartition, int]
    backlog_before: int
    backlog_after: int
    seconds: float
    cpu_seconds: float

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


@dataclass(frozen=True, slots=True)
class Look:
    """A stream at one moment: what the broker has, what the ledger says, and what a drain would do first."""

    topic: TopicState
    ledger: LedgerState | None
    settlement: Settlement | None

    def plan(self, stream: Stream, until: Mapping[TopicPartition, int] | None = None) -> Plan | None:
        """The next plan; ``None`` as long as something must be settled first."""
        if self.settlement or self.ledger is None:
            return None
        return plan_drain(stream, ledger=self.ledger, topic=self.topic, now=datetime.now(UTC), until=until)

    def positions(self) -> dict[TopicPartition, int]:
        """Next offset of every topic partition, as a drain would begin."""
        settled = self.settlement.positions if self.settlement else self.ledger.positions if self.ledger else {}
        return {tp: settled.get(tp, 0) for tp in sorted(self.topic.partitions)}

    def backlog(self) -> int:
        """Offsets between positions and ends."""
        return sum(max(0, self.topic.partitions[tp].end - position) for tp, position in self.positions().items())


def look(stream: Stream, lake: str) -> Look:
    """Look at the stream's topic and ledger, without a JVM.

    Raises:
        KdiError: Whatever stands in the way of a drain: typed, with the command that decides it.
    """
    topic = read_topic(stream.cluster, stream.topic)
    ledger = read_ledger(stream, lake, topic_id=topic.topic_id, topic_partitions=len(topic.partitions))
    if ledger:
        refuse_replaced(stream, lake, ledger.entry)
    return Look(topic, ledger, unsettled(stream, ledger, topic))


def drain(
    stream: Stream,
    *,
    lake: str,
    session: Callable[[], SparkSession],
    run_id: str = "",
    on_commit: Callable[[Commit], None] = lambda commit: None,
    at: Callable[[str], None] = lambda point: None,
) -> DrainReport:
    """Drain everything that waits now into the stream's table, exactly once.

    Args:
        lake: Root of the tables.
        session: Gives the Spark session; called only if there is something to do.
        run_id: Recorded in the ledger entry; Dagster's, if there is one.
        on_commit: Called after each commit, before the next plan.
        at: Called at the named points of a drain (``"before reading"``, …); tests stop the drain there.

    Raises:
        AnotherDrainActive: Overtaken twice in a row.
        KdiError: Every refusal of ``look`` and ``carry_out``.
    """
    started, commits, settled, lost = _Clock.start(), [], [], 0
    seen = first = look(stream, lake)
    until = {tp: offsets.end for tp, offsets in first.topic.partitions.items()}
    while plan_or_settlement := seen.settlement or seen.plan(stream, until):
        if isinstance(plan_or_settlement, Plan) and not plan_or_settlement.ranges:
            break
        spark = started.watching(session())
        try:
            if isinstance(plan_or_settlement, Plan):
                commits.append(carry_out(plan_or_settlement, stream, lake, spark, run_id=run_id, at=at))
                on_commit(commits[-1])
            else:
                settle(spark, plan_or_settlement, stream, lake, ledger=seen.ledger, topic=seen.topic, run_id=run_id)
                settled.append(plan_or_settlement.reason)
            lost = 0
        except OvertakenCommit as overtaken:
            lost += 1
            if lost >= LOSSES:
                raise AnotherDrainActive(stream=stream.name, detail=overtaken.parts()[0]) from overtaken
        seen = look(stream, lake)
    return DrainReport(
        stream=stream.name,
        commits=tuple(commits),
        settled=tuple(settled),
        positions=seen.positions(),
        backlog_before=first.backlog(),
        backlog_after=seen.backlog(),
        seconds=started.seconds(),
        cpu_seconds=started.cpu_seconds(),
    )


class _Clock:
    """Wall and CPU seconds of a drain."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.monotonic(), time.process_time()
        self._spark: SparkSession | None = None
        self._jvm_cpu = 0.0

    @classmethod
    def start(cls) -> _Clock:
        return cls()

    def watching(self, spark: SparkSession) -> SparkSession:
        if self._spark is None:
            self._spark, self._jvm_cpu = spark, _jvm_cpu_seconds(spark)
        return spark

    def seconds(self) -> float:
        return time.monotonic() - self._wall

    def cpu_seconds(self) -> float:
        jvm = _jvm_cpu_seconds(self._spark) - self._jvm_cpu if self._spark else 0.0
        return time.process_time() - self._cpu + jvm


def _jvm_cpu_seconds(spark: SparkSession) -> float:
    jvm = spark._jvm
    assert jvm is not None
    spent = jvm.java.lang.ProcessHandle.current().info().totalCpuDuration()
    return float(spent.get().toMillis()) / 1000 if spent.isPresent() else 0.0
