"""What `kdi generate` publishes is in the topic, all of it and once; what is not acknowledged is counted as failed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from kdi_assets.errors import Transient
from kdi_assets.runtime.broker import JVM_OPTIONS, QUICK_START, Broker, start_broker
from kdi_assets.settings import Settings
from kdi_assets.sources.generator import Traffic, WebRequests
from kdi_assets.sources.kafka import BrokerUnreachable
from kdi_assets.sources.publisher import DeliveryFailed, TopicRefused, publish
from kdi_assets.stream import KafkaCluster
from tests.conftest import TopicFactory


def messages_of(cluster: KafkaCluster, topic: str) -> list[Message]:
    """Everything in the topic, up to the ends of its partitions."""
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none", "enable.partition.eof": True}
    consumer = Consumer({**servers, "auto.offset.reset": "earliest"})
    partitions = len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[Message] = []
    ended = 0
    deadline = time.monotonic() + 30
    while ended < partitions:
        assert time.monotonic() < deadline, "the broker did not tell of every end"
        batch = consumer.consume(1000, timeout=0.2)
        ended += sum(1 for message in batch if message.error())
        found += [message for message in batch if not message.error()]
    consumer.close()
    return found


def test_every_message_is_in_the_topic_once_and_spread_evenly(cluster: KafkaCluster, topic: TopicFactory) -> None:
    name = topic(4)
    published = publish(cluster, name, Traffic(seed=3), count=10_002)
    found = messages_of(cluster, name)

    uuids = [json.loads(message.value() or b"")["uuid"] for message in found]
    again = [
        json.loads(value or b"")["uuid"] for value in WebRequests(Traffic(seed=3)).batch(10_002, now=datetime.now(UTC))
    ]
    assert published.acknowledged == 10_002
    assert sorted(uuids) == sorted(again)
    per_partition = [sum(1 for message in found if message.partition() == number) for number in range(4)]
    assert per_partition == [2501, 2501, 2500, 2500]


def test_bad_messages_and_tombstones_arrive_as_made(cluster: KafkaCluster, topic: TopicFactory) -> None:
    name = topic(2)
    published = publish(cluster, name, Traffic(bad=0.2, tombstones=0.1), count=2000)
    values = [message.value() for message in messages_of(cluster, name)]

    assert values.count(None) == published.counts["tombstone"] > 0
    assert values.count(b"   ") == published.counts["blank"] > 0
    assert sum(1 for value in values if value and b"\xff\xfe" in value) == published.counts["invalid UTF-8"] > 0
    assert sum(published.counts.values()) == len(values) == 2000


def test_a_missing_topic_is_created_and_an_existing_one_keeps_its_partitions(
    cluster: KafkaCluster, topic: TopicFactory
) -> None:
    new, existing = "created_by_generate", topic(2)
    for name in (new, existing):
        publish(cluster, name, Traffic(), count=10, partitions=3)

    topics = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10).topics
    assert len(topics[new].partitions) == 3
    assert len(topics[existing].partitions) == 2


def test_publishing_ends_when_asked_and_what_was_handed_over_is_there(
    cluster: KafkaCluster, topic: TopicFactory
) -> None:
    name = topic(1)
    sent: list[int] = []
    published = publish(cluster, name, Traffic(), rate=200, stopped=lambda: len(sent) >= 3, report=sent.append)

    assert published.acknowledged == sent[-1] == len(messages_of(cluster, name)) == 60


def test_a_name_that_kafka_does_not_take_is_refused(cluster: KafkaCluster) -> None:
    with pytest.raises(TopicRefused, match="not/a/topic"):
        publish(cluster, "not/a/topic", Traffic(), count=1)


def test_without_a_broker_nothing_is_published_and_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kdi_assets.sources.publisher.REQUEST_SECONDS", 0.5)  # nobody will answer later either
    nobody = KafkaCluster("main", "127.0.0.1:1")

    with pytest.raises(BrokerUnreachable, match="127.0.0.1:1"):
        publish(nobody, "web_requests", Traffic(), count=1)


@pytest.fixture
def own_broker(settings: Settings, tmp_path: Path) -> Iterator[Broker]:
    """A broker that the test may stop."""
    broker = start_broker(tmp_path, home=settings.home, jvm_options=(*JVM_OPTIONS, *QUICK_START))
    yield broker
    broker.kill()


def test_a_broker_that_falls_silent_makes_it_fail_with_the_number_of_messages(own_broker: Broker) -> None:
    """Purpose: only failures call back, so silence must not be taken for an acknowledgement.
    Procedure: freeze the broker after the first batch; messages are given up after three seconds.
    Pass: the error accounts for every message handed over, and it is one where a retry helps.
    """
    cluster = KafkaCluster("main", own_broker.bootstrap_servers, {"delivery.timeout.ms": "3000"})
    handed_over: list[int] = []

    def freeze(sent: int) -> None:
        handed_over.append(sent)
        os.kill(own_broker.pid, signal.SIGSTOP)

    with pytest.raises(DeliveryFailed) as caught:
        publish(cluster, "web_requests", Traffic(), count=20_000, report=freeze)

    assert isinstance(caught.value, Transient)
    assert caught.value.failed > 0
    assert caught.value.failed + caught.value.acknowledged == handed_over[-1]


Command = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def kdi_generate(cluster: KafkaCluster) -> Command:
    """Starts `kdi generate` with options."""

    def start(*options: str) -> subprocess.Popen[str]:
        code = "from kdi_assets.cli.main import main; main()"
        environment = {**os.environ, "KDI_KAFKA": cluster.bootstrap_servers}
        command = [sys.executable, "-c", code, "generate", *options]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env=environment, **pipes)  # type: ignore[call-overload, no-any-return]

    return start


def test_the_command_prints_what_was_acknowledged(
    kdi_generate: Command, cluster: KafkaCluster, topic: TopicFactory
) -> None:
    name = topic(2)
    process = kdi_generate("--topic", name, "--count", "500", "--bad", "0.1", "--seed", "5", "--json")
    output, errors = process.communicate(timeout=60)

    assert process.returncode == 0, errors
    assert json.loads(output)["acknowledged"] == len(messages_of(cluster, name)) == 500
    assert json.loads(output)["seed"] == 5


def test_ctrl_c_ends_the_command_after_the_last_acknowledgement(
    kdi_generate: Command, cluster: KafkaCluster, topic: TopicFactory
) -> None:
    name = topic(1)
    process = kdi_generate("--topic", name, "--rate", "100", "--json")
    assert process.stderr is not None
    process.stderr.readline()  # the first line of progress: it publishes
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)

    assert process.returncode == 0, errors
    assert json.loads(output)["acknowledged"] == len(messages_of(cluster, name)) > 0
