"""Resolve: what a drain refuses to decide, someone decides here; the decision goes into the ledger."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from kdi_assets.drain.adopt import adopted, letters_there
from kdi_assets.drain.beyond import Beyond, RowsBeyond, from_positions
from kdi_assets.drain.case import Action as Action
from kdi_assets.drain.case import Case, Proposal, another_table
from kdi_assets.drain.case import NothingToResolve as NothingToResolve
from kdi_assets.drain.given_up import given_up, losses
from kdi_assets.drain.plan import positions_of
from kdi_assets.drain.rewind import Target, rewound
from kdi_assets.drain.route_change import accepted, route_step
from kdi_assets.drain.route_refusals import in_words
from kdi_assets.ledger.commit import commit
from kdi_assets.ledger.delta import Staged
from kdi_assets.ledger.entry import DeadLettersAt, LedgerEntry
from kdi_assets.ledger.log import TableLog
from kdi_assets.ledger.routes import Routes, of_new_topic
from kdi_assets.ledger.state import RETIRED, partition_id, version_id
from kdi_assets.sources.kafka import read_topic
from kdi_assets.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Decision:
    """Positions that someone wants the ledger to have.

    Attributes:
        before: Next offset of every topic partition as the log says it now; without those it never resolved.
        after: The same once the decision is committed.
        declared_losses: Offsets given up by it.
        reason: What the decision means, in a sentence.
        table_version: The version that the decision was made on; its commit lands directly behind.
        routes: By which conditions of its route group the table is drained from there on.
        expect: Transaction ids of others that it rests on.
        beyond: Rows and open dead letters at or behind positions that are set back; the rows go with the commit.
        letters_given_up: Open dead letters of offsets that are given up.
    """

    action: Action
    before: Mapping[TopicPartition, int]
    after: Mapping[TopicPartition, int]
    declared_losses: tuple[OffsetRange, ...]
    reason: str
    topic_id: str
    table_id: str
    table_version: int
    transactions: Mapping[str, int]
    dead_letters_at: DeadLettersAt | None
    routes: Routes | None = None
    expect: Mapping[str, int] = field(default_factory=dict)
    beyond: Beyond = Beyond()
    letters_given_up: int = 0

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
    checkpoint: str = "",
    session: Callable[[], SparkSession],
) -> Decision:
    """Work out a decision; nothing is changed.

    * ``accept-loss`` gives up offsets that retention deleted, or that no drain can take: up to ``until``, or to the
      earliest that is left.
    * ``new-topic`` begins again, at the start of a topic that was made anew; the rows of the old one stay.
    * ``rewind`` sets positions back: to ``to``, to the first message of ``to_timestamp`` or later, to where they stood
      at ``to_version`` of the table; or behind the highest offset in the rows. Rows behind them go with the commit.
    * ``adopt`` takes a table that lies in the old one's place, or dead letters that were replaced: positions behind
      the highest offset in its rows, or behind the last batch of the Structured Streaming query that wrote it.
    * ``accept-routes`` lets a table go on by the conditions that its route group has now, though others changed them
      at other offsets.

    Args:
        topic_partition: Restricts ``accept-loss`` and ``rewind`` to one.
        start: Where ``accept-loss`` must find its position.
        checkpoint: Of that query, a path or URI.
        session: Called where the rows must be read.

    Raises:
        NothingToResolve: The decision does not fit, or its numbers do not.
    """
    topic = read_topic(stream.cluster, stream.topic)
    log = TableLog.open(stream.table_uri(lake))
    if log is None:
        raise NothingToResolve(stream=stream.name, action=action, detail="the table does not exist")
    if topic_partition is not None and topic_partition not in topic.partitions:
        raise NothingToResolve(stream=stream.name, action=action, detail=f"the topic has no {topic_partition}")
    case = Case(stream, lake, topic, log, action, session)
    case.refuse_strangers()
    match action:
        case "accept-loss":
            proposal = given_up(case, topic_partition, until, start=start)
        case "new-topic":
            proposal = _new_topic(case)
        case "rewind":
            proposal = rewound(case, Target(topic_partition, to, to_timestamp, to_version))
        case "adopt":
            proposal = adopted(case, checkpoint)
        case "accept-routes":
            proposal = _accept_routes(case)
    after = proposal.after
    lost = losses(case, after) if action == "accept-loss" else ()
    return Decision(
        action=action,
        before=case.before,
        after=after,
        declared_losses=lost,
        reason=proposal.reason,
        topic_id=topic.topic_id,
        table_id=log.table_id,
        table_version=log.version,
        transactions=case.transactions,
        dead_letters_at=_dead_letters_at(case),
        routes=_routes(case, after),
        expect=proposal.expect,
        beyond=_beyond(case, after) if action == "rewind" else Beyond(),
        letters_given_up=proposal.letters,
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
        beyond = RowsBeyond(spark, stream, lake, decision.table_version, topic, within)
        staged = beyond.removal(decision.beyond.row_count)
    ids = [version_id(stream.app_id), *(partition_id(stream.app_id, tp.partition) for tp in decision.after)]
    entry = LedgerEntry(
        version=-1,
        # Conditions say nothing of positions, which a ``resolve`` vouches for.
        kind="routes" if decision.action == "accept-routes" else "resolve",
        app_id=stream.app_id,
        attempt_id=str(uuid.uuid4()),
        topic=stream.topic,
        topic_id=decision.topic_id,
        table_id=decision.table_id,
        positions=decision.after,
        declared_losses=decision.declared_losses,
        dead_letters_at=decision.dead_letters_at,
        routes=decision.routes,
        removed_by_date=staged.removed_by_date,
        decided_by=decided_by,
        because=because,
    )
    expect = {**{app_id: decision.transactions.get(app_id, -1) for app_id in ids}, **decision.expect}
    uri = stream.table_uri(lake)
    return commit(spark, staged, uri, behind=decision.table_version, expect=expect, entry=entry)


def _new_topic(case: Case) -> Proposal:
    ledger, held = case.ledger, case.topic.partitions
    if ledger and ledger.knows_topic and not ledger.positions.keys() - held.keys():
        raise case.no(f"topic id {case.topic.topic_id} is the one that the positions belong to")
    gone = dict.fromkeys(case.before.keys() - held.keys(), RETIRED)
    if case.log.transaction(version_id(case.stream.app_id)) is None:
        why = "the table has no ledger that knows the old topic, so its rows could not be told from the new ones"
        raise case.no(why, then=another_table(case.stream))
    reason = f"the topic with id {case.topic.topic_id} is drained from offset 0; the rows of the old one stay"
    return Proposal({**dict.fromkeys(held, 0), **gone}, reason)


def _accept_routes(case: Case) -> Proposal:
    ledger = case.ledger
    if ledger is None or ledger.ledger_version is None:
        raise case.no("the positions are unknown; rewind first" if ledger is None else "nothing was drained yet")
    if ledger.restored_to is not None:
        raise case.no("a RESTORE is to be answered first, which a drain does")
    if route_step(case.stream, case.lake, ledger=ledger, topic=case.topic).refusal is None:
        raise case.no("nothing keeps it from being drained by the route conditions that the documents have")
    after = positions_of(ledger, case.topic)
    from_on = f"the route conditions of the documents hold from {in_words(after)} on"
    return Proposal(after, f"{from_on}; messages that tables judged by others may be in two of them, or in none")


def _routes(case: Case, after: Mapping[TopicPartition, int]) -> Routes | None:
    """By which conditions of its route group the table is drained behind the decision."""
    ledger = case.ledger
    recorded = ledger.entry.routes if ledger and ledger.entry else None
    match case.action:
        case "accept-routes":
            return accepted(case.stream, after)
        case "new-topic":
            return of_new_topic(recorded)
        case "adopt" if recorded and after != case.before:
            return replace(recorded, agreed=False, began=False)
    return recorded


def _dead_letters_at(case: Case) -> DeadLettersAt | None:
    if case.action == "adopt":
        return letters_there(case)
    return case.ledger.entry.dead_letters_at if case.ledger and case.ledger.entry else None


def _beyond(case: Case, after: Mapping[TopicPartition, int]) -> Beyond:
    """What lies at or behind positions that a rewind sets back."""
    back = {tp: at for tp, at in after.items() if at < case.before.get(tp, 0)}
    if not back:
        return Beyond()
    within = from_positions(back)
    beyond = RowsBeyond(case.session(), case.stream, case.lake, case.log.version, case.topic, within).look()
    if beyond.untold:
        raise case.no(
            f"{beyond.untold:,} rows behind the new positions have no timestamp among their coordinates, and rows of "
            "the topic that was there before lie there as well; delete them, or rewind to behind them"
        )
    return beyond
