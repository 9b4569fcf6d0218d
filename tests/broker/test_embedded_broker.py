"""The embedded broker as people run it: `kdi broker run`; and as tests do: killed, restarted."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer
from confluent_kafka import TopicPartition as Assignment
from confluent_kafka.admin import AdminClient, NewTopic

from kdi_assets.runtime.broker import JVM_OPTIONS, QUICK_START, Broker, BrokerDied, start_broker
from kdi_assets.runtime.ports import free_port
from kdi_assets.settings import Settings
from tests.kafka_log import Publisher

RunBroker = Callable[..., tuple["subprocess.Popen[str]", str]]


@pytest.fixture
def run_broker(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunBroker]:
    """Starts `kdi broker run` and answers the process and the line that it prints."""
    monkeypatch.setenv("KDI_HOME", str(settings.home))
    monkeypatch.setenv("JDK_JAVA_OPTIONS", " ".join(QUICK_START))
    processes: list[subprocess.Popen[str]] = []

    def run(data: Path, *, port: int) -> tuple[subprocess.Popen[str], str]:
        kdi = str(Path(sys.executable).with_name("kdi"))
        command = [kdi, "broker", "run", "--data", str(data), "--port", str(port)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        return process, process.stdout.readline()

    yield run
    for process in processes:
        process.kill()
        process.communicate()


def create_topic(bootstrap_servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result(30)


def read_values(bootstrap_servers: str, topic: str, count: int) -> list[bytes | None]:
    """The first messages of the topic's only partition."""
    config = {"bootstrap.servers": bootstrap_servers, "group.id": "never committed", "enable.auto.commit": False}
    consumer = Consumer(config)
    consumer.assign([Assignment(topic, 0, OFFSET_BEGINNING)])
    messages = consumer.consume(count, timeout=30)
    consumer.close()
    return [message.value() for message in messages]


def test_a_signal_stops_it_cleanly_and_the_next_run_has_its_messages(run_broker: RunBroker, tmp_path: Path) -> None:
    port = free_port()
    address = f"127.0.0.1:{port}"
    process, line = run_broker(tmp_path, port=port)
    assert line == f"Kafka answers on {address}, data in {tmp_path}\n"
    create_topic(address, "kept")
    Publisher(address).produce_all("kept", [b"one", b"two"])
    (jvm,) = psutil.Process(process.pid).children()

    process.send_signal(signal.SIGTERM)

    assert process.wait(30) == 0
    assert not jvm.is_running()
    process, _ = run_broker(tmp_path, port=port)
    assert read_values(address, "kept", 2) == [b"one", b"two"]
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0


def test_for_a_taken_port_a_free_one_is_chosen_and_said(run_broker: RunBroker, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        _, line = run_broker(tmp_path, port=taken)

    assert f"(port {taken} is taken)" in line
    address = line.split()[3]
    assert not address.endswith(f":{taken}")
    create_topic(address, "answers")


def test_its_jvm_ends_when_the_command_is_killed(run_broker: RunBroker, tmp_path: Path) -> None:
    process, _ = run_broker(tmp_path, port=free_port())
    children = psutil.Process(process.pid).children()

    process.kill()

    gone, alive = psutil.wait_procs(children, timeout=30)
    assert len(gone) == 1 and not alive


@pytest.fixture
def own_broker(settings: Settings, tmp_path: Path) -> Iterator[Broker]:
    """A broker of this test alone."""
    broker = start_broker(tmp_path / "own", home=settings.home, jvm_options=(*JVM_OPTIONS, *QUICK_START))
    yield broker
    broker.stop()


@pytest.mark.core
def test_acknowledged_messages_outlast_a_crash_of_the_broker(own_broker: Broker) -> None:
    port = own_broker.port
    create_topic(own_broker.bootstrap_servers, "kept")
    Publisher(own_broker.bootstrap_servers).produce_all("kept", [b"one", b"two"])

    own_broker.kill()
    assert own_broker.exit_code() == -signal.SIGKILL
    own_broker.restart()

    assert own_broker.port == port
    assert read_values(own_broker.bootstrap_servers, "kept", 2) == [b"one", b"two"]


def test_a_second_broker_on_the_same_data_is_refused_with_the_end_of_its_log(
    own_broker: Broker, settings: Settings
) -> None:
    with pytest.raises(BrokerDied, match="Failed to acquire lock") as refused:
        start_broker(own_broker.data, home=settings.home, jvm_options=QUICK_START)

    assert refused.value.data == own_broker.data
    create_topic(own_broker.bootstrap_servers, "the_first_one_goes_on")


def test_a_topic_that_nobody_created_is_not_created_by_a_reader(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

    admin.list_topics("mistyped", timeout=10)

    assert "mistyped" not in admin.list_topics(timeout=10).topics
