"""What a look at the brokers answers while they are not in order."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from kdi_assets.sources.kafka import LeaderMissing, TopicMissing, TopicState, read_topic, read_topics
from kdi_assets.sources.kafka_messages import visible_messages
from kdi_assets.stream import KafkaCluster, OffsetRange, TopicPartition
from tests.conftest import TopicFactory
from tests.kafka_log import Publisher


def refuse(monkeypatch: pytest.MonkeyPatch, code: int, *, first: int) -> Iterator[int]:
    """Let the first questions for offsets end in an error, as a broker does that does not lead the partition yet."""
    asked = count(1)
    ask = AdminClient.list_offsets

    def list_offsets(self: AdminClient, wanted: dict[Any, Any], **options: Any) -> dict[Any, Future[Any]]:
        if next(asked) > first:
            return ask(self, wanted, **options)
        refused: Future[Any] = Future()
        refused.set_exception(KafkaException(KafkaError(code)))
        return dict.fromkeys(wanted, refused)

    monkeypatch.setattr(AdminClient, "list_offsets", list_offsets)
    return asked


@pytest.mark.scenario("broker restarts, leaders move")
@pytest.mark.parametrize("code", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_a_topic_made_this_instant_is_waited_for(
    cluster: KafkaCluster, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Procedure: the first questions for offsets are answered as by a broker that does not lead."""
    new = topic(partitions=2)
    refuse(monkeypatch, code, first=4)

    assert sorted(read_topic(cluster, new).partitions) == [TopicPartition(new, 0), TopicPartition(new, 1)]


@pytest.mark.scenario("broker restarts, leaders move")
def test_a_leader_that_stays_away_costs_its_topic_alone_and_a_retry_helps(
    cluster: KafkaCluster, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: every question for offsets ends in: no leader; look at this topic and a missing one."""
    new = topic()
    asked = refuse(monkeypatch, KafkaError.LEADER_NOT_AVAILABLE, first=1_000_000)

    states = read_topics(cluster, [new, "no_such_topic"], leader_seconds=0.3)

    assert isinstance(states[new], LeaderMissing)
    assert isinstance(states["no_such_topic"], TopicMissing)
    assert next(asked) > 4  # it looked again before it gave up


@pytest.mark.scenario("broker restarts, leaders move")
def test_what_one_look_answered_is_kept_when_the_broker_goes_before_the_next(
    cluster: KafkaCluster, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: one of two topics has no leader at first, and the broker is gone when it is asked again."""
    led, leaderless = topic(), topic()
    refused = KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
    ask, describe = AdminClient.list_offsets, AdminClient.describe_topics
    described = count(1)

    def list_offsets(self: AdminClient, wanted: dict[Any, Any], **options: Any) -> dict[Any, Future[Any]]:
        answers = dict(ask(self, wanted, **options))  # its own it answers, also what is none of its futures
        for partition in (p for p in answers if p.topic == leaderless):
            answers[partition] = Future()
            answers[partition].set_exception(refused)
        return answers

    def describe_once(self: AdminClient, *arguments: Any, **options: Any) -> Any:
        if next(described) > 1:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return describe(self, *arguments, **options)

    monkeypatch.setattr(AdminClient, "list_offsets", list_offsets)
    monkeypatch.setattr(AdminClient, "describe_topics", describe_once)

    states = read_topics(cluster, [led, leaderless])

    assert isinstance(states[led], TopicState)
    assert isinstance(states[leaderless], LeaderMissing)
    assert next(described) == 3  # it did look again


def test_one_client_sees_the_messages_of_many_ranges_near_and_far_and_no_others(
    cluster: KafkaCluster, topic: TopicFactory, producer: Publisher
) -> None:
    """Procedure: every other offset, then single ones far apart, then the end; of another topic partition one range."""
    first, second = (TopicPartition(topic(partitions=2), 0) for _ in range(2))
    for tp, messages in ((first, 30_000), (second, 10)):
        for number in range(messages):
            producer.client.produce(tp.topic, str(number), partition=0)
            producer.client.poll(0)
    producer.flush()
    near = [OffsetRange(first, at, at + 1) for at in range(0, 4_000, 2)]
    far = [OffsetRange(first, at, at + 2) for at in (9_000, 16_000, 29_999)]

    seen = visible_messages(cluster, {first: [*near, *far], second: [OffsetRange(second, 3, 5)]})
    offsets = {(message.topic(), message.offset()) for message in seen}

    wanted = {(first.topic, at) for at in (*range(0, 4_000, 2), 9_000, 9_001, 16_000, 16_001, 29_999)}
    assert offsets == wanted | {(second.topic, 3), (second.topic, 4)}
