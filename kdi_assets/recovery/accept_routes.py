"""Accept routes: all tables of a route group change over to the conditions of the documents, at the same offsets.

The tables share no transaction. So all of them are stopped first, each by a ledger commit directly behind the state
that the decision was made on: a drain by the former documents that is on its way can no longer land anywhere. Then each
gets the new conditions. A crash leaves tables stopped; the same command goes on from there, because a table that
already changed over says at which offsets it did.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from kdi_assets.drain.plan import positions_of
from kdi_assets.drain.route_change import in_words, lies_before, positions_in_words, recorded_routes
from kdi_assets.drain.spark_errors import spark_failures
from kdi_assets.ledger.commit import commit, next_entry
from kdi_assets.ledger.delta_transaction import Staged
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.errors import OvertakenCommit
from kdi_assets.ledger.positions import LedgerState, read_ledger
from kdi_assets.ledger.routes import Positions, Routes, same_positions
from kdi_assets.recovery.errors import NothingToResolve
from kdi_assets.sources.kafka.topic import TopicState, read_topic
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class RoutedTable:
    """A table that is, or was, in a route group.

    Attributes:
        positions: Next offset of every topic partition.
        recorded: What its ledger has.
        wanted: What its document says; without one it is in no group.
    """

    positions: Positions
    recorded: Routes
    wanted: Routes

    @property
    def changes(self) -> bool:
        """Whether it has other conditions, or was set back to before the offsets at which it changed over."""
        return not self.recorded.same_as(self.wanted) or lies_before(self.positions, self.recorded.since)


class Accepted(NamedTuple):
    """What the ledgers of a group are to have, by table.

    Attributes:
        apart: Where the tables stand, if they cannot be brought to the same offsets any more: messages between these
            may then be in two tables, or in none.
    """

    routes: Mapping[str, Routes]
    apart: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """A table of the group, and the ledger that its conditions are committed to."""

    stream: Stream
    ledger: LedgerState
    topic: TopicState
    table: RoutedTable

    def commit(
        self, spark: SparkSession, routes: Routes, *, read_version: int, decided_by: str = "", because: str = ""
    ) -> LedgerEntry:
        """Commit conditions behind a version of the table; raises ``OvertakenCommit``."""
        entry = next_entry(
            self.stream,
            self.ledger,
            kind="routes",
            topic_id=self.topic.topic_id,
            routes=routes,
            decided_by=decided_by,
            because=because,
        )
        with spark_failures(self.stream, "committing route conditions"):
            return commit(spark, Staged(), self.ledger.uri, read_version=read_version, entry=entry)


class RouteDecision(NamedTuple):
    """What is to be committed, and the tables as they were when it was decided."""

    members: Mapping[str, Member]
    accepted: Accepted


def accept(stream: str, tables: Mapping[str, RoutedTable]) -> Accepted:
    """Decide about the tables of a group, by name.

    Raises:
        NothingToResolve: No table has other conditions than the documents, or they stand at different offsets and can
            be brought to the same ones by the former documents.
    """
    changing = [table for table in tables.values() if table.changes]
    if not changing and not any(table.recorded.stopped for table in tables.values()):
        raise _no(stream, "all tables of its route group have the route conditions of the documents")
    apart = "" if all(_fits(name, table, changing) for name, table in tables.items()) else _where(tables)
    if apart and (former := _common_former(tables)):
        said = next((table.wanted for table in tables.values() if table.wanted.conditions), Routes())
        back = f"put back what the documents said ({in_words(former, said)}); kdi drain {' '.join(sorted(tables))}"
        raise _no(
            stream,
            f"the tables of its route group stand at different offsets: {apart}",
            then=f"{back}   (until all stand at the same offsets); then change the documents again",
        )
    routes = {
        name: replace(table.wanted, since=table.positions if table.changes else table.recorded.since)
        for name, table in tables.items()
    }
    return Accepted(routes, apart)


def decide_routes(stream: Stream, streams: Collection[Stream], lake: str) -> RouteDecision:
    """Work out how the tables of the stream's topic change over; nothing is changed.

    Args:
        streams: All that have documents.

    Raises:
        NothingToResolve: As ``accept``; or something else is to be decided first about one of the tables.
    """
    topic = read_topic(stream.cluster, stream.topic)
    documents = {s.name: s for s in streams if (s.cluster.name, s.topic) == (stream.cluster.name, stream.topic)}
    members = {member.stream.name: member for member in _members(stream, documents, lake, topic)}
    return RouteDecision(members, accept(stream.name, {name: one.table for name, one in members.items()}))


def commit_routes(
    spark: SparkSession, decision: RouteDecision, *, decided_by: str = "", because: str = ""
) -> dict[str, LedgerEntry]:
    """Stop all tables, then commit the conditions to each.

    Args:
        decided_by: Who decided; recorded.
        because: Why; recorded.

    Raises:
        OvertakenCommit: A table moved on meanwhile; decide again.
    """
    stopped: dict[str, LedgerEntry] = {}
    members = decision.members
    try:
        for name, one in members.items():
            stopped[name] = one.commit(
                spark, replace(one.table.recorded, stopped=True), read_version=one.ledger.version
            )
    except OvertakenCommit:
        for name, entry in stopped.items():
            members[name].commit(spark, members[name].table.recorded, read_version=entry.version)
        raise
    said = {"decided_by": decided_by, "because": because}
    return {
        name: one.commit(spark, decision.accepted.routes[name], read_version=stopped[name].version, **said)
        for name, one in members.items()
    }


def _members(stream: Stream, documents: Mapping[str, Stream], lake: str, topic: TopicState) -> Iterator[Member]:
    """The tables that are in the group by the documents, or were by a ledger; of retired streams none."""
    waiting, seen = [*documents.values()], set(documents)
    while waiting:
        one = waiting.pop(0)
        if one.status == "retired":
            continue
        ledger = read_ledger(one, lake, topic_id=topic.topic_id, topic_partitions=len(topic.partitions))
        if ledger is None or ledger.ledger_version is None:
            continue  # it begins by the conditions that its document has then
        recorded, wanted = recorded_routes(one, ledger), Routes.of(one)
        if not recorded.conditions and not wanted.conditions and recorded.since is None:
            continue  # it takes all messages of the topic, and always did
        if not (ledger.table_id_matches and ledger.topic_id_matches) or ledger.restored_to is not None:
            detail = f"a RESTORE, another table or another topic is to be decided first for {one.name}"
            raise _no(stream.name, detail, then=f"kdi drain {one.name}   (says so, or answers it)")
        yield Member(one, ledger, topic, RoutedTable(positions_of(ledger, topic), recorded, wanted))
        for name, app_id in sorted(recorded.app_ids.items()):
            if name not in seen:
                seen.add(name)
                waiting.append(replace(stream, table=name, app_id=app_id, route=None, renamed_from=""))


def _fits(name: str, table: RoutedTable, changing: Collection[RoutedTable]) -> bool:
    """Whether a table is where those that change over are, or began or changed over with these conditions there."""
    at = next((other.positions for other in changing), table.positions)
    if table.changes or same_positions(table.positions, at):
        return same_positions(table.positions, at)
    joined = table.recorded.since is None and not any(name in other.recorded.conditions for other in changing)
    return joined or same_positions(table.recorded.since, at)


def _common_former(tables: Mapping[str, RoutedTable]) -> Routes | None:
    """What all tables still have that were in the group before; ``None`` where they have been drained by different
    conditions, or were set back: then no documents bring them together."""
    former = next((t.recorded for t in tables.values() if not t.recorded.same_as(t.wanted)), None)
    if former is None or any(lies_before(table.positions, table.recorded.since) for table in tables.values()):
        return None
    before = [table for name, table in tables.items() if name in former.conditions or table.changes]
    return former if all(table.recorded.same_as(former) for table in before) else None


def _where(tables: Mapping[str, RoutedTable]) -> str:
    return "; ".join(
        f"{name} at {positions_in_words(table.positions)}, by {'other' if table.changes else 'these'} conditions"
        for name, table in sorted(tables.items())
    )


def _no(stream: str, detail: str, *, then: str = "") -> NothingToResolve:
    return NothingToResolve(stream=stream, action="accept-routes", detail=detail, then=then)
