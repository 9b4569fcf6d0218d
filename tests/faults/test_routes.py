"""One topic into several tables: each exactly once by its own ledger, whatever happens to the others."""

from __future__ import annotations

import os
import signal

import pytest

from kdi_assets.drain.expectations import ExpectationNotMet
from kdi_assets.ledger.history import entries
from kdi_assets.runtime.session import open_session
from kdi_assets.settings import Settings
from kdi_assets.stream import Expectation, KafkaCluster, Stream, TopicPartition
from tests.conftest import DrivenFactory
from tests.driven import DrivenStream, web_requests
from tests.faults.doomed_drain import in_a_process
from tests.faults.topics import delete_records
from tests.faults.warm_driver import JVM_OPTIONS
from tests.kafka_log import Publisher
from tests.routed import GOOD, PATCH, assert_each_message_in_its_table, drain_group, group_of


def drain_and_die(topic: str, settings: Settings) -> None:
    """In a process: a pass that is killed when one table has its commit and the next one its dead letters alone."""
    os.environ.update(JVM_OPTIONS)
    session = open_session(settings, app_name="doomed")
    stream = web_requests(topic, KafkaCluster("main", settings.kafka))
    tables = group_of(DrivenStream(stream, settings.lake, Publisher(settings.kafka), lambda: session))

    def at(of: Stream, point: str) -> None:
        if (of.name, point) == ("bronze/gone", "dead letters written"):
            os.kill(os.getpid(), signal.SIGKILL)

    drain_group([tables["read"], tables["gone"], tables["written"]], at=at)


@pytest.mark.scenario("killed between dead letters and commit")
def test_a_pass_killed_between_two_commits_loses_and_doubles_nothing_in_any_table(
    driven: DrivenFactory, settings: Settings, lake: str
) -> None:
    """Purpose: the tables of a route group share no transaction, and each must have its own messages once.
    Procedure: a pass over 400 messages, some of them malformed, unrouted or without a value, is killed when the first
    of three tables has its commit and the second one its dead letters; produce more; drain all three in one pass.
    Pass: each message once in the table that it belongs to, every unrouted one once among the letters that count; the
    first table, which was ahead, took only what was new.
    """
    web = driven(partitions=2)
    tables = group_of(web)
    web.publisher.produce_all(web.stream.topic, [PATCH] * 5, partition=0)
    web.produce(395, bad=0.2, tombstones=0.05)

    where = Settings(settings.home, lake, web.stream.cluster.bootstrap_servers, "local[2]", "own")
    died = in_a_process(__name__, "drain_and_die", web.stream.topic, where)
    committed = {name: len(entries(t.uri, t.stream.app_id)) for name, t in tables.items()}
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
    """Purpose: messages are read from Kafka once for all tables, and a table that is behind is brought up alone.
    Procedure: one table has drained half; the second one stops at an expectation in a pass of several plans; then it
    is drained alone. Then a pass in which all messages are deleted from the topic once the first table has its commit.
    Pass: each message once in its table after either, and no letter but those of the rest lies anywhere twice.
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
    assert alone.positions == {TopicPartition(web.stream.topic, p): 275 for p in (0, 1)}
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
