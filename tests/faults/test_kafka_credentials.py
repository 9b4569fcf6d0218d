"""Credentials that the brokers stop taking: before a drain, under it, and what is said."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from confluent_kafka.admin import AclOperation, NewTopic, ResourceType
from pyspark.sql import SparkSession

from kdi_assets.doctor import kafka
from kdi_assets.drain.look import look
from kdi_assets.ledger.log import TableLog
from kdi_assets.sources.kafka_client import AccessRefused
from kdi_assets.sources.kafka_config import can_have_gaps
from kdi_assets.sources.kafka_messages import oldest_timestamps
from kdi_assets.sources.publisher import ensure_topic
from kdi_assets.stream import TopicPartition
from tests.driven import DrivenStream, web_requests
from tests.faults.guarded import Guarded
from tests.faults.topics import TransactionalPublisher, admin
from tests.kafka_log import Publisher
from tests.waiting import wait_until

pytestmark = pytest.mark.scenario("credentials expire")

SAID_AT_ONCE_SECONDS = 5
"""Half of what a look waits for a broker that says nothing."""


@pytest.fixture
def web(request: pytest.FixtureRequest, guarded: Guarded, lake: str, spark: SparkSession) -> DrivenStream:
    """A stream over a topic of the guarded broker; its document has no credentials yet."""
    topic = re.sub(r"\W+", "_", request.node.name)
    admin(guarded.inside).create_topics([NewTopic(topic, 2, 1)])[topic].result(10)
    publisher = Publisher(guarded.inside.bootstrap_servers)
    return DrivenStream(web_requests(topic, guarded.inside), lake, publisher, lambda: spark)


def test_a_wrong_password_is_said_as_such_and_at_once(guarded: Guarded, web: DrivenStream) -> None:
    """Purpose: of refused credentials a request only knows that its time ran out; "no answer" sends people to the
    network.
    Procedure: drain, look, publish and examine with a wrong password; drain with the right one.
    Pass: each refusal names authentication within seconds; no table is made; then everything arrives.
    """
    produced = web.produce(20, bad=0.2)
    wrong = web.with_definition(cluster=guarded.cluster("wrong", mechanism="PLAIN"))
    began = time.monotonic()

    with pytest.raises(AccessRefused, match="refuses authentication .*Invalid username or password"):
        wrong.drain()
    refusal = look(wrong.stream, web.lake).refusal
    with pytest.raises(AccessRefused, match="refuses authentication"):
        ensure_topic(wrong.stream.cluster, web.stream.topic, partitions=2)
    with pytest.raises(AccessRefused, match="refuses authentication"):
        list(kafka.brokers(wrong.stream.cluster))
    with pytest.raises(AccessRefused, match="refuses authentication"):
        oldest_timestamps(wrong.stream.cluster, {TopicPartition(web.stream.topic, 0): 0})

    assert isinstance(refusal, AccessRefused)
    assert time.monotonic() - began < 4 * SAID_AT_ONCE_SECONDS
    assert TableLog.open(web.uri) is None
    web.with_definition(cluster=guarded.cluster("right", mechanism="PLAIN")).drain()
    web.assert_each_offset_once(produced)


@pytest.mark.parametrize("point", ["before reading", "files written"])
def test_a_password_changed_under_a_drain_commits_nothing_and_is_named(
    guarded: Guarded, web: DrivenStream, point: str
) -> None:
    """Purpose: credentials run out in the middle of a run, where Spark meets them and not our own client.
    Procedure: drain; produce; drain, and at the point the broker gets another password; drain with that one.
    Pass: the drain names authentication, the version stays; with the new password everything is there once.
    """
    guarded.set_password("first")
    first = guarded.cluster("first", mechanism="SCRAM-SHA-256")
    old = web.with_definition(cluster=first)
    wait_until(lambda: look(old.stream, web.lake).refusal is None, seconds=20)
    web.produce(10, bad=0.3)
    old.drain()
    produced = web.produce(20, bad=0.3, seed=1)
    before = TableLog.existing(web.uri).version

    with pytest.raises(AccessRefused, match="refuses authentication"):
        old.drain(at=lambda reached: guarded.set_password("second") if reached == point else None)

    assert TableLog.existing(web.uri).version == before
    web.with_definition(cluster=guarded.cluster("second", mechanism="SCRAM-SHA-256")).drain()
    web.assert_each_offset_once(produced)
    assert web.audit().complete


def test_a_right_taken_away_is_said_as_such(guarded: Guarded, web: DrivenStream) -> None:
    """Purpose: a topic that we may not see is neither missing nor out of reach.
    Procedure: drain; an ACL denies the topic; produce; drain; the ACL is removed; drain.
    Pass: the refusal names authorization and the topic; afterwards everything is there once.
    """
    mine = web.with_definition(cluster=guarded.cluster("right", mechanism="PLAIN"))
    web.produce(10)
    mine.drain()

    with guarded.denied(web.stream.topic, AclOperation.ALL):
        produced = web.produce(10, seed=1)
        with pytest.raises(AccessRefused, match=f"refuses authorization .*{web.stream.topic}"):
            mine.drain()
        without = replace(web.stream, topic="no_such_topic")
        assert "no topic" in str(look(without, web.lake).refusal)

    wait_until(lambda: look(mine.stream, web.lake).refusal is None, seconds=20)
    mine.drain()
    web.assert_each_offset_once(produced)


def test_gaps_are_not_explained_by_transactions_that_we_may_not_see(guarded: Guarded, web: DrivenStream) -> None:
    """Purpose: a topic of transactions that is hidden from us says neither that there are some nor that there are none.
    Procedure: abort and commit a transaction; drain while Describe on the topic of the transactions is denied; drain.
    Pass: the refusal names the right, and no row is there; with it the markers are gaps, every offset is there once.
    """
    mine = web.with_definition(cluster=guarded.cluster("right", mechanism="PLAIN"))
    writer = TransactionalPublisher(guarded.inside.bootstrap_servers, "hidden")
    for commit in (False, True):
        with writer.transaction(commit=commit):
            replace(mine, publisher=writer).produce(10)

    with guarded.denied("__transaction_state", AclOperation.DESCRIBE):
        with pytest.raises(AccessRefused, match=r"refuses authorization \(Describe on topic __transaction_state"):
            mine.drain()
        assert not TableLog.existing(mine.uri).files

    wait_until(lambda: can_have_gaps(mine.stream.cluster, mine.stream.topic), seconds=20)
    mine.drain()
    mine.assert_each_offset_once(writer.log)


def test_a_drain_needs_no_right_on_any_consumer_group(guarded: Guarded, web: DrivenStream) -> None:
    """Purpose: positions are the ledger's; a group's name, which both clients must give, is not to be asked for.
    Procedure: deny everything on every group; produce, examine the rights, ask for the age of what waits, and drain.
    Pass: the rights are enough; every offset is there once.
    """
    mine = web.with_definition(cluster=guarded.cluster("right", mechanism="PLAIN"))
    produced = web.produce(20, bad=0.2)

    with guarded.denied("*", AclOperation.ALL, kind=ResourceType.GROUP):
        # A rule that another test took back may hold for a moment longer.
        wait_until(
            lambda: not any(f.trouble for f in kafka.rights(mine.stream.cluster, [web.stream.topic])), seconds=20
        )
        ages = oldest_timestamps(mine.stream.cluster, {TopicPartition(web.stream.topic, 1): 0})
        mine.drain()

    assert len(ages) == 1
    mine.assert_each_offset_once(produced)
