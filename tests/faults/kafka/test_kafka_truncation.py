"""A broker that lost the end of a topic partition's log: the rows are the only copies of these messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kdi_assets.documents.model.stream import Cluster, TopicPartition
from kdi_assets.operate.monitoring.backlog_reader import read_backlog
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.plan_errors import BrokerEndBelowPosition, TopicTruncated
from kdi_assets.streams.replay.replay_dates import replay_dates
from kdi_assets.streams.replay.replay_letters import discard_letters
from kdi_assets.streams.resolve.errors import NothingToResolve
from kdi_assets.tools.local.broker import Broker
from tests.conftest import quick_broker
from tests.driven import DrivenStream
from tests.faults.topics import stream_over
from tests.kafka_log import Publisher
from tests.predecessor.table import PredecessorTable

pytestmark = pytest.mark.scenario("broker restarts, leaders move")

TOPIC = "truncated"
ONLY = TopicPartition(TOPIC, 0)


@pytest.fixture
def broker(settings: Settings, tmp_path: Path) -> Iterator[Broker]:
    """A broker that may be killed."""
    broker = quick_broker(tmp_path / "broker", settings)
    yield broker
    broker.stop()


@pytest.fixture
def web(broker: Broker, lake: str, spark: SparkSession) -> DrivenStream:
    """A stream over a topic of one partition of that broker."""
    return stream_over(Cluster("main", broker.bootstrap_servers), TOPIC, lake, lambda: spark, partitions=1)


def log_of(broker: Broker) -> Path:
    """The file with the messages."""
    return next(broker.data.rglob(f"{TOPIC}-0/*.log"))


def cut(broker: Broker, web: DrivenStream, size: int) -> None:
    """Restart the broker with this much of its log, as after a crash that lost what was not on the disk."""
    log = log_of(broker)
    broker.kill()
    with log.open("r+b") as file:
        file.truncate(size)
    for index in (*log.parent.glob("*.index"), *log.parent.glob("*.timeindex")):
        index.unlink()
    for checkpoint in log.parent.parent.glob("*checkpoint*"):
        if "recovery" in checkpoint.name or "high" in checkpoint.name:
            checkpoint.unlink()
    broker.restart()
    web.publisher = Publisher(broker.bootstrap_servers)


def rows(uri: str) -> list[dict[str, Any]]:
    """The rows of a table, in the order of their offsets."""
    found: list[dict[str, Any]] = DeltaTable(uri).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: row["meta"]["kafka"]["offset"])


def test_rows_whose_messages_the_broker_lost_are_kept_beside_the_table(broker: Broker, web: DrivenStream) -> None:
    """Purpose: the rows are the only copies of their messages, and their offsets go to other messages.
    Procedure: drain ten messages, one of them bad and among those that the broker then loses; rewind to its end; six
    more messages come; drain.
    Pass: the rewind is refused until someone has decided about the dead letter; the rows of the lost messages are in
    ``<table>_removed``, byte by byte; the new messages are in the table, each once; the audit says so.
    """
    kept = list(web.produce(4))
    size = log_of(broker).stat().st_size
    web.produce(5, seed=1)
    web.produce(1, bad=1.0, seed=2)
    web.drain()
    before = rows(web.uri)
    cut(broker, web, size)

    with pytest.raises(BrokerEndBelowPosition, match=r"rewind --topic-partition truncated/0 --to 4.*_removed"):
        web.drain()
    with pytest.raises(NothingToResolve, match="1 open dead letters .* only copies"):
        web.resolve("rewind", topic_partition=ONLY, to=4)
    discard_letters(web.stream, lake=web.lake, session=web.session, decided_by="ann", because="cut off")
    decision = web.resolve("rewind", topic_partition=ONLY, to=4)
    new = list(web.produce(6, seed=3))
    web.drain()
    report = web.audit()

    assert (decision.past_position.row_count, decision.past_position.only_copies) == (5, 5)
    removed = rows(web.stream.removed_uri(web.lake))
    assert [{name: row[name] for name in before[0]} for row in removed] == before[4:]
    assert {row["removed_from_version"] for row in removed} == {decision.table_version}
    web.assert_each_offset_once([*kept, *new])
    assert report.complete, report.line()
    assert "moved 5 rows to the table `…_removed`" in report.line()


def test_a_log_that_was_cut_off_and_grew_past_the_position_is_told_by_the_last_message_read(
    broker: Broker, web: DrivenStream
) -> None:
    """Purpose: by its ends alone such a log looks as if new messages had come; those below the position would be lost.
    Procedure: drain ten messages; the broker loses six of them; eight others come; drain; read the backlog; compare
    with Kafka, and rewind to the first offset that differs; drain.
    Pass: refused until the decision, which is itself refused where it would skip new messages; the rows of the lost
    messages are kept beside the table, and every message that the broker still has is there once.
    """
    kept = list(web.produce(4))
    size = log_of(broker).stat().st_size
    web.produce(6, seed=1)
    web.drain()
    cut(broker, web, size)
    new = list(web.produce(8, seed=2))

    with pytest.raises(
        TopicTruncated, match=r"offset 9 of truncated/0 now has another .*\n.*\n.*--against-source .*rewind"
    ):
        web.drain()
    assert isinstance(read_backlog(web.stream, web.lake).refusal, TopicTruncated)
    differs = web.compare().changed_at[0].range.start
    with pytest.raises(NothingToResolve, match="offset 5 of truncated/0 holds another message than its row"):
        web.resolve("rewind", topic_partition=ONLY, to=differs + 2)
    web.resolve("rewind", topic_partition=ONLY, to=differs)
    web.drain()
    report = web.audit()

    assert differs == 4
    assert len(rows(web.stream.removed_uri(web.lake))) == 6
    web.assert_each_offset_once([*kept, *new])
    assert report.complete, report.line()


def test_rows_without_timestamps_are_kept_and_get_no_values_of_the_new_messages(
    broker: Broker, web: DrivenStream
) -> None:
    """Purpose: a table of kafka-delta-ingest may have no timestamps, and at an offset alone another message is found.
    Procedure: take over a table with four of ten messages and drain the others; the broker loses six; eight others
    come; replay all dates; rewind above the first lost offset, and to it; drain.
    Pass: the replay and the first rewind are refused and change nothing; the rows of the lost messages are kept beside
    the table; every message that the broker still has is there once.
    """
    web = replace(web, stream=replace(web.stream, app_id="kdi", columns={}))
    table = PredecessorTable(web.uri)
    table.create()
    kept = list(web.produce(4))
    table.ingest(1, kept)
    size = log_of(broker).stat().st_size
    web.produce(6, seed=1)
    web.drain()
    before = rows(web.uri)
    cut(broker, web, size)
    web.produce(8, seed=2)

    first, last = web.stream.date_window.first, web.stream.date_window.last(datetime.now(UTC))
    with pytest.raises(TopicTruncated, match="offset 9 of truncated/0 now has another"):
        replay_dates(web.stream, lake=web.lake, session=web.session, first=first, last=last)
    with pytest.raises(NothingToResolve, match="offset 4 of truncated/0 holds another message than its row"):
        web.resolve("rewind", topic_partition=ONLY, to=6)
    after_replay = rows(web.uri)
    decision = web.resolve("rewind", topic_partition=ONLY, to=4)
    web.drain()

    assert after_replay == before
    assert (decision.past_position.row_count, decision.past_position.only_copies) == (6, 6)
    removed = rows(web.stream.removed_uri(web.lake))
    assert [{name: row[name] for name in before[0]} for row in removed] == before[4:]
    assert [row["meta"]["kafka"]["offset"] for row in rows(web.uri)] == [*range(12)]
    assert web.audit().complete
