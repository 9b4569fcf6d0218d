"""Snapshot: a stream's topic and table at one moment, and what a drain would do first. No side effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from kdi_assets.drain.dead_letters import refuse_replaced
from kdi_assets.drain.errors import StreamRetired, TableMissing, TableNotMoved, TopicTruncated
from kdi_assets.drain.plan import Plan, plan_drain
from kdi_assets.drain.position_commit import PositionCommit, needed_position_commit
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.entry import LastRead
from kdi_assets.ledger.positions import LedgerState, read_ledger
from kdi_assets.ledger.recent_commits import bytes_to_expect, recent_commits
from kdi_assets.sources.kafka.client import nobody_answers
from kdi_assets.sources.kafka.messages import LAST_OFFSETS, AtPosition, around_positions, sampled_bytes
from kdi_assets.sources.kafka.topic import TopicState, read_topic
from kdi_assets.stream.stream import Stream, TopicPartition

UNKNOWN_BYTES = 10_000.0
"""Where neither the ledger nor the brokers tell: more than most messages have, so that a first plan is too small."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the broker has, what the ledger says, and what must be settled before anything is read."""

    topic: TopicState
    ledger: LedgerState | None
    settlement: PositionCommit | None

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
        held, back = self.topic.partitions, max(LAST_OFFSETS)
        return {
            tp: read[tp]
            for tp, at in self.waiting().items()
            if tp in read and max(held[tp].earliest, at - back) <= read[tp].offset < at
        }

    def backlog(self) -> int:
        """Offsets between positions and ends."""
        return sum(max(0, self.topic.partitions[tp].end - position) for tp, position in self.positions().items())


def fresh_ledger(stream: Stream, lake: str, topic: TopicState) -> LedgerState | None:
    """The ledger as it is now, with the dead letters that it counts on.

    Raises:
        TableNotMoved: The document was renamed, and the table was not.
        TableMissing: The table is gone, and its dead letters or the copy of its ledger are not.
        KdiError: As ``read_ledger``; or the dead letters are not those any more.
    """
    ledger = read_ledger(stream, lake, topic_id=topic.topic_id, topic_partitions=len(topic.partitions))
    if ledger:
        # Whose topic or table is another one has that to decide first, by which new letters may come.
        if ledger.knows_table and ledger.knows_topic:
            refuse_replaced(stream, lake, ledger.dead_letters_at)
        return ledger
    uri = stream.table_uri(lake)
    if stream.renamed_from and TableLog.open(stream.former_uri(lake)):
        raise TableNotMoved(stream=stream.name, former=stream.former_uri(lake), uri=uri)
    # A new table would begin at `start`, and not where the missing one ended.
    if beside := next((there for there in stream.beside_uris(lake) if TableLog.open(there)), None):
        raise TableMissing(stream=stream.name, uri=uri, beside=beside)
    return None


ReadLedger = Callable[[Stream, str, TopicState], LedgerState | None]
"""``fresh_ledger``, or what remembers its answers."""


def take_snapshot(
    stream: Stream, lake: str, topic: TopicState | None = None, *, ledger: ReadLedger = fresh_ledger
) -> Snapshot:
    """Look at the stream's topic (unless it is given) and its ledger.

    Raises:
        KdiError: Whatever stands in the way of a drain: typed, with the command that decides it.
    """
    if stream.status == "retired":
        raise StreamRetired(stream=stream.name)
    topic = topic or read_topic(stream.cluster, stream.topic)
    found = ledger(stream, lake, topic)
    return Snapshot(topic, found, needed_position_commit(stream, found, topic))


def truncated(
    stream: Stream, read: Mapping[TopicPartition, LastRead], found: Mapping[TopicPartition, AtPosition]
) -> TopicTruncated | None:
    """The refusal, where another message stands at the offset that was read last.

    One that is gone, by retention, compaction or with an aborted transaction, is no difference.

    Args:
        read: As the ledger keeps them.
        found: What stands there now.
    """
    for tp, at in sorted(found.items()):
        if tp in read and at.before is not None and at.before != read[tp]:
            return TopicTruncated(stream=stream.name, topic_partition=tp, read=read[tp], found=at.before)
    return None


def next_messages(stream: Stream, seen: Snapshot) -> list[datetime]:
    """When the next message of each topic partition that has a backlog was written, as far as that is known.

    Raises:
        TopicTruncated: The one before it is not the one that was read last.
        BrokerUnreachable: Nobody says what stands there.
    """
    read = seen.last_read()
    found = around_positions(stream.cluster, seen.waiting(), before={tp: m.offset for tp, m in read.items()})
    if refusal := truncated(stream, read, found):
        raise refusal
    if silent := sorted(read.keys() - found.keys()):
        raise nobody_answers(stream.cluster, f"no answer about the last message read of {silent[0]}")
    return [at.next_at for at in found.values() if at.next_at is not None]


def offset_bytes(stream: Stream, lake: str, seen: Snapshot) -> float | None:
    """Bytes of keys and values, uncompressed, to expect of an offset that waits.

    As the newest drains found them; before the first one, as a few messages at the positions are.

    Returns:
        ``None`` where nobody asks: the stream does not bound its plans by bytes, or nothing waits.

    Raises:
        KdiError: The log cannot be read, or the brokers refuse our credentials.
    """
    if stream.max_bytes is None or seen.settlement or not seen.backlog():
        return None
    if told := bytes_to_expect(recent_commits(stream.table_uri(lake), stream.app_id)):
        return told
    return sampled_bytes(stream.cluster, seen.waiting()) or UNKNOWN_BYTES
