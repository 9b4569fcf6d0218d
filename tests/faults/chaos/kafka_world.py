"""The world of a topic of Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.messages.kafka.topic import read_topic
from kdi_assets.messages.topic_state import BrokerOffsets
from kdi_assets.streams.drain.plan_errors import RetentionPassedPosition
from kdi_assets.streams.drain.snapshot import take_snapshot
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.tools.local.broker import Broker
from tests.driven import DrivenStream
from tests.faults.chaos.readers import At
from tests.faults.chaos.world import World
from tests.faults.topics import TransactionalPublisher, await_markers
from tests.kafka_log import Produced
from tests.oracle import entries


@dataclass(kw_only=True)
class KafkaWorld(World):
    """A topic.

    Attributes:
        web: The same stream, and what was produced to it.
        transaction: Messages of an open transaction.
    """

    DECIDABLE = (RetentionPassedPosition,)

    web: DrivenStream
    broker: Broker
    transaction: TransactionalPublisher | None = None
    _begun: Mapping[TopicPartition, int] = field(default_factory=dict)
    _ended: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        return len(self.web.publisher.log)

    def positions(self) -> Mapping[TopicPartition, int]:
        return take_snapshot(self.stream, self.lake).positions()

    def turn(self) -> None:
        """A topic is read in one way."""

    def waits(self) -> bool:
        return self.log is None or take_snapshot(self.stream, self.lake).backlog() > 0

    def begun(self) -> Mapping[TopicPartition, int]:
        """Where the stream began; later topic partitions are not included, and begin at 0.

        Raises:
            AssertionError: That is not where its document says.
        """
        if not self._begun:
            self._begun = entries(self.uri, self.stream.app_id)[0].positions
            for tp, held in self._held().items():
                ends = range(self._ended.get(tp, 0), held.end + 1)
                right = range(held.earliest, held.earliest + 1) if self.stream.start == "earliest" else ends
                assert self._begun[tp] in right, f"{tp} begins at {self._begun[tp]}, and not in {right}"
        return self._begun

    def decide(self, refusal: KdiError) -> None:
        held, positions = self._held(), self.positions()
        decision = self.web.resolve("accept-loss")
        for lost in decision.declared_losses:
            assert lost.start >= positions[lost.topic_partition], f"{lost} is given up, and part of it was drained"
            assert lost.end <= held[lost.topic_partition].earliest, f"{lost} is given up, and the broker has part of it"
        self.given_up += decision.declared_losses

    def note_start(self) -> None:
        self._ended = {tp: held.end for tp, held in self._held().items()}

    def assert_rows(self) -> None:
        positions = self.positions()
        below = [m for m in self._produced() if m.offset < positions[m.topic_partition]]
        self.web.assert_each_offset_once(below, given_up=self.given_up)

    def wanted(self, entries: Sequence[LedgerEntry]) -> Counter[At]:
        positions = entries[-1].positions if entries else {}
        drained = (m for m in self._produced() if m.offset < positions.get(m.topic_partition, 0))
        return Counter((m.topic_partition.partition, m.offset) for m in drained if m.value is not None)

    def end(self) -> None:
        if self.transaction:
            self.transaction.end(commit=False)
        await_markers(self.web.stream.kafka, self.web.stream.topic)

    def assert_complete(self) -> None:
        ends = {tp: held.end for tp, held in self._held().items()}
        assert self.positions() == ends, f"positions {self.positions()}, the topic ends at {ends}"
        audit = self.web.audit()
        assert audit.complete, audit.line()

    def _produced(self) -> Sequence[Produced]:
        begun = self.begun()
        return [m for m in self.web.publisher.flush() if m.offset >= begun.get(m.topic_partition, 0)]

    def _held(self) -> Mapping[TopicPartition, BrokerOffsets]:
        return read_topic(self.stream.kafka, self.stream.topic).partitions
