"""A broker that lost the end of a topic partition's log: what was drained of it is nowhere else any more."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kdi_assets.drain.compare import compare
from kdi_assets.drain.look import look
from kdi_assets.drain.refusals import BrokerEndBelowPosition
from kdi_assets.drain.resolve import NothingToResolve, carry_out_decision, decide
from kdi_assets.drain.survey import TopicTruncated
from kdi_assets.replay.replay_letters import discard_letters
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
def test_rows_whose_messages_the_broker_lost_are_kept_beside_the_table(
    broker: Broker, lake: str, tmp_path: Path, spark: SparkSession
) -> None:
    """Purpose: the only copies of messages are the rows, and their offsets go to other messages.
    Procedure: drain ten messages, one of them bad and among those that the broker then loses; rewind to its end; six
    more messages come; drain.
    Pass: the rewind waits until someone has decided about the dead letter; the rows of the lost messages are in
    ``<table>_removed``, byte by byte; the new messages are in the table, each once; the audit says so.
    """
    cluster = KafkaCluster("main", broker.bootstrap_servers)
    try:
        admin(cluster).create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        web = DrivenStream(web_requests(TOPIC, cluster), lake, Publisher(broker.bootstrap_servers), lambda: spark)
        kept = list(web.produce(4))
        size = (log := segment(broker, tmp_path)).stat().st_size
        web.produce(5, seed=1)
        web.produce(1, bad=1.0, seed=2)
        web.drain()
        rows = sorted(DeltaTable(web.uri).to_pyarrow_table().to_pylist(), key=offset_of)
        cut(broker, log, size)
        web.publisher = Publisher(broker.bootstrap_servers)

        with pytest.raises(BrokerEndBelowPosition, match=r"rewind --topic-partition truncated/0 --to 4.*_removed"):
            web.drain()
        first = TopicPartition(TOPIC, 0)
        with pytest.raises(NothingToResolve, match="1 open dead letters .* only copies"):
            decide(web.stream, lake, "rewind", topic_partition=first, to=4, session=web.session)
        discard_letters(web.stream, lake=lake, session=web.session, decided_by="ann", because="cut off")
        decision = decide(web.stream, lake, "rewind", topic_partition=first, to=4, session=web.session)
        carry_out_decision(spark, decision, web.stream, lake)
        new = list(web.produce(6, seed=3))
        web.drain()
        report = web.audit()
    finally:
        broker.stop()

    assert (decision.beyond.row_count, decision.beyond.only_copies) == (5, 5)
    removed = sorted(DeltaTable(web.stream.removed_uri(lake)).to_pyarrow_table().to_pylist(), key=offset_of)
    assert [{name: row[name] for name in rows[0]} for row in removed] == rows[4:]
    assert {row["removed_from_version"] for row in removed} == {decision.table_version}
    web.assert_each_offset_once([*kept, *new])
    assert report.complete, report.line()
    assert "moved 5 rows to the table `…_removed`" in report.line()


@pytest.mark.scenario("broker restarts, leaders move")
def test_a_log_that_was_cut_off_and_grew_past_the_position_is_told_by_the_last_message_read(
    broker: Broker, lake: str, tmp_path: Path, spark: SparkSession
) -> None:
    """Purpose: by its ends alone such a log looks as if new messages had come; those below the position would be lost.
    Procedure: drain ten messages; the broker loses six of them; eight others come; drain; look; compare with Kafka, and
    rewind to the first offset that differs; drain.
    Pass: refused until the decision, which is refused too where it would pass over new messages; the rows of the lost
    messages are kept beside the table, and every message that is still at the broker is there once.
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
        with pytest.raises(NothingToResolve, match="offset 5 of truncated/0 holds another message than its row"):
            decide(web.stream, lake, "rewind", topic_partition=first, to=differs + 2, session=web.session)
        decision = decide(web.stream, lake, "rewind", topic_partition=first, to=differs, session=web.session)
        carry_out_decision(spark, decision, web.stream, lake)
        web.drain()
        report = web.audit()
    finally:
        broker.stop()

    assert isinstance(seen, TopicTruncated)
    assert differs == 4
    assert DeltaTable(web.stream.removed_uri(lake)).to_pyarrow_table().num_rows == 6
    web.assert_each_offset_once([*kept, *new])
    assert report.complete, report.line()


def offset_of(row: dict[str, dict[str, dict[str, int]]]) -> int:
    """Of the row's message."""
    return row["meta"]["kafka"]["offset"]
