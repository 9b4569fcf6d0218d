"""Resolve: someone decides what a drain refuses to decide; the decision goes into the ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kdi_assets.ledger.commit import commit, next_entry
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.delta_transaction import Staged
from kdi_assets.ledger.entry import LastRead, LedgerEntry, unmoved_last_read
from kdi_assets.ledger.errors import LedgerGap
from kdi_assets.ledger.positions import RETIRED, LedgerState, read_ledger, read_ledger_despite_gap
from kdi_assets.recovery.accept_loss import accept_loss, losses
from kdi_assets.recovery.adopt import adopt, adopt_dead_letters
from kdi_assets.recovery.context import Action as Action
from kdi_assets.recovery.context import ProposedPositions, ResolveContext, another_table
from kdi_assets.recovery.errors import NothingToResolve as NothingToResolve
from kdi_assets.recovery.rewind import Target, rewind
from kdi_assets.recovery.rows_past_position import PastPosition, RowsPastPosition, from_positions
from kdi_assets.sources.kafka.messages import last_messages
from kdi_assets.sources.kafka.topic import read_topic
from kdi_assets.stream.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Decision:
    """Positions that someone wants the ledger to have.

    Attributes:
        ledger: What it was made on; its commit lands directly behind that version.
        topic_id: Of the topic that the positions are of.
        before: Next offset of every topic partition as the ledger has it; without those it never resolved.
        after: The same once the decision is committed.
        reason: What the decision means, in a sentence.
        declared_losses: Offsets given up by it.
        fields: Of the ledger entry, where it changes what is carried on.
        beyond: Rows and open dead letters at or behind positions that are set back; the rows go with the commit.
    """

    action: Action
    ledger: LedgerState
    topic_id: str
    before: Mapping[TopicPartition, int]
    after: Mapping[TopicPartition, int]
    reason: str
    declared_losses: tuple[OffsetRange, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    beyond: PastPosition = PastPosition()

    @property
    def table_version(self) -> int:
        """The version that the decision was made on."""
        return self.ledger.version

    @property
    def removes(self) -> dict[TopicPartition, OffsetRange]:
        """Where rows are taken out."""
        return from_positions({tp: self.after[tp] for tp in self.beyond.rows})


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

    * ``accept-loss`` gives up offsets that retention deleted, or that no drain can take: up to ``until``, or to the
      earliest that is left.
    * ``new-topic`` begins again, at the start of a topic that was made anew; the rows of the old one stay.
    * ``rewind`` sets positions back: to ``to``, to the first message of ``to_timestamp`` or later, to where they stood
      at ``to_version`` of the table; or behind the highest offset in the rows. Rows behind them go with the commit.
    * ``adopt`` takes a table that lies in the old one's place: positions behind the highest offset in its rows.
    * ``adopt-dead-letters`` takes dead letters that lie in the old ones' place; positions stay.

    Args:
        topic_partition: Restricts ``accept-loss`` and ``rewind`` to one.
        start: Where ``accept-loss`` must find its position.
        session: Called where the rows must be read.

    Raises:
        NothingToResolve: The decision does not fit, or its numbers do not.
    """
    case = the_case(stream, lake, action, session)
    if topic_partition is not None and topic_partition not in case.topic.partitions:
        raise case.no(f"the topic has no {topic_partition}")
    case.refuse_strangers()
    match action:
        case "accept-loss":
            proposal = accept_loss(case, topic_partition, until, start=start)
        case "new-topic":
            proposal = new_topic(case)
        case "rewind":
            proposal = rewind(case, Target(topic_partition, to, to_timestamp, to_version))
        case "adopt":
            proposal = adopt(case)
        case "adopt-dead-letters":
            proposal = adopt_dead_letters(case)
    after = {**case.before, **proposal.after}
    beyond, last_read = _behind_rewind(case, after) if action == "rewind" else (PastPosition(), {})
    return Decision(
        action=action,
        ledger=case.ledger,
        topic_id=case.topic.topic_id,
        before=case.before,
        after=after,
        reason=proposal.reason,
        declared_losses=losses(case, after) if action == "accept-loss" else (),
        fields={**proposal.fields, **last_read},
        beyond=beyond,
    )


def carry_out_decision(
    spark: SparkSession, decision: Decision, stream: Stream, lake: str, *, decided_by: str = "", because: str = ""
) -> LedgerEntry:
    """Commit a decision, on the very version of the table that it was made on.

    Args:
        decided_by: Who decided; recorded.
        because: Why; recorded.

    Raises:
        OvertakenCommit: The table moved on meanwhile; decide again.
        AccountingMismatch: Other rows would be taken out than those that were counted.
    """
    staged = Staged()
    if within := decision.removes:
        topic = read_topic(stream.cluster, stream.topic)
        beyond = RowsPastPosition(spark, stream, lake, decision.table_version, topic, within, decision.before)
        staged = beyond.removal(decision.beyond)
    entry = next_entry(
        stream,
        decision.ledger,
        kind="resolve",
        topic_id=decision.topic_id,
        positions=decision.after,
        declared_losses=decision.declared_losses,
        removed_by_date=staged.removed_by_date,
        kept_aside=decision.beyond.only_copies,
        decided_by=decided_by,
        because=because,
        **decision.fields,
    )
    uri = stream.table_uri(lake)
    return commit(spark, staged, uri, read_version=decision.table_version, entry=entry)


