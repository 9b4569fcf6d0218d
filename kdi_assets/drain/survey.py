"""Survey: a stream at one moment, and what a drain would do first. No JVM, no side effects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from kdi_assets.drain.known import fresh_ledger
from kdi_assets.drain.plan import Plan, plan_drain
from kdi_assets.drain.refusals import StreamRetired
from kdi_assets.drain.settle import Settlement, unsettled
from kdi_assets.ledger.entry import LastRead
from kdi_assets.ledger.state import LedgerState
from kdi_assets.sources.kafka import TopicState, read_topic
from kdi_assets.sources.kafka_messages import LAST_OFFSETS
from kdi_assets.stream import Stream, TopicPartition


@dataclass(frozen=True, slots=True)
class Survey:
    """What the broker has, what the ledger says, and what must be settled before anything is read."""

    topic: TopicState
    ledger: LedgerState | None
    settlement: Settlement | None

    def plan(
        self, stream: Stream, until: Mapping[TopicPartition, int] | None = None, *, offset_bytes: float | None = None
    ) -> Plan | None:
        """The next plan, or its refusal; ``None`` as long as something must be settled first."""
        if self.settlement or self.ledger is None:
            return None
        now = datetime.now(UTC)
        return plan_drain(stream, ledger=self.ledger, topic=self.topic, now=now, until=until, offset_bytes=offset_bytes)

    def positions(self) -> dict[TopicPartition, int]:
        """Next offset of every topic partition, as a drain would begin."""
        settled = self.settlement.positions if self.settlement else self.ledger.positions if self.ledger else {}
        return {tp: settled.get(tp, 0) for tp in sorted(self.topic.partitions)}

    def waiting(self) -> dict[TopicPartition, int]:
        """Where the next message is looked for, of the topic partitions that have a backlog."""
        held = self.topic.partitions
        begins = {tp: max(position, held[tp].earliest) for tp, position in self.positions().items()}
        return {tp: at for tp, at in begins.items() if at < held[tp].end}

    def last_read(self) -> dict[TopicPartition, LastRead]:
        """The messages read last shortly before a backlog, where the broker can still have them."""
        read = self.ledger.entry.last_read if self.ledger and self.ledger.entry and not self.settlement else {}
        since = {
            tp: max(self.topic.partitions[tp].earliest, at - max(LAST_OFFSETS)) for tp, at in self.waiting().items()
        }
        return {tp: read[tp] for tp, at in self.waiting().items() if tp in read and since[tp] <= read[tp].offset < at}

    def backlog(self) -> int:
        """Offsets between positions and ends."""
        return sum(max(0, self.topic.partitions[tp].end - position) for tp, position in self.positions().items())


class ReadLedger(Protocol):
    """``fresh_ledger``, or what remembers its answers."""

    def __call__(self, stream: Stream, lake: str, *, topic_id: str, topic_partitions: int) -> LedgerState | None: ...


def survey(stream: Stream, lake: str, topic: TopicState | None = None, *, ledger: ReadLedger = fresh_ledger) -> Survey:
    """Look at the stream's topic (unless it is given) and its ledger.

    Raises:
        KdiError: Whatever stands in the way of a drain: typed, with the command that decides it.
    """
    if stream.status == "retired":
        raise StreamRetired(stream=stream.name)
    topic = topic or read_topic(stream.cluster, stream.topic)
    found = ledger(stream, lake, topic_id=topic.topic_id, topic_partitions=len(topic.partitions))
    return Survey(topic, found, unsettled(stream, found, topic))
