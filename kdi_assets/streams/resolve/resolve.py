"""Resolve: a person decides what a drain refuses to decide; the decision is a ledger commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.log import TableLog
from kdi_assets.delta.object_storage import prove_conditional_put
from kdi_assets.delta.transaction import Staged
from kdi_assets.documents.model.stream import OffsetRange, Stream, TopicPartition
from kdi_assets.messages.coordinates import keeps_timestamps, quoted_path
from kdi_assets.messages.of_stream import source_failures, source_of
from kdi_assets.streams.ledger.commit import commit, next_entry, refuse_unmarked
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.errors import LedgerGap, another_table
from kdi_assets.streams.ledger.positions import RETIRED, LedgerState, read_ledger, read_ledger_despite_gap
from kdi_assets.streams.resolve.accept_loss import accepted_loss, losses
from kdi_assets.streams.resolve.adopt import adopt, adopt_dead_letters
from kdi_assets.streams.resolve.context import Action as Action
from kdi_assets.streams.resolve.context import ProposedPositions, ResolveContext
from kdi_assets.streams.resolve.errors import NothingToResolve
from kdi_assets.streams.resolve.rewind import Target, check_rows_to_remove, refuse_over_erased, rewind
from kdi_assets.streams.resolve.rewind_to_spans import rewind_to_spans, way_back
from kdi_assets.streams.resolve.rows_past_position import PastPositionCounts, RowsPastPosition, from_positions
from kdi_assets.wording import sql_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Decision:
    """Positions to commit to the ledger.

    Attributes:
        ledger: The state that the decision is based on; its commit must follow that version directly.
        topic_id: The topic that the positions belong to.
        before: Next offset of every topic partition that the ledger has resolved.
        after: The same once the decision is committed.
        reason: The effect, in one sentence.
        declared_losses: Offsets that the decision gives up.
        fields: Fields of the ledger entry that the decision sets; all others are carried on.
        past_position: Rows and open dead letters at or after positions that are set back; the commit removes the rows.
        notes: Other effects, one sentence each.
    """

    action: Action
    ledger: LedgerState
    topic_id: str
    before: Mapping[TopicPartition, int]
    after: Mapping[TopicPartition, int]
    reason: str
    declared_losses: tuple[OffsetRange, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    past_position: PastPositionCounts = PastPositionCounts()
    notes: tuple[str, ...] = ()

    @property
    def table_version(self) -> int:
        """The version that the decision is based on."""
        return self.ledger.version

    @property
    def lost_between(self) -> Mapping[TopicPartition, tuple[int, int]]:
        """As of ``LedgerEntry``."""
        return dict(self.fields.get("lost_between", {}))

    @property
    def removes(self) -> dict[TopicPartition, OffsetRange]:
        """The offsets whose rows the commit removes."""
        return from_positions({tp: self.after[tp] for tp in self.past_position.rows})


def decide(
    stream: Stream,
    lake: str,
    action: Action,
    *,
    topic_partition: TopicPartition | None = None,
    start: int | None = None,
    until: int | None = None,
    to: int | None = None,
    to_timestamp: datetime | None = None,
    to_version: int | None = None,
    session: Callable[[], SparkSession],
) -> Decision:
    """Work out a decision; nothing is changed.

    Args:
        topic_partition, start, until: For ``accept_loss``; ``rewind`` takes the first as well.
        to, to_timestamp, to_version: The ``Target`` of a rewind, at most one.
        session: Called only if rows must be read.

    Raises:
        NothingToResolve: The action does not apply, or an offset does not fit.
    """
    context = _context(stream, lake, action, session)
    _refuse_undecidable(context, topic_partition)
    match action:
        case "accept-loss":
            proposal = accepted_loss(context, topic_partition, start, until)
        case "new-topic":
            proposal = new_topic(context)
        case "rewind":
            target, way = Target(topic_partition, to, to_timestamp, to_version), way_back(context)
            proposal = rewind_to_spans(context, way, target) if way else rewind(context, target)
            refuse_over_erased(context, proposal.after)
        case "adopt":
            proposal = adopt(context)
        case "adopt-dead-letters":
            proposal = adopt_dead_letters(context)
    return _decision(context, proposal)


def _context(stream: Stream, lake: str, action: Action, session: Callable[[], SparkSession]) -> ResolveContext:
    """The present state of the stream.

    Raises:
        NothingToResolve: There is no table.
        KdiError: The topic or the ledger cannot be read.
    """
    topic = source_of(stream).topic(stream.topic)
    topic_id, end, gap = topic.topic_id, topic.numbers_end, False
    try:
        ledger = read_ledger(stream, lake, topic_id=topic_id, topic_partitions=end)
    except LedgerGap:
        gap, ledger = True, read_ledger_despite_gap(stream, lake, topic_id=topic_id, topic_partitions=end)
    if ledger is None:
        raise NothingToResolve(stream=stream.name, action=action, detail="the table does not exist")
    log = TableLog.existing(ledger.uri, ledger.version)
    return ResolveContext(
        stream=stream, lake=lake, topic=topic, log=log, ledger=ledger, gap=gap, action=action, session=session
    )


def _refuse_undecidable(context: ResolveContext, only: TopicPartition | None) -> None:
    """Refuse a topic partition that the topic does not have, another topic or table, and unknown offsets."""
    known = context.topic.partitions.keys() | (context.ledger.positions.keys() if context.topic.as_of else set())
    if only is not None and only not in known:
        raise context.refusal(f"the topic has no {only}")
    context.refuse_other_topic_or_table()
    context.refuse_unknown_offsets()


def _decision(context: ResolveContext, proposal: ProposedPositions) -> Decision:
    action, after = context.action, {**context.positions, **proposal.after}
    marks = proposal.fields.get("bookmarks", {})
    refuse_unmarked(context.stream, context.ledger.entry, context.topic.topic_id, after, marks)
    counts, last_read = check_rows_to_remove(context, after) if action == "rewind" else (PastPositionCounts(), {})
    return Decision(
        action=action,
        ledger=context.ledger,
        topic_id=context.topic.topic_id,
        before=context.positions,
        after=after,
        reason=proposal.reason,
        declared_losses=losses(context, after) if action == "accept-loss" else (),
        fields={**proposal.fields, **last_read},
        past_position=counts,
        notes=proposal.notes,
    )


def commit_decision(
    spark: SparkSession, decision: Decision, stream: Stream, lake: str, *, decided_by: str = "", because: str = ""
) -> LedgerEntry:
    """Commit a decision directly after the version of the table that it is based on.

    Args:
        decided_by, because: Who decided, and why; the ledger records both.

    Raises:
        OvertakenCommit: Another commit came first; decide again.
        PutIfAbsentMissing, OtherLock: On this storage, two drains would overwrite each other's commits.
        StorageRefused, StorageUnanswered: The storage does not take an object.
        AccountingMismatch: The rows to remove are not those that were counted.
    """
    prove_conditional_put(stream.root(lake))  # the table may be a copy that no drain has committed to here
    staged = Staged()
    if bounds := decision.removes:
        topic = source_of(stream).topic(stream.topic)
        rows = RowsPastPosition(spark, stream, lake, decision.table_version, topic, bounds, decision.before)
        with source_failures(stream):
            staged = rows.removal(decision.past_position)
    entry = next_entry(
        stream,
        decision.ledger,
        kind="resolve",
        topic_id=decision.topic_id,
        positions=decision.after,
        declared_losses=decision.declared_losses,
        removed_by_date=staged.removed_by_date,
        kept_aside=decision.past_position.only_copies,
        decided_by=decided_by,
        because=because,
        **decision.fields,
    )
    return commit(spark, staged, stream.table_uri(lake), read_version=decision.table_version, entry=entry)


def new_topic(context: ResolveContext) -> ProposedPositions:
    """Start a recreated topic at offset 0 in every topic partition, and retire those that it no longer has.

    Raises:
        NothingToResolve: The topic was not recreated, or rows of the old topic could not be told from new ones.
    """
    ledger, partitions, topic_id = context.ledger, context.topic.partitions, context.topic.topic_id
    vanished = ledger.positions.keys() - partitions.keys()
    reads_first = context.topic.as_of is not None  # of Kinesis, a shard that is gone has expired
    if ledger.topic_id_matches and not context.gap and (reads_first or not vanished):
        raise context.refusal(f"topic id {topic_id} is the one that the positions belong to")
    if ledger.ledger_version is None:
        why = "the table has no ledger that knows the old topic, so its rows could not be separated from the new ones"
        raise context.refusal(why, then=another_table(context.stream.name))
    if not keeps_timestamps(context.log.schema, context.stream):
        why = "the rows have no timestamps, and only these tell rows of the old topic from rows of the new one"
        column = quoted_path(f"{context.stream.coordinates}.timestamp")
        alter = f"ALTER TABLE delta.`{ledger.uri}` ADD COLUMNS ({column} timestamp)"
        raise context.refusal(why, then=f"{sql_command(alter)}; then the same command again")
    reason = f"the topic with id {topic_id} is drained from offset 0; the rows of the old one stay"
    after = {**dict.fromkeys(partitions, 0), **dict.fromkeys(vanished, RETIRED)}
    # `since` holds offsets of the old topic: those at which the table changed its route conditions.
    first = source_of(context.stream).bookmarks_at_creation(context.topic)
    routes = ledger.routes and replace(ledger.routes, since=None)
    return ProposedPositions(after, reason, {"routes": routes, "bookmarks": first})
