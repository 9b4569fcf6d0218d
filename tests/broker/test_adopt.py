"""Adopt: tables that others wrote go on where those ended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdi_assets.drain.refusals import RowsWithoutPositions
from kdi_assets.drain.resolve import Decision, NothingToResolve, carry_out_decision, decide
from kdi_assets.ledger.commit import OvertakenCommit
from tests.conftest import DrivenFactory
from tests.driven import WEB_REQUESTS, DrivenStream
from tests.faults.topics import make_again

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def as_structured_streaming(web: DrivenStream, checkpoint: Path) -> None:
    """Bring what waits into the table by a query of Structured Streaming, in batches of a few messages."""
    read = web.session().readStream.format("kafka").option("subscribe", web.stream.topic)
    read = read.option("kafka.bootstrap.servers", web.stream.cluster.bootstrap_servers)
    messages = read.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 10).load()
    write = rows(messages).writeStream.format("delta").partitionBy("date").trigger(availableNow=True)
    write.option("checkpointLocation", str(checkpoint)).start(web.uri).awaitTermination()


def rows(messages: DataFrame) -> DataFrame:
    """What the stream makes of web requests."""
    parsed = messages.selectExpr(f"from_json(CAST(value AS STRING), '{WEB_REQUESTS}') AS r", "*")
    return parsed.selectExpr(
        "named_struct('producer', r.meta.producer, 'kafka', struct(topic, partition, offset, timestamp)) AS meta",
        *(f"r.{column}" for column in ("method", "session_id", "status", "url", "uuid")),
        "parse_url(r.url, 'HOST') AS host",
        "to_date(substr(r.meta.producer.timestamp, 1, 10)) AS date",
    )


@pytest.mark.core
def test_a_table_of_structured_streaming_goes_on_behind_its_rows(driven: DrivenFactory, tmp_path: Path) -> None:
    """Procedure: a query brings 30 messages; adopted; the query goes on, which overtakes the decision; adopted again;
    drained.
    Pass: every offset is there once.
    """
    web, checkpoint = driven(partitions=2), tmp_path / "checkpoint"
    web.produce(30)
    as_structured_streaming(web, checkpoint)
    with pytest.raises(RowsWithoutPositions, match="adopt"):
        web.drain()

    early = adopt(web)
    web.produce(15, seed=1)
    as_structured_streaming(web, checkpoint)
    with pytest.raises(OvertakenCommit):
        carry_out_decision(web.session(), early, web.stream, web.lake)
    late = adopt(web)
    carry_out_decision(web.session(), late, web.stream, web.lake)
    produced = web.produce(20, bad=0.2, seed=2)
    web.drain()

    assert (sum(early.after.values()), sum(late.after.values())) == (30, 45)
    web.assert_each_offset_once(produced)
    assert web.audit().complete
    with pytest.raises(NothingToResolve, match="the ledger knows the table"):
        adopt(web)


def test_rows_of_a_topic_that_was_made_again_are_refused(driven: DrivenFactory, tmp_path: Path) -> None:
    """Procedure: a query brings 30 messages; the topic is made again, and has fewer messages, then more."""
    web = driven(partitions=2)
    web.produce(30)
    as_structured_streaming(web, tmp_path / "checkpoint")
    again = replace(web, publisher=make_again(web, partitions=2))

    for count, said in ((10, "row of offset 14, and .* ends at 5"), (30, "row at offset 14 of .* the message is not")):
        again.produce(count, seed=count)
        with pytest.raises(NothingToResolve, match=rf"{said}.*\n.*\n.* another `table` in its document"):
            adopt(web)
        with pytest.raises(NothingToResolve, match=said):
            decide(web.stream, web.lake, "rewind", session=web.session)
    with pytest.raises(NothingToResolve, match="no ledger that knows the old topic"):
        decide(web.stream, web.lake, "new-topic", session=web.session)


def test_a_table_with_another_writers_positions_needs_no_decision(driven: DrivenFactory) -> None:
    before = driven(partitions=1)
    before.produce(15)
    before.drain()
    before.as_another_writer("kafka_delta_ingest", last=14)
    web = before.with_definition(app_id="kafka_delta_ingest")

    with pytest.raises(NothingToResolve, match="a drain takes them over"):
        decide(web.stream, web.lake, "adopt", session=web.session)


def adopt(web: DrivenStream) -> Decision:
    """Decide that the table is the stream's."""
    return decide(web.stream, web.lake, "adopt", session=web.session)
