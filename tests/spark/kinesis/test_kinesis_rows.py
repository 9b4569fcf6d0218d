"""Rows and dead letters of a stream of Kinesis: where their records are, and what else happens to them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kdi_assets.documents.model.message_rules import Contract
from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.operate.erase.erase import erase
from kdi_assets.operate.erase.selection import EraseFilter
from kdi_assets.operate.monitoring.checks.all_checks import run_check
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.operate.upkeep.expiry import expire
from kdi_assets.operate.upkeep.unconsumed import Followers
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.replay.replay_dates import replay_dates
from kdi_assets.streams.replay.replay_letters import replay_letters
from kdi_assets.streams.resolve.errors import NothingToResolve
from kdi_assets.streams.resolve.resolve import decide
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.kinesis.drains import Put, described
from tests.oracle import read_back
from tests.readers import assert_others_read_tables_of, by_duckdb

ROW = (
    "struct<stream:string,shard_id:string,sequence_number:string,subsequence_number:int,partition:int,offset:bigint,"
    "timestamp:timestamp>"
)


def records_of(client: Any, shards: int) -> list[dict[str, Any]]:
    """Every record that shards hold, as boto3 reads them, with the coordinates that its row should have."""
    found: list[dict[str, Any]] = []
    for number in range(shards):
        start = {"StreamName": "orders", "ShardId": id_of(number), "ShardIteratorType": "TRIM_HORIZON"}
        iterator = client.get_shard_iterator(**start)["ShardIterator"]
        for offset, record in enumerate(client.get_records(ShardIterator=iterator)["Records"]):
            place = {"stream": "orders", "shard_id": id_of(number), "sequence_number": record["SequenceNumber"]}
            place |= {"subsequence_number": None, "partition": number, "offset": offset}
            found.append({**record, "place": {**place, "timestamp": record["ApproximateArrivalTimestamp"]}})
    return found


def test_a_row_says_where_its_record_is_to_every_reader(spark: SparkSession, lake: str, server: KinesisServer) -> None:
    """Purpose: the struct of a row leads to its record on the stream, and expressions know the partition key.
    Procedure: put records into 2 shards; drain two tables of the stream, one of whose messages become two rows each.
    Pass: Spark, delta-rs and DuckDB find in each row what boto3 finds on the stream; no coordinates are there twice.
    """
    columns = {"key": "kinesis.partition_key", "place.id": "concat(kinesis.shard_id, '/', kinesis.sequence_number)"}
    orders = Put(spark, lake, server, shards=2, columns=columns)
    orders.put(100)
    orders.drain()
    server.advance(2)  # the drain's calls count among the five a second
    uri = orders.stream.table_uri(lake)
    wanted = [
        {"id": json.loads(r["Data"])["id"], "key": r["PartitionKey"], "kinesis": r["place"]}
        for r in records_of(orders.client, 2)
    ]
    wanted = sorted(wanted, key=lambda row: row["id"])

    by_delta_rs = DeltaTable(uri).to_pyarrow_table(columns=["id", "key", "kinesis"]).sort_by("id")
    in_duckdb = by_duckdb(uri, "id, key, kinesis")
    by_spark = spark.read.format("delta").load(uri).orderBy("id").select("id", "key", "kinesis")

    assert len(wanted) == len(orders.ids)
    assert by_delta_rs.to_pylist() == wanted
    assert [(r["kinesis"]["offset"], r["kinesis"]["sequence_number"]) for r in in_duckdb.to_pylist()] == [
        (row["kinesis"]["offset"], row["kinesis"]["sequence_number"]) for row in wanted
    ]
    assert by_spark.toArrow().cast(by_delta_rs.schema).equals(by_delta_rs)
    assert by_spark.schema["kinesis"].dataType.simpleString() == ROW
    assert_others_read_tables_of(Path(lake))
    checked = run_check("no_duplicate_coordinates", CheckSubject(orders.stream, lake, lambda: spark))
    assert (checked.passed, checked.numbers["rows_looked_at"]) == (True, len(orders.ids))

    twice = described(Path(lake).parent / "twice", server, {"table": "twice", "explode": {"n": "array(1, 2)"}})
    drain(twice, lake=lake, session=lambda: spark)
    rows = DeltaTable(twice.table_uri(lake)).to_pyarrow_table().to_pylist()
    assert sorted((r["id"], r["kinesis"]["index"], r["kinesis"]["count"]) for r in rows) == [
        (i, index, 2) for i in orders.ids for index in (0, 1)
    ]


def test_a_dead_letter_leads_to_its_record_and_can_be_replayed(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: put text where the schema wants a number; replay it by a contract that leaves such values out."""
    orders = Put(spark, lake, server, shards=2, columns={"key": "kinesis.partition_key"})
    orders.put(5)
    bad = {"Data": b'{"id": "six"}', "PartitionKey": "schl\u00fcssel"}
    (put,) = orders.client.put_records(StreamName="orders", Records=[bad])["Records"]
    server.advance(1)
    orders.drain()

    (letter,) = read_back(orders.stream, lake).dead_letters
    server.advance(1)  # five of these calls a second and shard
    at = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": letter["sequence_number"]}
    shard = id_of(letter["partition"])
    iterator = orders.client.get_shard_iterator(StreamName=letter["topic"], ShardId=shard, **at)["ShardIterator"]
    (record,) = orders.client.get_records(ShardIterator=iterator, Limit=1)["Records"]
    assert (record["Data"], record["PartitionKey"].encode()) == (letter["value"], letter["key"])
    assert (letter["sequence_number"], shard) == (put["SequenceNumber"], put["ShardId"])
    assert (letter["subsequence_number"], letter["timestamp"]) == (None, record["ApproximateArrivalTimestamp"])

    orders.stream = replace(orders.stream, contract=Contract(types="discard_value"))
    replay_letters(orders.stream, lake=lake, session=lambda: spark)

    (row,) = (r for r in read_back(orders.stream, lake).rows if r["id"] is None)
    place = {"stream": "orders", "shard_id": shard, "sequence_number": put["SequenceNumber"]}
    assert place.items() <= row["kinesis"].items()
    assert row["key"] == bad["PartitionKey"]
    assert orders.audit().complete


