"""Accept routes: all tables of a route group change to the route conditions of their documents, at the same offsets.

The tables share no transaction. So each table is stopped first, by a ledger commit directly after the state that the
decision is based on: no drain by the former conditions can commit after it. Then each table gets the new conditions.
A crash leaves stopped tables. The same command continues: the ledger of a table that has changed has the offsets at
which it did.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from kdi_assets.delta.errors import OvertakenCommit
from kdi_assets.delta.transaction import Staged
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.of_stream import source_of
from kdi_assets.messages.topic_state import TopicState
from kdi_assets.streams.drain.plan import positions_of
from kdi_assets.streams.drain.route_change import in_words, lies_before, positions_in_words, recorded_routes
from kdi_assets.streams.ledger.commit import commit, next_entry
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.positions import LedgerState, read_ledger
from kdi_assets.streams.ledger.routes import Positions, Routes, same_positions
from kdi_assets.streams.resolve.errors import NothingToResolve
from kdi_assets.streams.spark_errors import spark_failures

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class RoutedTable:
    """A table that is or was in a route group.

    Attributes:
        positions: Next offset of every topic partition.
        recorded: The routes in its ledger.
        wanted: The routes in its document; empty without a document.
    """

    positions: Positions
    recorded: Routes
    wanted: Routes

    @property
    def changes(self) -> bool:
        """Whether its conditions differ, or its positions were set back below the offsets of its last change."""
        return not self.recorded.same_as(self.wanted) or lies_before(self.positions, self.recorded.since)


class AcceptedRoutes(NamedTuple):
    """The routes to commit, by table.

    Attributes:
        differing_offsets: The positions of the tables, if no drain can bring them to the same offsets any more:
            messages between these may be in two tables, or in none.
    """

    routes: Mapping[str, Routes]
    differing_offsets: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """A table of the group, with its ledger."""

    stream: Stream
    ledger: LedgerState
    topic: TopicState
    table: RoutedTable

    def commit(
        self, spark: SparkSession, routes: Routes, *, read_version: int, decided_by: str = "", because: str = ""
    ) -> LedgerEntry:
        """Commit conditions directly after a version of the table; raises ``OvertakenCommit``."""
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
    """The routes to commit, and the tables that the decision is based on."""

    members: Mapping[str, Member]
    accepted: AcceptedRoutes


def accept(stream: str, tables: Mapping[str, RoutedTable]) -> AcceptedRoutes:
    """Work out the routes of the tables of a group, by name.

    Raises:
        NothingToResolve: All tables have the conditions of the documents, or their positions differ and a drain by the
            former documents can make them equal.
    """
    changing = [table for table in tables.values() if table.changes]
    if not changing and not any(table.recorded.stopped for table in tables.values()):
        raise _refusal(stream, "all tables of its route group have the route conditions of the documents")
    differing = "" if all(_fits(name, table, changing) for name, table in tables.items()) else _positions(tables)
    if differing and (former := _common_former(tables)):
        declared = next((table.wanted for table in tables.values() if table.wanted.conditions), Routes())
        drain = f"kdi drain {' '.join(sorted(tables))}"
        raise _refusal(
            stream,
            f"the tables of its route group have positions at different offsets: {differing}",
            then=f"put the former documents back ({in_words(former, declared)}); {drain}   (until all have the same "
            "positions); then change the documents again",
        )
    routes = {
        name: replace(table.wanted, since=table.positions if table.changes else table.recorded.since)
        for name, table in tables.items()
    }
    return AcceptedRoutes(routes, differing)


def decide_routes(stream: Stream, streams: Collection[Stream], lake: str) -> RouteDecision:
    """Work out the routes of all tables that share the stream's topic; nothing is changed.

    Args:
        streams: All streams that have documents.

    Raises:
        NothingToResolve: As ``accept``; or one of the tables needs another decision first.
    """
    topic = source_of(stream).topic(stream.topic)
    documents = {s.name: s for s in streams if (s.cluster.name, s.topic) == (stream.cluster.name, stream.topic)}
    members = {member.stream.name: member for member in _members(stream, documents, lake, topic)}
    return RouteDecision(members, accept(stream.name, {name: one.table for name, one in members.items()}))


def commit_routes(
    spark: SparkSession, decision: RouteDecision, *, decided_by: str = "", because: str = ""
) -> dict[str, LedgerEntry]:
    """Stop all tables, then commit the conditions to each.

    Args:
        decided_by, because: Who decided, and why; the ledgers record both.

    Raises:
        OvertakenCommit: Another commit came first at one table; decide again.
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
    routes = decision.accepted.routes
    return {
        name: one.commit(
            spark, routes[name], read_version=stopped[name].version, decided_by=decided_by, because=because
        )
        for name, one in members.items()
    }


def _members(stream: Stream, documents: Mapping[str, Stream], lake: str, topic: TopicState) -> Iterator[Member]:
    """The tables in the group by a document or by a ledger; none of retired streams."""
    waiting, seen = [*documents.values()], set(documents)
    while waiting:
        one = waiting.pop(0)
        if one.status == "retired":
            continue
        ledger = read_ledger(one, lake, topic_id=topic.topic_id, topic_partitions=topic.numbers_end)
        if ledger is None or ledger.ledger_version is None:
            continue  # its first drain uses the conditions of its document
        recorded, wanted = recorded_routes(one, ledger), Routes.of(one)
        if not recorded.conditions and not wanted.conditions and recorded.since is None:
            continue  # it takes all messages of the topic, now and before
        if not (ledger.table_id_matches and ledger.topic_id_matches) or ledger.restored_to is not None:
            detail = f"{one.name} was restored, or has another table or another topic: that comes first"
            raise _refusal(stream.name, detail, then=f"kdi drain {one.name}   (answers a RESTORE, or names the action)")
        yield Member(one, ledger, topic, RoutedTable(positions_of(ledger, topic), recorded, wanted))
        for name, app_id in sorted(recorded.app_ids.items()):
            if name not in seen:
                seen.add(name)
                waiting.append(replace(stream, table=name, app_id=app_id, route=None, renamed_from=""))


def _fits(name: str, table: RoutedTable, changing: Collection[RoutedTable]) -> bool:
    """Whether a table has the positions of the changing tables, or got these conditions at exactly those positions."""
    at = next((other.positions for other in changing), table.positions)
    if table.changes or same_positions(table.positions, at):
        return same_positions(table.positions, at)
    joined = table.recorded.since is None and not any(name in other.recorded.conditions for other in changing)
    return joined or same_positions(table.recorded.since, at)


def _common_former(tables: Mapping[str, RoutedTable]) -> Routes | None:
    """The routes that all former tables of the group still have.

    ``None`` if they were drained by different conditions, or set back: then no documents make their positions equal.
    """
    former = next((t.recorded for t in tables.values() if not t.recorded.same_as(t.wanted)), None)
    if former is None or any(lies_before(table.positions, table.recorded.since) for table in tables.values()):
        return None
    before = [table for name, table in tables.items() if name in former.conditions or table.changes]
    return former if all(table.recorded.same_as(former) for table in before) else None


def _positions(tables: Mapping[str, RoutedTable]) -> str:
    return "; ".join(
        f"{name} at {positions_in_words(table.positions)}, by {'other' if table.changes else 'these'} conditions"
        for name, table in sorted(tables.items())
    )


def _refusal(stream: str, detail: str, *, then: str = "") -> NothingToResolve:
    return NothingToResolve(stream=stream, action="accept-routes", detail=detail, then=then)