def the_case(stream: Stream, lake: str, action: Action, session: Callable[[], SparkSession]) -> ResolveContext:
    """What a decision is made on, as it is now.

    Raises:
        NothingToResolve: There is no table.
        KdiError: Topic or ledger cannot be read.
    """
    topic = read_topic(stream.cluster, stream.topic)
    topic_id, count, gap = topic.topic_id, len(topic.partitions), False
    try:
        ledger = read_ledger(stream, lake, topic_id=topic_id, topic_partitions=count)
    except LedgerGap:
        gap, ledger = True, read_ledger_despite_gap(stream, lake, topic_id=topic_id, topic_partitions=count)
    if ledger is None:
        raise NothingToResolve(stream=stream.name, action=action, detail="the table does not exist")
    log = TableLog.existing(ledger.uri, ledger.version)
    return ResolveContext(
        stream=stream, lake=lake, topic=topic, log=log, ledger=ledger, gap=gap, action=action, session=session
    )


def new_topic(case: ResolveContext) -> ProposedPositions:
    """Position 0 in every topic partition of a topic that was made again; those that it lacks are retired.

    Raises:
        NothingToResolve: It is the topic that the positions are of, or nothing tells rows of the old one from its own.
    """
    ledger, held = case.ledger, case.topic.partitions
    vanished = ledger.positions.keys() - held.keys()
    if ledger.topic_id_matches and not case.gap and not vanished:
        raise case.no(f"topic id {case.topic.topic_id} is the one that the positions belong to")
    if ledger.ledger_version is None:
        why = "the table has no ledger that knows the old topic, so its rows could not be told from the new ones"
        raise case.no(why, then=another_table(case.stream))
    reason = f"the topic with id {case.topic.topic_id} is drained from offset 0; the rows of the old one stay"
    after = {**dict.fromkeys(held, 0), **dict.fromkeys(vanished, RETIRED)}
    # The offsets at which it changed over to its route conditions are of the topic before.
    return ProposedPositions(after, reason, {"routes": ledger.routes and replace(ledger.routes, since=None)})


def _behind_rewind(case: ResolveContext, after: Mapping[TopicPartition, int]) -> tuple[PastPosition, Mapping[str, Any]]:
    """What lies at or behind positions that a rewind sets back; and the messages before them, for the entry."""
    back = {tp: at for tp, at in after.items() if at < case.before.get(tp, 0)}
    if not back:
        return PastPosition(), {}
    version, session = case.ledger.version, case.session()
    rows = RowsPastPosition(session, case.stream, case.lake, version, case.topic, from_positions(back), case.before)
    last_read = {**unmoved_last_read(case.ledger.entry, after), **_last_before(case, rows)}
    beyond = rows.look()
    if beyond.untold:
        raise case.no(
            f"{beyond.untold:,} rows behind the new positions have no timestamp among their coordinates, and rows of "
            "the topic that was there before lie there as well; delete them, or rewind to behind them"
        )
    if beyond.replaced_letters:
        raise case.no(
            f"{beyond.replaced_letters:,} open dead letters there are the only copies of their messages, whose offsets "
            "the broker gives to others",
            then=f"kdi dead-letters replay {case.stream.name}   (or discard; then the same command once more)",
        )
    return beyond, {"last_read": last_read}


def _last_before(case: ResolveContext, rows: RowsPastPosition) -> dict[TopicPartition, LastRead]:
    """The last message before each new position that is a row, as the broker has it.

    Without it a rewind would take the evidence of a truncation with the rows: set back to an offset behind the one at
    which the log was cut off, the drain would pass over the messages in between.

    Raises:
        NothingToResolve: The broker has another message there.
    """
    before = rows.last_before()
    ranges = [OffsetRange(tp, offset, offset + 1) for tp, (offset, _) in before.items()]
    held = [r for r in ranges if r.start >= case.topic.partitions[r.topic_partition].earliest]
    found = last_messages(case.stream.cluster, held)
    for tp, message in found.items():
        if message.timestamp != before[tp][1]:
            raise case.no(
                f"offset {message.offset} of {tp} holds another message than its row: the log was cut off before the "
                "new position",
                then=f"kdi audit {case.stream.name} --against-kafka   (names the first offset that differs: rewind to "
                "that)",
            )
    return found
