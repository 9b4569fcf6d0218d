"""Rights at the broker, one taken away at a time: what `kdi doctor` says before a drain meets it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest
from confluent_kafka.admin import AclOperation, NewTopic

from kdi_assets.doctor import kafka
from kdi_assets.doctor.finding import Finding, Verdict
from kdi_assets.sources import kafka_probe
from kdi_assets.sources.kafka_client import AccessRefused
from kdi_assets.sources.kafka_config import TRANSACTIONS, can_have_gaps, knows_transactions
from kdi_assets.sources.kafka_probe import AdvertisedUnreachable
from kdi_assets.stream import KafkaCluster, Stream
from tests.faults.guarded import Guarded
from tests.faults.topics import admin

pytestmark = pytest.mark.scenario("credentials expire")


@pytest.fixture
def cluster(guarded: Guarded) -> KafkaCluster:
    """The guarded broker by our credentials."""
    return guarded.cluster("right", mechanism="PLAIN")


@pytest.fixture
def orders(request: pytest.FixtureRequest, guarded: Guarded) -> str:
    """A topic of the guarded broker."""
    topic = re.sub(r"\W+", "_", request.node.name)
    admin(guarded.inside).create_topics([NewTopic(topic, 2, 1)])[topic].result(10)
    return topic


def examined(cluster: KafkaCluster, *topics: str) -> dict[str, list[Finding]]:
    """What was found about the rights, by topic."""
    found: dict[str, list[Finding]] = {}
    for finding in kafka.rights(cluster, topics):
        found.setdefault(finding.of, []).append(finding)
    return found


def verdicts(findings: Sequence[Finding]) -> list[Verdict]:
    return [finding.verdict for finding in findings]


@pytest.mark.parametrize(
    ("operation", "right"),
    [
        (AclOperation.READ, "Read"),
        (AclOperation.DESCRIBE_CONFIGS, "DescribeConfigs"),
        (AclOperation.DESCRIBE, "Describe"),
    ],
)
def test_a_right_that_is_missing_is_named_and_costs_its_topic_alone(
    guarded: Guarded, cluster: KafkaCluster, orders: str, operation: AclOperation, right: str
) -> None:
    """Purpose: a drain meets the rights one after another, and some of them only in the middle.
    Procedure: deny one right on one of two topics; examine both, and one that nobody made.
    Pass: the right and the topic are named, and the other topic is fine; the third is missing, said once. Without the
    right to its configuration nobody judges the topic's gaps, which may be losses.
    """
    other = f"{orders}_other"
    admin(guarded.inside).create_topics([NewTopic(other, 1, 1)])[other].result(10)

    with guarded.denied(orders, operation):
        found = examined(cluster, orders, other, "no_such_topic")
        if operation is AclOperation.DESCRIBE_CONFIGS:
            with pytest.raises(AccessRefused, match=f"DescribeConfigs on topic {orders}"):
                can_have_gaps(cluster, orders)

    refusals = [finding.trouble for finding in found[orders]]
    assert set(verdicts(found[orders])) == {Verdict.WRONG}
    assert all(isinstance(refusal, AccessRefused) for refusal in refusals)
    assert any(f"({right} on topic {orders}:" in str(refusal) for refusal in refusals)
    assert verdicts(found[other]) == [Verdict.OK]
    assert [finding.found for finding in found["no_such_topic"]] == ["topic missing"]


def test_transactions_that_we_may_not_see_are_a_warning_and_no_answer(
    guarded: Guarded, cluster: KafkaCluster, orders: str
) -> None:
    """Purpose: until an offset without a message is met, nobody needs the right; then a drain would stop.
    Procedure: deny Describe on the topic of the transactions; examine, and ask.
    Pass: the doctor warns and names the right; the question has no answer.
    """
    with guarded.denied(TRANSACTIONS, AclOperation.DESCRIBE):
        found = examined(cluster, orders)
        with pytest.raises(AccessRefused, match=f"Describe on topic {TRANSACTIONS}"):
            knows_transactions(cluster)

    assert verdicts(found[orders]) == [Verdict.OK]
    assert verdicts(found[TRANSACTIONS]) == [Verdict.WARNING]


def test_brokers_that_answer_are_named_with_their_latency(cluster: KafkaCluster, guarded: Guarded) -> None:
    """Purpose: what is shown is what the cluster advertises.
    Procedure: examine the brokers.
    Pass: one broker by its advertised address, and a latency.
    """
    (finding,) = kafka.brokers(cluster)

    assert finding.facts["addresses"] == (guarded.door,)
    assert 0 < float(str(finding.facts["latency_seconds"])) < 5


def test_a_broker_that_gives_a_name_where_nobody_is_is_told_from_a_dead_one(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Purpose: advertised.listeners set wrong is the commonest reason for brokers that "do not answer".
    Procedure: examine the brokers through a listener that advertises an address where nobody listens.
    Pass: that address is named.
    """
    monkeypatch.setattr(kafka_probe, "ANSWER_SECONDS", 2.0)

    with pytest.raises(AdvertisedUnreachable, match="1 of 1 brokers take no connection from here: 127.0.0.1:1"):
        list(kafka.brokers(KafkaCluster("main", guarded.misnamed)))


def test_a_stream_whose_topic_is_hidden_is_wrong_beside_one_that_is_fine(
    guarded: Guarded, cluster: KafkaCluster, orders: str, lake: str
) -> None:
    """Purpose: what a drain would refuse stands in the doctor's answer, stream by stream.
    Procedure: deny the topic of one of two streams; examine the streams.
    Pass: one is wrong, by authorization; the other has nothing waiting, and its retention is told.
    """
    other = f"{orders}_other"
    admin(guarded.inside).create_topics([NewTopic(other, 1, 1)])[other].result(10)
    own = [Stream(topic, f"bronze/{topic}", "id bigint", "current_date()", cluster) for topic in (orders, other)]

    with guarded.denied(orders, AclOperation.ALL):
        found = list(kafka.streams(cluster, own, lake=lake))

    assert [(f.examination, f.of, f.verdict) for f in found] == [
        ("stream", f"bronze/{orders}", Verdict.WRONG),
        ("stream", f"bronze/{other}", Verdict.OK),
        ("retention", f"bronze/{other}", Verdict.OK),
    ]
    assert isinstance(found[0].trouble, AccessRefused)
