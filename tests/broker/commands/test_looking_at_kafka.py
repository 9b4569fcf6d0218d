"""What is read from brokers in trouble; single messages and many ranges."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from itertools import count
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from kdi_assets.documents.model.stream import Cluster, OffsetRange, TopicPartition
from kdi_assets.messages.kafka.errors import LeaderMissing, TopicMissing
from kdi_assets.messages.kafka.messages import around_positions, last_messages, visible_messages
from kdi_assets.messages.kafka.topic import read_topic, read_topics
from kdi_assets.messages.topic_state import TopicState
from tests.conftest import TopicFactory
from tests.faults.topics import TransactionalPublisher
from tests.kafka_log import Publisher


def refuse(monkeypatch: pytest.MonkeyPatch, code: int, *, first: int = 1_000_000, topic: str = "") -> Iterator[int]:
    """End the first questions for offsets in an error, like a broker that does not lead the partition yet."""
    asked, ask = count(1), AdminClient.list_offsets

    def list_offsets(self: AdminClient, wanted: dict[Any, Any], **options: Any) -> dict[Any, Future[Any]]:
        answers = dict(ask(self, wanted, **options))  # the client answers other futures itself
        if next(asked) <= first:
            for partition in (p for p in answers if topic in p.topic):
                answers[partition] = Future()
                answers[partition].set_exception(KafkaException(KafkaError(code)))
        return answers

    monkeypatch.setattr(AdminClient, "list_offsets", list_offsets)
    return asked


@pytest.mark.scenario("broker restarts, leaders move")
@pytest.mark.parametrize("code", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_a_topic_made_this_instant_is_waited_for(
    cluster: Cluster, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """Procedure: the first questions for offsets get the answer of a broker that does not lead."""
    new = topic(partitions=2)
    refuse(monkeypatch, code, first=4)

    assert sorted(read_topic(cluster, new).partitions) == [TopicPartition(new, 0), TopicPartition(new, 1)]


@pytest.mark.scenario("broker restarts, leaders move")
def test_a_leader_that_stays_away_costs_its_topic_alone_and_a_retry_helps(
    cluster: Cluster, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: every question for offsets ends in "no leader"; read this topic and a missing one."""
    new = topic()
    asked = refuse(monkeypatch, KafkaError.LEADER_NOT_AVAILABLE)

    states = read_topics(cluster, [new, "no_such_topic"], leader_seconds=0.3)

    assert isinstance(states[new], LeaderMissing)
    assert isinstance(states["no_such_topic"], TopicMissing)
    assert next(asked) > 4  # it asked again before it gave up


@pytest.mark.scenario("broker restarts, leaders move")
def test_what_one_look_answered_is_kept_when_the_broker_goes_before_the_next(
    cluster: Cluster, topic: TopicFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: one of two topics has no leader at first, and the broker is gone when it is asked again."""
    led, leaderless = topic(), topic()
    refuse(monkeypatch, KafkaError.NOT_LEADER_FOR_PARTITION, topic=leaderless)
    describe, described = AdminClient.describe_topics, count(1)

    def describe_once(self: AdminClient, *arguments: Any, **options: Any) -> Any:
        if next(described) > 1:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return describe(self, *arguments, **options)

    monkeypatch.setattr(AdminClient, "describe_topics", describe_once)

    states = read_topics(cluster, [led, leaderless])

    assert isinstance(states[led], TopicState)
    assert isinstance(states[leaderless], LeaderMissing)
    assert next(described) == 3  # it did ask again


def test_one_client_sees_the_messages_of_many_ranges_near_and_far_and_no_others(
    cluster: Cluster, topic: TopicFactory, producer: Publisher
) -> None:
    """Procedure: every other offset, then single ones far apart, then the end; one range of another topic partition."""
    first, second = (TopicPartition(topic(partitions=2), 0) for _ in range(2))
    for tp, messages in ((first, 30_000), (second, 10)):
        for number in range(messages):
            producer.client.produce(tp.topic, str(number), partition=0)
            producer.client.poll(0)
    producer.flush()
    near = [OffsetRange(first, at, at + 1) for at in range(0, 4_000, 2)]
    far = [OffsetRange(first, at, at + 2) for at in (9_000, 16_000, 29_999)]

    seen = visible_messages(cluster, {first: [*near, *far], second: [OffsetRange(second, 3, 5)]})
    offsets = {(message.topic_partition.topic, message.offset) for message in seen}

    wanted = {(first.topic, at) for at in (*range(0, 4_000, 2), 9_000, 9_001, 16_000, 16_001, 29_999)}
    assert offsets == wanted | {(second.topic, 3), (second.topic, 4)}


def test_the_last_message_of_a_range_is_found_again_before_the_position_behind_it(
    topic: TopicFactory, producer: Publisher, cluster: Cluster
) -> None:
    """A transaction's marker follows its messages; an aborted transaction shows no messages."""
    plain, empty = (TopicPartition(topic(), 0) for _ in range(2))
    markers = TopicPartition(topic(), 0)
    producer.produce_all(plain.topic, ["a", "b", "b"], partition=0)
    transactional = TransactionalPublisher(cluster.bootstrap_servers, markers.topic)
    for commit in (True, True, False):
        with transactional.transaction(commit=commit):
            transactional.produce(markers.topic, "c", partition=0)
    ends = {tp: read_topic(cluster, tp.topic).partitions[tp].end for tp in (plain, empty, markers)}

    last = last_messages(cluster, [OffsetRange(tp, 0, end) for tp, end in ends.items()])
    producer.produce_all(plain.topic, ["d"], partition=0)
    before = {tp: message.offset for tp, message in last.items()}
    found = around_positions(cluster, ends, before=before)

    assert {tp: m.offset for tp, m in last.items()} == {plain: 2, markers: 2}
    assert {tp: at.before for tp, at in found.items()} == {**last, empty: None}
    assert [tp for tp, at in found.items() if at.next_at] == [plain]
    assert last[plain] != last_messages(cluster, [OffsetRange(plain, 0, 1)])[plain]
    assert around_positions(cluster, {plain: 3}, before={plain: 1})[plain].before != last[plain]
