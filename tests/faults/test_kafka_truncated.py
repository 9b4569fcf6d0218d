"""A broker that lost the end of a topic partition's log: what was drained of it is nowhere else any more."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from kdi_assets.drain.compare import compare
from kdi_assets.drain.look import look
from kdi_assets.drain.resolve import carry_out_decision, decide
from kdi_assets.drain.truncation import TopicTruncated
from kdi_assets.runtime.broker import JVM_OPTIONS, QUICK_START, Broker, start_broker
from kdi_assets.settings import Settings
from kdi_assets.stream import KafkaCluster, TopicPartition
from tests.driven import DrivenStream, web_requests
from tests.faults.topics import admin
from tests.kafka_log import Publisher

TOPIC = "truncated"


@pytest.fixture
def broker(settings: Settings, tmp_path: Path) -> Broker:
    """A broker that may be killed, with a topic of one partition."""
    return start_broker(tmp_path / "broker", home=settings.home, jvm_options=(*JVM_OPTIONS, *QUICK_START))


def segment(broker: Broker, tmp_path: Path) -> Path:
    """The file that holds the messages."""
    return next((tmp_path / "broker").rglob(f"{TOPIC}-0/*.log"))


def cut(broker: Broker, log: Path, size: int) -> None:
    """Let the broker come back with so much of its log, as after a crash that lost what was not on the disk."""
    broker.kill()
    with log.open("r+b") as file:
        file.truncate(size)
    for index in (*log.parent.glob("*.index"), *log.parent.glob("*.timeindex")):
        index.unlink()
    for checkpoint in log.parent.parent.glob("*checkpoint*"):
        if "recovery" in checkpoint.name or "high" in checkpoint.name:
            checkpoint.unlink()
    broker.restart()


@pytest.mark.scenario("broker restarts, leaders move")
def test_a_log_that_was_cut_off_and_grew_past_the_position_is_told_by_the_last_message_read(
    broker: Broker, lake: str, tmp_path: Path, spark: SparkSession
) -> None:
    """Purpose: by its ends alone such a log looks as if new messages had come; those below the position would be lost.
    Procedure: drain ten messages; the broker loses six of them; eight others come; drain; look; compare with Kafka, and
    rewind to the first offset that differs; drain.
    Pass: refused until the decision; every message that the broker has is there once.
    """
    cluster, first = KafkaCluster("main", broker.bootstrap_servers), TopicPartition(TOPIC, 0)
    try:
        admin(cluster).create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        web = DrivenStream(web_requests(TOPIC, cluster), lake, Publisher(broker.bootstrap_servers), lambda: spark)
        kept = list(web.produce(4))
        size = (log := segment(broker, tmp_path)).stat().st_size
        web.produce(6, seed=1)
        web.drain()
        cut(broker, log, size)
        web.publisher = Publisher(broker.bootstrap_servers)
        new = list(web.produce(8, seed=2))

        with pytest.raises(
            TopicTruncated, match=r"offset 9 of truncated/0 holds another .*\n.*\n.*--against-kafka .*rewind"
        ):
            web.drain()
        seen = look(web.stream, lake).refusal
        differs = compare(web.stream, lake=lake, session=web.session).changed_at[0].range.start
        decision = decide(web.stream, lake, "rewind", topic_partition=first, to=differs, session=web.session)
        carry_out_decision(spark, decision, web.stream, lake)
        web.drain()
        report = web.audit()
    finally:
        broker.stop()

    assert isinstance(seen, TopicTruncated)
    assert differs == 4
    web.assert_each_offset_once([*kept, *new])
    assert report.complete, report.line()
