"""Adopt: tables that others wrote go on where those ended."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from kdi_assets.drain.refusals import RowsWithoutPositions
from kdi_assets.drain.resolve import Decision, NothingToResolve, carry_out_decision, decide
from kdi_assets.ledger.commit import OvertakenCommit
from kdi_assets.stream import TopicPartition
from tests.conftest import DrivenFactory
from tests.driven import WEB_REQUESTS, DrivenStream
from tests.faults.topics import make_again

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def as_structured_streaming(web: DrivenStream, checkpoint: Path, *, starting: str = "earliest") -> None:
    """Bring what waits into the table by a query of Structured Streaming, in batches of a few messages."""
    read = web.session().readStream.format("kafka").option("subscribe", web.stream.topic)
    read = read.option("kafka.bootstrap.servers", web.stream.cluster.bootstrap_servers)
    messages = read.option("startingOffsets", starting).option("maxOffsetsPerTrigger", 10).load()
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
def test_a_table_of_structured_streaming_goes_on_behind_the_last_batch_that_landed(
    driven: DrivenFactory, tmp_path: Path
) -> None:
    """Purpose: a checkpoint is behind the table or ahead of it if its query was killed; the table itself knows.
    Procedure: a query brings 45 messages in batches of ten. Its checkpoint is as if it had been killed behind the last
    batch's rows, then as if the next batch had been planned; adopted; the query goes on, which overtakes the decision;
    adopted again; drained.
    Pass: every offset is there once.
    """
    web, checkpoint = driven(partitions=2), tmp_path / "checkpoint"
    tps = [TopicPartition(web.stream.topic, p) for p in range(2)]
    web.produce(45)
    as_structured_streaming(web, checkpoint)
    last = max(int(f.name) for f in (checkpoint / "offsets").iterdir() if f.name.isdecimal())
    with pytest.raises(RowsWithoutPositions, match="adopt"):
        web.drain()

    done = (checkpoint / "commits" / str(last)).rename(tmp_path / "done")
    killed = adopt(web, checkpoint)
    done.rename(checkpoint / "commits" / str(last))
    planned = checkpoint / "offsets" / str(last + 1)
    planned.write_text(f"v1\n{{}}\n{json.dumps({web.stream.topic: {'0': 99, '1': 99}})}")
    ahead = adopt(web, checkpoint)
    planned.unlink()
    early = adopt(web, checkpoint)
    web.produce(15, seed=1)
    as_structured_streaming(web, checkpoint)
    with pytest.raises(OvertakenCommit):
        carry_out_decision(web.session(), early, web.stream, web.lake)
    late = adopt(web, checkpoint)
    carry_out_decision(web.session(), late, web.stream, web.lake)
    produced = web.produce(20, bad=0.2, seed=2)
    web.drain()

    assert killed.after == ahead.after == early.after == {tps[0]: 23, tps[1]: 22}
    assert sum(late.after.values()) == 60
    assert f"behind batch {last} of query" in killed.reason
    web.assert_each_offset_once(produced)
    assert web.audit().complete
    with pytest.raises(NothingToResolve, match="the ledger knows the table"):
        adopt(web, checkpoint)


def test_a_checkpoint_that_does_not_fit_the_table_is_refused(driven: DrivenFactory, tmp_path: Path) -> None:
    """Procedure: of a query that ended: its offsets are another topic's, lack a topic partition, have one too many, lie
    behind the topic's end; another query's checkpoint with a batch open; then the topic is made anew and has as many
    messages as before, and more; then the table is restored."""
    web, checkpoint = driven(partitions=2), tmp_path / "checkpoint"
    topic = web.stream.topic
    web.produce(30)
    as_structured_streaming(web, checkpoint)
    last = max((f for f in (checkpoint / "offsets").iterdir() if f.name.isdecimal()), key=lambda f: int(f.name))
    form, batch, whole = last.read_text().splitlines()

    for offsets, said in (
        ({"orders": {"0": 1, "1": 1}}, f"read topic orders, not {topic}"),
        ({topic: {"0": 15}, "orders": {"0": 15}}, f"read topic orders, {topic}"),
        ({topic: {"0": 15}}, f"{topic}/1: the checkpoint has no offset of it"),
        ({topic: {"0": 15, "1": 15, "2": 0}}, f"{topic}/2: the broker has none of that number"),
        ({topic: {"0": 15, "1": 99}}, f"read {topic}/1 up to offset 99, and it ends at 15"),
    ):
        last.write_text("\n".join((form, batch, json.dumps(offsets))))
        with pytest.raises(NothingToResolve, match=said):
            adopt(web, checkpoint)
    last.write_text("\n".join((form, batch, whole)))
    query = (checkpoint / "metadata").read_text()
    (checkpoint / "metadata").write_text('{"id": "another"}')
    foreign = adopt(web, checkpoint)  # as of a `foreachBatch`: every batch is done
    (checkpoint / "commits" / last.name).unlink()
    with pytest.raises(NothingToResolve, match="neither the checkpoint nor the table says"):
        adopt(web, checkpoint)
    (checkpoint / "metadata").write_text(query)
    (checkpoint / "commits" / last.name).write_text("v1\n{}")
    anew = replace(web, publisher=make_again(web, partitions=2))
    anew.produce(40, seed=1)
    for path in (checkpoint, None):
        with pytest.raises(
            NothingToResolve, match=r"the topic was made again since.*\n.*\n.* another `table` in its document"
        ):
            adopt(web, path)
    with pytest.raises(NothingToResolve, match="no ledger that knows the old topic"):
        decide(web.stream, web.lake, "new-topic", session=web.session)
    DeltaTable(web.uri).restore(0)
    with pytest.raises(NothingToResolve, match=r"RESTORE\) put other rows"):
        adopt(web, checkpoint)

    assert set(foreign.after.values()) == {15}


def test_a_checkpoint_is_refused_where_rows_lie_behind_its_last_batch(driven: DrivenFactory, tmp_path: Path) -> None:
    """Procedure: a query brings 20 messages; another one, which begins there, ten more; the first query's checkpoint;
    positions behind the rows instead; drain."""
    web, first, second = driven(partitions=2), tmp_path / "first", tmp_path / "second"
    tps = [TopicPartition(web.stream.topic, p) for p in range(2)]
    web.produce(20)
    as_structured_streaming(web, first)
    web.produce(10, seed=1)
    as_structured_streaming(web, second, starting=json.dumps({web.stream.topic: {"0": 10, "1": 10}}))

    with pytest.raises(NothingToResolve, match=r"10 rows lie at or behind .*\n.*\n.*without --checkpoint"):
        adopt(web, first)
    decision = adopt(web, None)
    carry_out_decision(web.session(), decision, web.stream, web.lake)
    produced = web.produce(20, seed=2)
    web.drain()

    assert decision.after == dict.fromkeys(tps, 15)
    assert web.audit().complete
    web.assert_each_offset_once(produced)


def test_a_table_with_another_writers_positions_needs_no_decision(driven: DrivenFactory) -> None:
    before = driven(partitions=1)
    before.produce(15)
    before.drain()
    before.as_another_writer("kafka_delta_ingest", last=14)
    web = before.with_definition(app_id="kafka_delta_ingest")

    with pytest.raises(NothingToResolve, match="a drain takes them over"):
        decide(web.stream, web.lake, "adopt", session=web.session)


def adopt(web: DrivenStream, checkpoint: Path | None) -> Decision:
    """Decide by the checkpoint of the query, or without any."""
    return decide(web.stream, web.lake, "adopt", checkpoint=str(checkpoint or ""), session=web.session)
