"""Snapshot: a stream's topic and ledger at one moment, and the next step of a drain. No side effects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from kdi_assets.delta.log import TableLog, refuse_unmoved
from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.messages.of_stream import source_of
from kdi_assets.messages.source import LAST_MESSAGE_WITHIN
from kdi_assets.messages.topic_state import AtPosition, BrokerOffsets, LastRead, TopicState
from kdi_assets.runtime.progress import WorkStep, announced
from kdi_assets.streams.drain.dead_letters import check_letters_intact
from kdi_assets.streams.drain.plan import Plan, PositionCommit, needed_position_commit, plan_drain
from kdi_assets.streams.drain.plan_errors import StreamRetired, TableMissing, TopicTruncated
from kdi_assets.streams.ledger.positions import LedgerState, read_ledger, read_transactions
from kdi_assets.streams.ledger.recent_commits import bytes_to_expect, recent_commits

UNKNOWN_OFFSET_BYTES = 10_000.0
"""Where neither ledger nor source tell: more than most messages have, so that a first plan is too small."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The topic's offsets, the ledger, and the position commit that comes before the next plan, if there is one."""

    topic: TopicState
    ledger: LedgerState | None
    position_commit: PositionCommit | None

    def plan(
        self, stream: Stream, until: Mapping[TopicPartition, int] | None = None, *, offset_bytes: float | None = None
    ) -> Plan | None:
        """The next plan, or its refusal; ``None`` where positions must be committed first."""
        if self.position_commit or self.ledger is None:
            return None
        now = datetime.now(UTC)
        return plan_drain(stream, ledger=self.ledger, topic=self.topic, now=now, until=until, offset_bytes=offset_bytes)

    def positions(self) -> dict[TopicPartition, int]:
        """Next offset of every topic partition, after the position commit if there is one."""
        state = self.position_commit or self.ledger
        known = state.positions if state else {}
        return {tp: known.get(tp, 0) for tp in sorted(self.topic.partitions)}

    def next_offsets(self) -> dict[TopicPartition, int]:
        """Where the next message is, at the earliest, of the topic partitions that have a backlog."""
        held = self.topic.partitions
        earliest = {tp: max(position, held[tp].earliest) for tp, position in self.positions().items()}
        return {tp: at for tp, at in earliest.items() if at < held[tp].end}

    def last_read(self) -> dict[TopicPartition, LastRead]:
        """The messages read last shortly before a backlog, where the source can still have them."""
        entry = self.ledger.entry if self.ledger and not self.position_commit else None
        if entry is None:
            return {}
        read, held, back = entry.last_read, self.topic.partitions, LAST_MESSAGE_WITHIN
        return {
            tp: read[tp]
            for tp, at in self.next_offsets().items()
            if tp in read and max(held[tp].earliest, at - back) <= read[tp].offset < at
        }

    def backlog(self) -> int:
        """Offsets between positions and ends."""
        return sum(max(0, self.topic.partitions[tp].end - position) for tp, position in self.positions().items())


def fresh_ledger(stream: Stream, lake: str, topic: TopicState) -> LedgerState | None:
    """Read the ledger, and check the dead letters that it counts on.

    Raises:
        TableNotMoved: The document has another name or root than before, and the table was not moved.
        TableMissing: The table is gone, and its dead letters or the archive of its ledger are not.
        KdiError: As ``read_ledger``; or the dead letters were restored, replaced or dropped.
    """
    ledger = read_ledger(stream, lake, topic_id=topic.topic_id, topic_partitions=topic.numbers_end)
    if ledger:
        # Another table or topic is refused first: its decision may bring new dead letters.
        if ledger.table_id_matches and ledger.topic_id_matches and ledger.dead_letters_at:
            check_letters_intact(stream, lake, ledger.dead_letters_at)
        return ledger
    uri = stream.table_uri(lake)
    former = stream.former_uris(lake, renamed_from=stream.renamed_from)
    ends = [there.removeprefix(uri) for there in stream.beside_uris(lake)]

    def is_ours(log: TableLog) -> bool:
        # `renamed_from` names the table; at the same path below another root, another deployment may have its own.
        renamed = not log.uri.endswith(f"/{stream.table}")
        return renamed or bool(read_transactions(log, stream, topic.numbers_end))

    refuse_unmoved(stream.name, uri, former, beside=ends, is_ours=is_ours)
    # A new table would begin at `start`, and not where the missing one ended.
    if beside := tuple(there for there in stream.beside_uris(lake) if TableLog.open(there)):
        raise TableMissing(stream=stream.name, uri=uri, beside=beside)
    return None


