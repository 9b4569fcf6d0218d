"""Resolve: what a drain refuses to decide, someone decides here; the decision goes into the ledger."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from kdi_assets.drain.plan import positions_of
from kdi_assets.drain.route_change import accepted, route_step
from kdi_assets.drain.route_refusals import in_words
from kdi_assets.errors import Terminal
from kdi_assets.ledger.audit import highest_offsets
from kdi_assets.ledger.commit import commit
from kdi_assets.ledger.delta import Staged
from kdi_assets.ledger.entry import DeadLettersAt, LedgerEntry
from kdi_assets.ledger.log import TableLog
from kdi_assets.ledger.routes import Routes, of_new_topic
from kdi_assets.ledger.state import (
    RETIRED,
    LedgerGap,
    LedgerState,
    partition_id,
    positions_in,
    read_ledger,
    read_transactions,
    table_txn_id,
    topic_txn_id,
    version_id,
)
from kdi_assets.sources.kafka import TopicState, read_topic
from kdi_assets.stream import OffsetRange, Stream, TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Action = Literal["accept-loss", "new-topic", "rewind", "adopt", "accept-routes"]


@dataclass(eq=False, kw_only=True)
class NothingToResolve(Terminal):
    """The decision does not fit what is there."""

    stream: str
    action: str
    detail: str

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.stream}: {self.action} does not apply: {self.detail}.",
            "nothing was changed.",
            f"kdi plan {self.stream}   (says what stands in the way, and what decides it)",
        )


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


def decide(
    stream: Stream,
    lake: str,
    action: Action,
    *,
    topic_partition: TopicPartition | None = None,
    until: int | None = None,
    to: int | None = None,
    session: Callable[[], SparkSession],
) -> Decision:
    """Work out a decision; nothing is changed.

    * ``accept-loss`` gives up offsets that retention deleted: up to ``until``, or to the earliest that is left.
    * ``new-topic`` begins again, at the start of a topic that was made anew; the rows of the old one stay.
    * ``rewind`` sets positions: to ``to``, or behind the highest offset in the rows.
    * ``adopt`` takes a table that lies in the old one's place, or dead letters that were replaced: positions behind
      the highest offset in its rows.
    * ``accept-routes`` lets a table go on by the conditions that its route group has now, though others changed them
      at other offsets.

    Args:
        topic_partition: Restricts ``accept-loss`` and ``rewind`` to one.
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
    case = _Case(stream, lake, topic, log, action)
    case.refuse_strangers()
    match action:
        case "accept-loss":
            after, reason = case.accept_loss(topic_partition, until)
        case "new-topic":
            after, reason = case.new_topic()
        case "rewind":
            after, reason = case.rewind(topic_partition, to, session)
        case "adopt":
            after, reason = case.adopt(session)
        case "accept-routes":
            after, reason = case.accept_routes()
    losses = case.losses(after) if action == "accept-loss" else ()
    return Decision(
        action=action,
        before=case.before,
        after=after,
        declared_losses=losses,
        reason=reason,
        topic_id=topic.topic_id,
        table_id=log.table_id,
        table_version=log.version,
        transactions=case.transactions,
        dead_letters_at=case.dead_letters_at(),
        routes=case.routes(after),
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
    """
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
        decided_by=decided_by,
        because=because,
    )
    expect = {app_id: decision.transactions.get(app_id, -1) for app_id in ids}
    uri = stream.table_uri(lake)
    return commit(spark, Staged(), uri, behind=decision.table_version, expect=expect, entry=entry)


@dataclass(frozen=True, slots=True)
class _Case:
    stream: Stream
    lake: str
    topic: TopicState
    log: TableLog
    action: Action

    @property
    def transactions(self) -> dict[str, int]:
        return read_transactions(self.log, self.stream, len(self.topic.partitions))

    @property
    def ledger(self) -> LedgerState | None:
        """The ledger as a drain would read it; ``None`` where that is impossible and must be decided."""
        try:
            return read_ledger(
                self.stream,
                self.lake,
                topic_id=self.topic.topic_id,
                topic_partitions=len(self.topic.partitions),
            )
        except LedgerGap:
            return None

    @property
    def before(self) -> dict[TopicPartition, int]:
        ledger = self.ledger
        return dict(ledger.positions) if ledger else positions_in(self.transactions, self.stream)

    def refuse_strangers(self) -> None:
        """A decision is committed with the ids that are there now, so it must not pass over one that changed."""
        newest = self.log.transaction(version_id(self.stream.app_id))
        if newest is None:
            return
        if self.action in ("accept-loss", "rewind", "accept-routes") and not self._knows(
            topic_txn_id(self.stream.app_id, self.topic.topic_id), newest
        ):
            raise self._no("the topic is another one; new-topic decides that")
        if self.action != "adopt" and not self._knows(table_txn_id(self.stream.app_id, self.log.table_id), newest):
            raise self._no("the table is another one; adopt decides that")

    def _knows(self, identity: str, newest: int) -> bool:
        return self.log.transaction(identity) == newest

    def accept_loss(self, only: TopicPartition | None, until: int | None) -> tuple[dict[TopicPartition, int], str]:
        if self.ledger is None:
            raise self._no("the positions are unknown; rewind first")
        positions = {**dict.fromkeys(self.topic.partitions, 0), **self.before}
        after = dict(positions)
        for tp, offsets in self.topic.partitions.items():
            if only in (None, tp):
                target = offsets.earliest if until is None or only is None else until
                if target > offsets.end:
                    raise self._no(f"{tp} ends at {offsets.end}, so nothing up to {target} can be given up")
                after[tp] = max(positions[tp], target)
        if after == positions:
            raise self._no("no offset behind the positions is missing at the broker")
        given_up = sum(after[tp] - positions[tp] for tp in after)
        held = sum(max(0, after[tp] - max(positions[tp], o.earliest)) for tp, o in self.topic.partitions.items())
        readable = f"; {held:,} of them are still at the broker" if held else ""
        return after, f"{given_up:,} offsets are given up and recorded as lost{readable}"

    def new_topic(self) -> tuple[dict[TopicPartition, int], str]:
        ledger = self.ledger
        if ledger and ledger.knows_topic and not ledger.positions.keys() - self.topic.partitions.keys():
            raise self._no(f"topic id {self.topic.topic_id} is the one that the positions belong to")
        gone = dict.fromkeys(self.before.keys() - self.topic.partitions.keys(), RETIRED)
        after = {**dict.fromkeys(self.topic.partitions, 0), **gone}
        return after, f"the topic with id {self.topic.topic_id} is drained from offset 0; the rows of the old one stay"

    def rewind(
        self, only: TopicPartition | None, to: int | None, session: Callable[[], SparkSession]
    ) -> tuple[dict[TopicPartition, int], str]:
        if (only is None) != (to is None):
            raise self._no("--topic-partition and --to belong together")
        if only is None or to is None:
            reason = "positions lie behind the highest offset in the rows; dead letters behind it are drained again"
            return self._behind_rows(session), reason
        position, held = self.before.get(only, 0), self.topic.partitions[only]
        if not held.earliest <= to <= min(position, held.end):
            top = min(position, held.end)
            raise self._no(f"{only} can be set to [{held.earliest}, {top}]; going forward would lose messages")
        reason = f"[{to}, {position}) of {only} is drained again; its rows are twice unless they were removed"
        return {**self.before, only: to}, reason

    def adopt(self, session: Callable[[], SparkSession]) -> tuple[dict[TopicPartition, int], str]:
        ledger = self.ledger
        if ledger is not None and ledger.knows_table:
            if ledger.entry is None or ledger.entry.dead_letters_at == self.dead_letters_at():
                raise self._no("the table and its dead letters are those that the ledger knows")
            return self.before, "the dead letters that are there now are accepted"
        if ledger is not None and ledger.ledger_version is not None and not ledger.knows_topic:
            reason = f"table {self.log.table_id} is the stream's; its topic is another one too, drained from offset 0"
            return dict.fromkeys(self.topic.partitions, 0), reason
        reason = f"table {self.log.table_id} is the stream's; positions lie behind the highest offset in its rows"
        return self._behind_rows(session), reason

    def accept_routes(self) -> tuple[dict[TopicPartition, int], str]:
        ledger = self.ledger
        if ledger is None or ledger.ledger_version is None:
            raise self._no("the positions are unknown; rewind first" if ledger is None else "nothing was drained yet")
        if ledger.restored_to is not None:
            raise self._no("a RESTORE is to be answered first, which a drain does")
        if route_step(self.stream, self.lake, ledger=ledger, topic=self.topic).refusal is None:
            raise self._no("nothing keeps it from being drained by the route conditions that the documents have")
        after = positions_of(ledger, self.topic)
        from_on = f"the route conditions of the documents hold from {in_words(after)} on"
        return after, f"{from_on}; messages that tables judged by others may be in two of them, or in none"

    def routes(self, after: Mapping[TopicPartition, int]) -> Routes | None:
        """By which conditions of its route group the table is drained behind the decision."""
        ledger = self.ledger
        recorded = ledger.entry.routes if ledger and ledger.entry else None
        match self.action:
            case "accept-routes":
                return accepted(self.stream, after)
            case "new-topic":
                return of_new_topic(recorded)
            case "adopt" if recorded and after != self.before:
                return replace(recorded, agreed=False, began=False)
        return recorded

    def dead_letters_at(self) -> DeadLettersAt | None:
        ledger = self.ledger
        if self.action != "adopt":
            return ledger.entry.dead_letters_at if ledger and ledger.entry else None
        letters = TableLog.open(self.stream.dead_letters_uri(self.lake))
        return DeadLettersAt(letters.table_id, letters.version) if letters else None

    def losses(self, after: Mapping[TopicPartition, int]) -> tuple[OffsetRange, ...]:
        before = self.before
        return tuple(OffsetRange(tp, before.get(tp, 0), end) for tp, end in after.items() if before.get(tp, 0) < end)

    def _behind_rows(self, session: Callable[[], SparkSession]) -> dict[TopicPartition, int]:
        """The offset behind the highest in the rows; where there is no row, the earliest that the broker has."""
        highest = highest_offsets(session(), self.stream, self.log.uri)
        held = self.topic.partitions
        return {tp: highest[tp] + 1 if tp in highest else offsets.earliest for tp, offsets in held.items()}

    def _no(self, detail: str) -> NothingToResolve:
        return NothingToResolve(stream=self.stream.name, action=self.action, detail=detail)
