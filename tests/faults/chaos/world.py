"""The world of one run: a stream, what was done to it so far, and what must hold after every step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from kdi_assets.delta.log import TableLog
from kdi_assets.dev.broker import Broker
from kdi_assets.drain.plan_errors import RetentionPassedPosition
from kdi_assets.drain.report import DrainReport
from kdi_assets.drain.snapshot import take_snapshot
from kdi_assets.sources.kafka.topic import read_topic
from kdi_assets.sources.topic_state import BrokerOffsets
from kdi_assets.stream.stream import OffsetRange, Stream, TopicPartition
from tests.driven import DrivenStream
from tests.faults.chaos.readers import READERS, Readers
from tests.faults.topics import TransactionalPublisher, await_markers
from tests.oracle import entries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class World:
    """One stream with faults.

    Attributes:
        home: ``KDI_HOME`` of the warm driver that everything here attaches to.
        given_up: Offsets that may be missing: declared losses, rows removed on purpose.
        oldest_restorable: The oldest table version whose files VACUUM has left.
        transaction: Messages of an open transaction.
        goes_back: Whether the current step may set positions back.
    """

    web: DrivenStream
    broker: Broker
    home: Path
    random: Random
    readers: Readers
    given_up: list[OffsetRange] = field(default_factory=list)
    oldest_restorable: int = 0
    transaction: TransactionalPublisher | None = None
    goes_back: bool = False
    _positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    _begun: Mapping[TopicPartition, int] = field(default_factory=dict)
    _ended: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def stream(self) -> Stream:
        return self.web.stream

    @property
    def log(self) -> TableLog | None:
        """The table's log, now."""
        return TableLog.open(self.web.uri)

    def session(self) -> SparkSession:
        return self.web.session()

    def positions(self) -> Mapping[TopicPartition, int]:
        """Next offset of every topic partition, for the current rows."""
        return take_snapshot(self.stream, self.web.lake).positions()

    def begun(self) -> Mapping[TopicPartition, int]:
        """Where the stream began; later topic partitions are not included, and begin at 0.

        Raises:
            AssertionError: That is not where its document says.
        """
        if not self._begun:
            self._begun = entries(self.web.uri, self.stream.app_id)[0].positions
            for tp, held in self._held().items():
                ends = range(self._ended.get(tp, 0), held.end + 1)
                right = range(held.earliest, held.earliest + 1) if self.stream.start == "earliest" else ends
                assert self._begun[tp] in right, f"{tp} begins at {self._begun[tp]}, and not in {right}"
        return self._begun

    def drain(
        self, stream: Stream | None = None, *, at: Callable[[str], None] = lambda point: None
    ) -> DrainReport | None:
        """Drain as a person on call would: give up what retention deleted, and nothing else."""
        try:
            return self.web.drain(stream, at=at)
        except RetentionPassedPosition:
            self.accept_loss()
            return None

    def accept_loss(self) -> None:
        """Decide as the refusal proposes.

        Raises:
            AssertionError: The decision gives up messages that the broker still holds.
        """
        held, positions = self._held(), self.positions()
        decision = self.web.resolve("accept-loss")
        for lost in decision.declared_losses:
            assert lost.start >= positions[lost.topic_partition], f"{lost} is given up, and part of it was drained"
            assert lost.end <= held[lost.topic_partition].earliest, f"{lost} is given up, and the broker has part of it"
        self.given_up += decision.declared_losses

    def check(self) -> None:
        """What must hold between any two steps.

        * Each message below the positions is there once; nothing else is there.
        * Positions go forward, unless someone restored the table.
        * The two readers never saw half a drain.
        """
        if self.log is None:
            self._ended = {tp: held.end for tp, held in self._held().items()}
            return
        positions, begun = self.positions(), self.begun()
        produced = [m for m in self.web.publisher.flush() if m.offset >= begun.get(m.topic_partition, 0)]
        self.web.assert_each_offset_once(
            [m for m in produced if m.offset < positions[m.topic_partition]], given_up=self.given_up
        )
        if not self.goes_back:
            back = {tp: (self._positions[tp], at) for tp, at in positions.items() if at < self._positions.get(tp, 0)}
            assert not back, f"positions went back: {back}"
        self._positions, self.goes_back = positions, False
        self.readers.check(produced, self.given_up, seed=self.web.seed)

    def check_at_the_end(self) -> None:
        """Drain the rest; then every produced message is there, and the audit is complete."""
        await_markers(self.web.stream.kafka, self.web.stream.topic)
        for _ in range(4):  # a loss is decided first, and a decision is not a drain
            if report := self.drain():
                break
        assert report is not None, "the drain was refused four times"
        assert report.backlog_after == 0, f"{report.backlog_after} offsets still wait"
        self.check()
        ends = {tp: held.end for tp, held in self._held().items()}
        assert self.positions() == ends, f"positions {self.positions()}, the topic ends at {ends}"
        audit = self.web.audit()
        assert audit.complete, audit.line()
        assert len(self.readers.looks) == len(READERS), f"not everybody read the table: {self.readers.looks}"

    def _held(self) -> Mapping[TopicPartition, BrokerOffsets]:
        return read_topic(self.stream.kafka, self.stream.topic).partitions