@pytest.mark.scenario("RESTORE and time travel")
def test_after_a_restore_the_records_since_that_version_are_drained_again(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=2)
    orders.put(30)
    orders.drain()
    orders.put(40)
    orders.drain()
    version = orders.entries()[-2].version
    spark.sql(f"RESTORE TABLE delta.`{orders.stream.table_uri(lake)}` TO VERSION AS OF {version}")
    assert orders.drained() == orders.ids[:30]

    orders.drain()

    orders.assert_each_record_once()


def test_a_decision_moves_no_position_that_is_only_a_number(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=1)
    orders.put(30)
    orders.drain()
    shard = TopicPartition("orders", 0)

    for action, numbers in (("accept-loss", {"until": 40}), ("adopt", {})):
        with pytest.raises(NothingToResolve):
            decide(orders.stream, lake, action, topic_partition=shard, session=lambda: spark, **numbers)  # type: ignore[arg-type]

    orders.put(5)
    orders.drain()
    assert orders.drained() == orders.ids


def test_what_was_drained_is_replayed_from_dead_letters_erased_and_checked_as_of_a_topic(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Purpose: whatever changes rows after a drain works as of a topic, and the next drain goes on.
    Procedure: drain records of which one is a dead letter by the document; replay it by another document; erase two
    records, replay dates; put more and drain; run every check.
    Pass: the dead letter is a row once, the erased records are gone, also after the replay of dates; all else is
    there, and only the share of dead letters is over its limit.
    """
    small = {"small": {"sql": "id < 29", "then": "dead_letter"}}
    orders = Put(spark, lake, server, shards=2, expectations=small)
    orders.put(30)
    orders.drain()
    assert orders.drained() == orders.ids[:29]

    orders.stream = replace(orders.stream, expectations={})
    replay_letters(orders.stream, lake=lake, session=lambda: spark)
    assert orders.drained() == orders.ids
    erase(orders.stream, lake=lake, session=lambda: spark, chosen=EraseFilter("id < 2"), because="asked to")
    replay_dates(orders.stream, lake=lake, session=lambda: spark, first=date(2020, 1, 1), last=date(2030, 1, 1))
    orders.put(10)
    assert orders.drain() == 1

    assert orders.drained() == orders.ids[2:]
    assert orders.audit().complete
    results = {
        name: run_check(name, CheckSubject(orders.stream, lake, lambda: spark)) for name in orders.stream.check_names
    }
    assert {name for name, result in results.items() if result.level != "passed"} == {"dead_letter_rate"}


def test_records_that_are_kept_no_longer_leave_as_messages_of_a_topic_do(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    orders = Put(spark, lake, server, shards=2)
    orders.put(20)
    orders.drain()
    orders.stream = replace(orders.stream, keep_days=1)
    nobody, in_two_days = Followers((), (), Path()), datetime.now(UTC) + timedelta(days=2)

    done = expire(orders.stream, lake, nobody, session=lambda: spark, now=in_two_days)
    orders.put(10)
    drains = orders.drain()
    audited = orders.audit()

    assert done is not None and (done.rows, drains) == (20, 1)
    assert orders.drained() == orders.ids[20:], "the positions and their places in the shards stay"
    assert (audited.complete, audited.rows, audited.kept_no_longer) == (True, 10, 20)