ReadLedger = Callable[[Stream, str, TopicState], LedgerState | None]
"""``fresh_ledger``, or a cache of its answers."""


def take_snapshot(
    stream: Stream, lake: str, topic: TopicState | None = None, *, ledger: ReadLedger = fresh_ledger
) -> Snapshot:
    """Look at the stream's topic, unless it is given, and at its ledger.

    Raises:
        KdiError: Every refusal of a drain that needs no plan: typed, with the command that decides it.
    """
    if stream.status == "retired":
        raise StreamRetired(stream=stream.name)
    with announced(WorkStep(name=stream.name, doing="asking for offsets and positions")):
        topic = topic or source_of(stream).topic(stream.topic)
        found = ledger(stream, lake, topic)
    if topic.as_of:
        topic = topic.without_backlog(found.positions if found else {})
    return Snapshot(topic, found, needed_position_commit(stream, found, topic))


def snapshot_without_topic(stream: Stream, lake: str) -> Snapshot:
    """Look at the ledger of a retired stream, whose topic may be deleted, as if the topic ended at the positions.

    Raises:
        KdiError: As ``take_snapshot``, for the table.
    """
    known = read_ledger(stream, lake, topic_id="", topic_partitions=0)
    ends = {tp: BrokerOffsets(at, at, at) for tp, at in (known.positions if known else {}).items()}
    topic = TopicState(stream.topic, known.entry.topic_id if known and known.entry else "", ends)
    found = fresh_ledger(stream, lake, topic)
    return Snapshot(topic, found, needed_position_commit(stream, found, topic) if found else None)


def truncation(
    stream: Stream, read: Mapping[TopicPartition, LastRead], found: Mapping[TopicPartition, AtPosition]
) -> TopicTruncated | None:
    """The refusal, where another message is at the offset that was read last.

    A message that is gone, by retention, compaction or with an aborted transaction, is no difference.

    Args:
        read: The ledger's record.
        found: The messages there now.
    """
    for tp, at in sorted(found.items()):
        if tp in read and at.before is not None and at.before != read[tp]:
            return TopicTruncated(stream=stream.name, topic_partition=tp, read=read[tp], found=at.before)
    return None


def check_last_read(stream: Stream, snapshot: Snapshot) -> list[datetime]:
    """Refuse a truncated topic; the next message is read with it.

    Returns:
        The timestamps of the next messages, of each topic partition that has a backlog and shows one.

    Raises:
        TopicTruncated: The message before one of them is not the one that was read last.
        KdiError: The source does not answer.
    """
    source, read = source_of(stream), snapshot.last_read()
    found = source.around(snapshot.next_offsets(), before=read)
    if refusal := truncation(stream, read, found):
        raise refusal
    if silent := sorted(read.keys() - found.keys()):
        raise source.unanswered(f"no answer about the last message read of {silent[0]}")
    return [at.next_at for at in found.values() if at.next_at is not None]


def expected_offset_bytes(stream: Stream, snapshot: Snapshot) -> float | None:
    """Bytes of keys and values, uncompressed, to expect of an offset of the backlog.

    By the newest drains; before the first one, by a few messages at the positions, if the source can show them.

    Returns:
        ``None`` where it is not needed: the stream does not limit its plans by bytes, or is known to have no backlog.

    Raises:
        KdiError: The log cannot be read, or the source refuses our credentials.
    """
    has_backlog = snapshot.topic.as_of or snapshot.backlog()  # offsets of a source that reads ahead are not known yet
    if stream.max_bytes is None or snapshot.position_commit or not has_backlog:
        return None
    if known := bytes_to_expect(recent_commits(snapshot.ledger.table if snapshot.ledger else None, stream.app_id)):
        return known
    return source_of(stream).sampled_bytes(snapshot.next_offsets()) or UNKNOWN_OFFSET_BYTES
