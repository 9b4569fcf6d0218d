"""Leaders that move to another broker while a stream is drained."""

from __future__ import annotations

import re
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from kdi_assets.runtime.broker import Broker
from kdi_assets.runtime.ports import free_port
from kdi_assets.settings import Settings
from kdi_assets.stream import KafkaCluster
from tests.conftest import quick_broker
from tests.driven import DrivenStream, web_requests
from tests.faults.topics import admin
from tests.kafka_log import Publisher
from tests.waiting import wait_until

FIRST, SECOND = 1, 2


@dataclass(frozen=True)
class Pair:
    """Two brokers with every message on both; the first is the controller too, the second may be killed."""

    first: Broker
    second: Broker

    @property
    def cluster(self) -> KafkaCluster:
        return KafkaCluster("main", f"{self.first.bootstrap_servers},{self.second.bootstrap_servers}")

    def topic_led_by_second(self, name: str) -> None:
        """Make a topic of two partitions whose leader is the second broker."""
        new = NewTopic(name, 2, replica_assignment=[[SECOND, FIRST], [SECOND, FIRST]])
        admin(self.cluster).create_topics([new])[name].result(20)
        wait_until(lambda: self.leaders(name) == {SECOND}, seconds=20)

    def leaders(self, topic: str) -> set[int]:
        """The brokers that lead the topic's partitions; -1 for none."""
        seen = admin(KafkaCluster("main", self.first.bootstrap_servers)).list_topics(topic, timeout=10)
        return {partition.leader for partition in seen.topics[topic].partitions.values()}


@pytest.fixture(scope="module")
def pair(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two brokers of one cluster."""
    *ports, controller = (free_port() for _ in range(3))
    quorum = {"controller.quorum.voters": f"{FIRST}@127.0.0.1:{controller}", "auto.leader.rebalance.enable": "false"}
    listeners = f"PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://127.0.0.1:{controller}"
    folders = [tmp_path_factory.mktemp(name) for name in ("first", "second")]
    first = quick_broker(folders[0], settings, port=ports[0], properties={**quorum, "listeners": listeners})
    _join(folders[0], folders[1])
    alone = {"process.roles": "broker", "node.id": str(SECOND), "listeners": f"PLAINTEXT://127.0.0.1:{ports[1]}"}
    second = quick_broker(folders[1], settings, port=ports[1], properties={**quorum, **alone})
    yield Pair(first, second)
    second.stop()
    first.stop()


def _join(first: Path, second: Path) -> None:
    """Let the second's folders belong to the first's cluster, as formatting them with its id does."""
    of_first = (first / "logs" / "metadata" / "meta.properties").read_text()
    for folder in ("metadata", "messages"):
        directory = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        text = re.sub(
            r"node\.id=.*", f"node.id={SECOND}", re.sub(r"directory\.id=.*", f"directory.id={directory}", of_first)
        )
        (second / "logs" / folder).mkdir(parents=True)
        (second / "logs" / folder / "meta.properties").write_text(text)


@pytest.mark.scenario("broker restarts, leaders move")
@pytest.mark.parametrize("point", ["before reading", "files written"])
def test_a_leader_that_moves_under_a_drain_is_followed(
    topic_name: str, pair: Pair, lake: str, spark: SparkSession, point: str
) -> None:
    """Purpose: a broker dies for good and another takes over; the drain's clients know the old leader.
    Procedure: two brokers with every message on both; drain; produce good and malformed messages; drain, and at the
    point the leader of all topic partitions is killed (SIGKILL); start it again.
    Pass: the drain completes by itself, from the new leader; every offset is there once.
    """
    if pair.second.exit_code() is not None:
        pair.second.restart()
    pair.topic_led_by_second(topic_name)
    publisher = Publisher(pair.cluster.bootstrap_servers)
    web = DrivenStream(web_requests(topic_name, pair.cluster), lake, publisher, lambda: spark)
    web.drain_rounds(1, 20)
    produced = web.produce(40, bad=0.2)

    report = web.drain(at=lambda reached: pair.second.kill() if reached == point else None)

    assert sum(c.offset_count for c in report.commits) == 40
    assert pair.leaders(topic_name) == {FIRST}
    web.assert_each_offset_once(produced)
    assert web.audit().complete
