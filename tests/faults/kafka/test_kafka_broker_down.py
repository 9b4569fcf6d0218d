"""Brokers that stop: before a drain, between plan and reading, while a task reads, for a moment or for good.

If another one has the messages too, it leads from then on.
"""

from __future__ import annotations

import re
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread

import pytest
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from kdi_assets.documents.model.stream import Cluster
from kdi_assets.errors import Transient
from kdi_assets.messages.kafka import messages, reader
from kdi_assets.messages.kafka import topic as kafka
from kdi_assets.messages.kafka.errors import BrokerUnreachable
from kdi_assets.operate.monitoring.backlog_reader import read_backlog
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.report import DrainReport
from kdi_assets.tools.local.broker import Broker, free_port
from tests.conftest import quick_broker
from tests.driven import DrivenStream, Once, web_requests
from tests.faults.topics import SMALL_FETCHES, admin, stream_over
from tests.kafka_log import Publisher
from tests.waiting import wait_until

pytestmark = pytest.mark.scenario("broker restarts, leaders move")


@pytest.fixture(scope="module")
def _mortal(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = quick_broker(tmp_path_factory.mktemp("mortal"), settings)
    yield broker
    broker.stop()


@pytest.fixture
def mortal(_mortal: Broker) -> Broker:
    """A broker that a test may kill; it runs when a test begins."""
    if _mortal.exit_code() is not None:
        _mortal.restart()
    return _mortal


@pytest.fixture
def web(topic_name: str, mortal: Broker, lake: str, spark: SparkSession) -> DrivenStream:
    """A stream over a topic of that broker."""
    return stream_over(Cluster("main", mortal.bootstrap_servers, SMALL_FETCHES), topic_name, lake, lambda: spark)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits a fifth of the usual time for a broker that does not answer."""
    patient = (
        (kafka, "REQUEST_SECONDS"),
        (messages, "REQUEST_SECONDS"),
        (reader, "ANSWER_SECONDS"),
        (reader, "MESSAGE_SECONDS"),
    )
    for module, name in patient:
        monkeypatch.setattr(module, name, getattr(module, name) // 5)


@pytest.mark.parametrize("point", ["before reading", "files written", "accounted for"])
def test_a_broker_that_restarts_between_two_steps_costs_nothing(mortal: Broker, web: DrivenStream, point: str) -> None:
    """Purpose: every client of a drain must find the broker again, the pooled consumers of Spark too.
    Procedure: drain; produce good and malformed messages; drain, and at the point the broker is killed (SIGKILL) and
    started again on its data.
    Pass: the drain completes by itself; every offset is there once.
    """
    web.drain_rounds(1, 20)
    produced = web.produce(40, bad=0.2)

    def restart() -> None:
        mortal.kill()
        mortal.restart()

    killed = Once(point, restart)
    report = web.drain(at=killed)

    assert killed.happened
    assert sum(c.offset_count for c in report.commits) == 40
    web.assert_each_offset_once(produced)
    assert web.audit().complete


def test_a_broker_killed_while_a_task_reads_comes_back_and_nothing_is_lost(
    mortal: Broker, web: DrivenStream, spark: SparkSession
) -> None:
    """Purpose: the broker stops in the middle of a fetch, with half of a range read.
    Procedure: 30,000 messages, read in fetches of 16 kB; once a task of the drain runs, the broker is killed (SIGKILL)
    and started again; drain until nothing waits.
    Pass: the drain completes, or says that a retry helps and commits nothing; in the end every offset is there once.
    """
    produced = web.produce(30_000, bad=0.01)
    tracker, back, drained = spark.sparkContext.statusTracker(), Event(), Event()

    def kill_under_a_reader() -> None:
        wait_until(lambda: bool(tracker.getActiveStageIds()), seconds=120)
        mortal.kill()
        mortal.restart()
        back.set()
        drained.wait(300)  # a child ends with the thread that started it

    killer = Thread(target=kill_under_a_reader)
    first: DrainReport | Transient
    try:
        first = web.drain(at=Once("before reading", killer.start))
    except Transient as refusal:
        first = refusal
    assert back.wait(60)
    drained.set()
    killer.join()
    mortal.restart()
    version = web.version()
    last = web.drain()

    assert isinstance(first, Transient) and version == 0 or isinstance(first, DrainReport) and last.commits == ()
    web.assert_each_offset_once(produced)
    assert web.audit().complete


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("point", ["before the drain", "before reading", "files written"])
def test_a_broker_that_goes_for_good_under_a_drain_ends_it(mortal: Broker, web: DrivenStream, point: str) -> None:
    """Purpose: a drain must neither hang on a broker that does not come back nor commit what it could not read.
    Procedure: drain; produce good and malformed messages; drain, and kill the broker at the point; read the backlog;
    start it again; drain.
    Pass: within a time that a person waits for, the drain and the backlog say that no broker answers and that a retry
    helps; the version stays; then every offset is there once.
    """
    web.drain_rounds(1, 20, bad=0.2)
    produced = web.produce(20, bad=0.3, seed=2)
    ended: list[float] = []

    def kill() -> None:
        mortal.kill()
        ended.append(time.monotonic())

    killed = Once(point, kill)
    killed("before the drain")
    with pytest.raises(BrokerUnreachable, match="no answer from"):
        web.drain(at=killed)
    assert isinstance(read_backlog(web.stream, web.lake).refusal, BrokerUnreachable)

    assert time.monotonic() - ended[0] < 40
    assert web.version() == 1
    mortal.restart()
    web.drain()
    web.assert_each_offset_once(produced)
    assert web.audit().complete


FIRST, SECOND = 1, 2


@dataclass(frozen=True)
class Pair:
    """Two brokers with every message on both; the first is the controller too, the second may be killed."""

    first: Broker
    second: Broker

    @property
    def cluster(self) -> Cluster:
        return Cluster("main", f"{self.first.bootstrap_servers},{self.second.bootstrap_servers}")

    def topic_led_by_second(self, name: str) -> None:
        """Make a topic of two partitions whose leader is the second broker."""
        new = NewTopic(name, 2, replica_assignment=[[SECOND, FIRST], [SECOND, FIRST]])
        admin(self.cluster).create_topics([new])[name].result(20)
        wait_until(lambda: self.leaders(name) == {SECOND}, seconds=20)

    def leaders(self, topic: str) -> set[int]:
        """The brokers that lead the topic's partitions; -1 for none."""
        seen = admin(Cluster("main", self.first.bootstrap_servers)).list_topics(topic, timeout=10)
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
    """Make the second broker's folders belong to the first's cluster, as formatting them with its id does."""
    of_first = (first / "logs" / "metadata" / "meta.properties").read_text()
    for folder in ("metadata", "messages"):
        directory = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        text = re.sub(
            r"node\.id=.*", f"node.id={SECOND}", re.sub(r"directory\.id=.*", f"directory.id={directory}", of_first)
        )
        (second / "logs" / folder).mkdir(parents=True)
        (second / "logs" / folder / "meta.properties").write_text(text)


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
