"""One topic into several tables: each exactly once by its own ledger, whatever happens to the others."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest

from kdi_assets.delta.errors import OvertakenCommit
from kdi_assets.documents.model.message_rules import Expectation
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.runtime.spark import open_session
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.errors import RoutesChanged
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.streams.resolve.accept_routes import RouteDecision, commit_routes, decide_routes
from kdi_assets.streams.resolve.errors import NothingToResolve
from kdi_assets.streams.rules.errors import ExpectationNotMet
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream, web_requests
from tests.faults import others
from tests.faults.doomed_drain import in_a_process
from tests.faults.topics import delete_records
from tests.faults.warm_driver import JVM_OPTIONS
from tests.kafka_log import Produced, Publisher
from tests.oracle import WEB_REQUESTS
from tests.tables.routed import GOOD, METHODS, PATCH, assert_each_message_in_its_table, drain_group, group_of, owner

METHODS_NOW = {**METHODS, "read": (*METHODS["read"], "PATCH")}


def drain_and_die(topic: str, settings: Settings) -> None:
    """In a process: a pass that is killed when one table has its commit and the next one only its dead letters."""
    os.environ.update(JVM_OPTIONS)
    session = open_session(settings, app_name="doomed")
    stream = web_requests(topic, Cluster("main", settings.kafka))
    tables = group_of(DrivenStream(stream, settings.lake, Publisher(settings.kafka), lambda: session))

    def at(of: Stream, point: str) -> None:
        if (of.name, point) == ("bronze/gone", "dead letters written"):
            os.kill(os.getpid(), signal.SIGKILL)

    drain_group([tables["read"], tables["gone"], tables["written"]], at=at)


@pytest.mark.core
@pytest.mark.scenario("killed between dead letters and commit")
def test_a_pass_killed_between_two_commits_loses_and_doubles_nothing_in_any_table(
    driven: DrivenFactory, settings: Settings, lake: str
) -> None:
    """Purpose: the tables of a route group share no transaction, and each must have its own messages once.
    Procedure: a pass over 400 messages, some of them malformed, unrouted or without a value, is killed when the first
    of three tables has its commit and the second one its dead letters; produce more; drain all three in one pass.
    Pass: each message once in its table, every unrouted one once among the letters that count; the first table, which
    was ahead, took only new messages.
    """
    web = driven(partitions=2)
    tables = group_of(web)
    web.publisher.produce_all(web.stream.topic, [PATCH] * 5, partition=0)
    web.produce(395, bad=0.2, tombstones=0.05)

    where = Settings(settings.home, lake, web.stream.kafka.bootstrap_servers, "local[2]", "own")
    died = in_a_process(drain_and_die, web.stream.topic, where)
    committed = {name: len(t.entries()) for name, t in tables.items()}
    produced = web.produce(100, bad=0.2, seed=1)
    drained = drain_group(list(tables.values()))

    assert died == -signal.SIGKILL
    assert committed == {"read": 2, "gone": 1, "written": 1}  # the first entry says where each begins
    assert [drained[name].result().backlog_before for name in ("read", "written", "gone")] == [100, 500, 500]
    assert_each_message_in_its_table(tables, produced)
    letters = tables["gone"].found()
    assert sum(letter["reason"] == "unrouted" for letter in letters.dead_letters) >= 5
    assert letters.ghosts


def test_a_pass_reads_once_and_what_one_table_refuses_stops_no_other(driven: DrivenFactory) -> None:
    """Purpose: messages are read from Kafka once for all tables, and a table with an older position is drained alone.
    Procedure: one table has drained half; the second one stops at an expectation in a pass of several plans; then it is
    drained alone. Then a pass in which all messages are deleted from the topic once the first table has its commit.
    Pass: each message once in its table after either, and only letters of the rest are there.
    """
    web = driven(partitions=2, max_records=300)
    tables = group_of(web)
    read, written, gone = tables.values()
    web.produce(300, bad=0.2, tombstones=0.05)
    read.drain()
    produced = web.produce(250, bad=0.2, seed=1)

    never = written.with_definition(expectations={"never": Expectation("false", "fail")})
    drained = drain_group([read, never, gone])
    alone = written.drain()

    assert isinstance(drained["written"].failure, ExpectationNotMet)
    assert [len(drained[name].commits) for name in tables] == [1, 0, 2]
    assert alone.positions == {web.tp(p): 275 for p in (0, 1)}
    assert_each_message_in_its_table(tables, produced)

    web.publisher.produce_all(web.stream.topic, [GOOD, PATCH, "bad", None, GOOD.replace("GET", "PUT")], partition=0)

    def delete_once_committed(of: Stream, point: str) -> None:
        if of is read.stream and point == "commit sent":
            delete_records(web, {0: 280, 1: 275})

    drained = drain_group(list(tables.values()), at=delete_once_committed)

    assert [(d.result().rows_added, d.result().dead_letters, d.result().filtered) for d in drained.values()] == [
        (1, 0, 3),
        (1, 0, 3),
        (0, 2, 2),
    ]
    assert_each_message_in_its_table(tables, web.publisher.log)


def accept_routes(tables: dict[str, DrivenStream], *, because: str = "") -> RouteDecision:
    """``kdi resolve … accept-routes --yes``, with these documents."""
    one = tables["read"]
    decision = decide_routes(one.stream, [t.stream for t in tables.values()], one.lake)
    commit_routes(one.session(), decision, decided_by="me", because=because)
    return decision


def test_conditions_that_change_while_tables_stand_apart_or_are_drained_judge_each_offset_once(
    driven: DrivenFactory,
) -> None:
    """Purpose: processes may have different documents, and every offset must still have one set of conditions.
    Procedure: one table of three is ahead when the documents begin to say where a ``PATCH`` belongs. A pass with the
    new ones; with the old ones again, until all are at the same offsets, and once more between a decision and its
    commit. Then more is produced; a drain of one table with the old documents is held just before its commit, while the
    new conditions are accepted and all are drained.
    Pass: the first pass drains nothing, and says what to do; at different offsets, or after a drain in between, nothing
    is accepted and the old documents hold; the held drain commits nothing and says why; each message is once in the
    table that the conditions of its offset say, and in no other.
    """
    web = driven(partitions=2)
    old, new = group_of(web), group_of(web, METHODS_NOW)
    web.publisher.produce_all(web.stream.topic, [PATCH] * 3, partition=0)
    web.produce(60)
    drain_group(list(old.values()))
    web.produce(20)
    old["read"].drain()

    refused = drain_group(list(new.values()))
    with pytest.raises(NothingToResolve, match=r"kdi drain bronze/gone bronze/read bronze/written"):
        accept_routes(new)

    assert {name: type(done.failure) for name, done in refused.items()} == dict.fromkeys(new, RoutesChanged)
    assert "bronze/read: `route.when` `method IN ('GET', 'HEAD')`" in str(refused["gone"].failure)

    drain_group(list(old.values()))
    streams = [t.stream for t in new.values()]
    overtaken = decide_routes(streams[0], streams, web.lake)
    web.produce(20)
    old["written"].drain()
    with pytest.raises(OvertakenCommit):
        commit_routes(web.session(), overtaken)
    drain_group(list(old.values()))

    before = len(web.publisher.log)
    web.publisher.produce_all(web.stream.topic, [PATCH] * 3, partition=1)
    web.produce(30, tombstones=0.1, seed=1)
    passed: dict[str, DrainReport] = {}

    def change(point: str) -> None:
        if point == "accounted for" and not passed:
            accept_routes(new)
            passed.update({name: done.result() for name, done in drain_group(list(new.values())).items()})

    with pytest.raises(RoutesChanged):
        old["written"].drain(at=change)

    assert [passed[name].backlog_after for name in new] == [0, 0, 0]
    switched = set(web.publisher.log[before:])

    def good(message: Produced) -> bool:
        return message in switched or b"PATCH" not in (message.value or b"")

    for name, table in new.items():
        mine = [m for m in web.publisher.log if owner(m, METHODS_NOW if m in switched else METHODS) == name]
        table.assert_each_offset_once(mine, reading=replace(WEB_REQUESTS, is_good=good))
        assert table.audit().complete


def test_a_table_that_is_restored_to_before_a_change_is_refused(driven: DrivenFactory) -> None:
    """Purpose: a RESTORE brings a table back to offsets that the others have passed with other conditions.
    Procedure: a group changes over to other conditions; a table is restored to where it did, and drained, then to
    before that; someone accepts it.
    Pass: the first RESTORE is drained again as usual; the second is refused with old and new documents; the decision
    shows where the tables are; once accepted, the table is drained, and its ledger says who accepted it and why.
    """
    web = driven(partitions=1)
    old, new = group_of(web), group_of(web, METHODS_NOW)
    web.produce(20)
    drain_group(list(old.values()))
    accept_routes(new)
    read = new["read"]
    change = read.entries()[-1].version
    web.produce(20, seed=1)
    drain_group(list(new.values()))

    others.restore_by_spark(read, change)
    assert read.drain().rows_added > 0
    read.assert_each_offset_once([m for m in web.publisher.log if owner(m, METHODS_NOW) == "read"])

    others.restore_by_spark(read, 0)
    for stream in (old["read"].stream, read.stream):
        with pytest.raises(RoutesChanged):
            read.drain(stream)
    decision = accept_routes(new, because="nothing moved")
    assert read.drain().rows_added > 0

    assert f"bronze/read at {web.stream.topic}/0 0" in decision.accepted.differing_offsets
    read.assert_each_offset_once([m for m in web.publisher.log if owner(m, METHODS_NOW) == "read"])
    accepted = next(e for e in read.entries() if e.because)
    assert (accepted.kind, accepted.decided_by, accepted.because) == ("routes", "me", "nothing moved")
