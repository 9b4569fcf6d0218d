"""Credentials and rights that are revoked: what a drain reports, and what `kdi doctor` reports before it."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace

import pytest
from confluent_kafka.admin import AclOperation, NewTopic, ResourceType
from pyspark.sql import SparkSession

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import Cluster, TopicPartition
from kdi_assets.messages.kafka import probe
from kdi_assets.messages.kafka.errors import AccessRefused, AdvertisedUnreachable, RightMissing
from kdi_assets.messages.kafka.source import KafkaSource
from kdi_assets.messages.kafka.topic_config import TRANSACTIONS, can_have_gaps, knows_transactions
from kdi_assets.messages.source import oldest_timestamps
from kdi_assets.operate.doctor import kafka
from kdi_assets.operate.doctor.finding import Finding, Verdict
from kdi_assets.operate.monitoring.backlog_reader import read_backlog
from kdi_assets.tools.local.publisher import ensure_topic
from tests.driven import DrivenStream, Once
from tests.faults.kafka.guarded import Guarded
from tests.faults.topics import TransactionalPublisher, admin, stream_over
from tests.waiting import wait_until

pytestmark = pytest.mark.scenario("credentials expire")

SAID_AT_ONCE_SECONDS = 5
"""Half of the time that a look waits for a broker that does not answer."""


@pytest.fixture
def web(topic_name: str, guarded: Guarded, lake: str, spark: SparkSession) -> DrivenStream:
    """A stream over a topic of the guarded broker; its document has no credentials yet."""
    return stream_over(guarded.inside, topic_name, lake, lambda: spark)


@pytest.fixture
def mine(guarded: Guarded, web: DrivenStream) -> DrivenStream:
    """The same stream with the right password."""
    return web.with_definition(cluster=guarded.cluster("right", mechanism="PLAIN"))


def test_a_wrong_password_is_said_as_such_and_at_once(guarded: Guarded, web: DrivenStream, mine: DrivenStream) -> None:
    """Purpose: with refused credentials a request only sees a timeout; "no answer" sends people to the network.
    Procedure: drain, look, publish and examine with a wrong password; drain with the right one.
    Pass: each refusal names authentication within seconds; no table is made; then everything arrives.
    """
    produced = web.produce(20, bad=0.2)
    wrong = web.with_definition(cluster=guarded.cluster("wrong", mechanism="PLAIN"))
    cluster, began = wrong.stream.kafka, time.monotonic()

    with pytest.raises(AccessRefused, match="refuses authentication .*Invalid username or password"):
        wrong.drain()
    assert isinstance(read_backlog(wrong.stream, web.lake).refusal, AccessRefused)
    for ask in (
        lambda: ensure_topic(cluster, web.stream.topic, partitions=2),
        lambda: list(kafka.brokers(cluster)),
        lambda: oldest_timestamps(KafkaSource(cluster), {web.tp(): 0}),
    ):
        with pytest.raises(AccessRefused, match="refuses authentication"):
            ask()

    assert time.monotonic() - began < 4 * SAID_AT_ONCE_SECONDS
    assert TableLog.open(web.uri) is None
    mine.drain()
    web.assert_each_offset_once(produced)


@pytest.mark.parametrize("point", ["before reading", "files written"])
def test_a_password_changed_under_a_drain_commits_nothing_and_is_named(
    guarded: Guarded, web: DrivenStream, point: str
) -> None:
    """Purpose: credentials can expire in the middle of a run, where Spark notices it and not our own client.
    Procedure: drain; produce; drain, and at the point the broker gets another password; drain with that one.
    Pass: the drain names authentication, the version stays; with the new password everything is there once.
    """
    guarded.set_password("first")
    old = web.with_definition(cluster=guarded.cluster("first", mechanism="SCRAM-SHA-256"))
    wait_until(lambda: read_backlog(old.stream, web.lake).refusal is None, seconds=20)
    old.drain_rounds(1, 10, bad=0.3)
    produced = web.produce(20, bad=0.3)
    before = web.version()

    with pytest.raises(AccessRefused, match="refuses authentication"):
        old.drain(at=Once(point, lambda: guarded.set_password("second")))

    assert web.version() == before
    web.with_definition(cluster=guarded.cluster("second", mechanism="SCRAM-SHA-256")).drain()
    web.assert_each_offset_once(produced)
    assert web.audit().complete


def test_a_right_taken_away_is_said_as_such(guarded: Guarded, mine: DrivenStream) -> None:
    """Purpose: a topic that we may not see is neither missing nor unreachable.
    Procedure: drain; an ACL denies the topic; produce; drain, and ask the doctor about the stream; the ACL is removed;
    drain.
    Pass: the refusals name authorization and the topic; afterwards everything is there once.
    """
    mine.drain_rounds(1, 10)
    topic = mine.stream.topic

    with guarded.denied(topic, AclOperation.ALL):
        produced = mine.produce(10)
        with pytest.raises(AccessRefused, match=f"refuses authorization .*{topic}"):
            mine.drain()
        (found,) = kafka.streams([mine.stream], lake=mine.lake)
        assert "no topic" in str(read_backlog(replace(mine.stream, topic="no_such_topic"), mine.lake).refusal)

    assert (found.verdict, type(found.trouble)) == (Verdict.WRONG, RightMissing)
    wait_until(lambda: read_backlog(mine.stream, mine.lake).refusal is None, seconds=20)
    mine.drain()
    mine.assert_each_offset_once(produced)


def test_gaps_are_not_explained_by_transactions_that_we_may_not_see(guarded: Guarded, mine: DrivenStream) -> None:
    """Purpose: if the topic of transactions is hidden from us, we know neither that there are some nor that there are
    none.
    Procedure: abort and commit a transaction; examine and drain while Describe on the topic of the transactions is
    denied; drain.
    Pass: the doctor only warns, because the right is needed only for an offset without a message; the refusal names the
    right, and there are no rows; with the right the markers are gaps, every offset is there once.
    """
    writer = TransactionalPublisher(guarded.inside.bootstrap_servers, "hidden")
    for commit in (False, True):
        with writer.transaction(commit=commit):
            replace(mine, publisher=writer).produce(10)
    topic, cluster = mine.stream.topic, mine.stream.kafka

    with guarded.denied(TRANSACTIONS, AclOperation.DESCRIBE):
        found = {finding.of: finding.verdict for finding in kafka.rights(cluster, [topic])}
        with pytest.raises(AccessRefused, match=f"Describe on topic {TRANSACTIONS}"):
            knows_transactions(cluster)
        with pytest.raises(AccessRefused, match=rf"refuses authorization \(Describe on topic {TRANSACTIONS}"):
            mine.drain()
        assert not TableLog.existing(mine.uri).file_uris

    assert found == {topic: Verdict.OK, TRANSACTIONS: Verdict.WARNING}
    wait_until(lambda: can_have_gaps(cluster, topic), seconds=20)
    mine.drain()
    mine.assert_each_offset_once(writer.log)


def test_a_drain_needs_no_right_on_any_consumer_group(guarded: Guarded, mine: DrivenStream) -> None:
    """Purpose: positions are in the ledger; the group name that both clients require must need no right.
    Procedure: deny everything on every group; produce, examine the rights, read the lag, and drain.
    Pass: the rights are enough; every offset is there once.
    """
    produced = mine.produce(20, bad=0.2)
    topic, cluster = mine.stream.topic, mine.stream.kafka

    with guarded.denied("*", AclOperation.ALL, kind=ResourceType.GROUP):
        # A rule that another test removed may hold for a moment longer.
        wait_until(lambda: not any(f.trouble for f in kafka.rights(cluster, [topic])), seconds=20)
        ages = oldest_timestamps(KafkaSource(cluster), {TopicPartition(topic, 1): 0})
        mine.drain()

    assert len(ages) == 1
    mine.assert_each_offset_once(produced)


@pytest.mark.parametrize(
    ("operation", "right"),
    [
        (AclOperation.READ, "Read"),
        (AclOperation.DESCRIBE_CONFIGS, "DescribeConfigs"),
        (AclOperation.DESCRIBE, "Describe"),
    ],
)
def test_the_doctor_names_a_right_that_is_missing_and_it_costs_its_topic_alone(
    guarded: Guarded, topic_name: str, operation: AclOperation, right: str
) -> None:
    """Purpose: a drain needs the rights one after another, some of them only in the middle.
    Procedure: deny one right on one of two topics; examine both, and one that does not exist.
    Pass: the right and the topic are named, and the other topic is fine; the third is missing, reported once. Without
    the right to its configuration the topic's gaps cannot be judged, which may be losses.
    """
    cluster, other = guarded.cluster("right", mechanism="PLAIN"), f"{topic_name}_other"
    for created in admin(guarded.inside).create_topics([NewTopic(t, 1, 1) for t in (topic_name, other)]).values():
        created.result(10)

    with guarded.denied(topic_name, operation):
        found: dict[str, list[Finding]] = defaultdict(list)
        for finding in kafka.rights(cluster, [topic_name, other, "no_such_topic"]):
            found[finding.of].append(finding)
        if operation is AclOperation.DESCRIBE_CONFIGS:
            with pytest.raises(AccessRefused, match=f"DescribeConfigs on topic {topic_name}"):
                can_have_gaps(cluster, topic_name)

    assert {(f.verdict, type(f.trouble)) for f in found[topic_name]} == {(Verdict.WRONG, RightMissing)}
    assert any(f"({right} on topic {topic_name}:" in str(finding.trouble) for finding in found[topic_name])
    assert [finding.verdict for finding in found[other]] == [Verdict.OK]
    assert [finding.found for finding in found["no_such_topic"]] == ["topic missing"]


def test_a_broker_that_gives_a_name_where_nobody_is_is_told_from_a_dead_one(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: a wrong advertised.listeners is the most common reason for brokers that "do not answer".
    Procedure: examine the brokers through the guarded listener, and through one that advertises an address where
    nothing listens.
    Pass: the advertised address is named, with a latency in the first case.
    """
    (finding,) = kafka.brokers(guarded.cluster("right", mechanism="PLAIN"))
    monkeypatch.setattr(probe, "ANSWER_SECONDS", 2.0)

    assert finding.facts["addresses"] == (guarded.door,)
    assert 0 < float(str(finding.facts["latency_seconds"])) < 5
    with pytest.raises(AdvertisedUnreachable, match="1 of 1 brokers take no connection from here: 127.0.0.1:1"):
        list(kafka.brokers(Cluster("main", guarded.misnamed)))
