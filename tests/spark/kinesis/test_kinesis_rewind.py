"""Positions of a Kinesis table are set back to edges of spans, and the records since are drained again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.stream import TopicPartition
from kdi_assets.messages.kinesis import capture, source
from kdi_assets.messages.kinesis.errors import ShardTrimmed, SpanDiffers
from kdi_assets.operate.erase.erase import erase
from kdi_assets.operate.erase.selection import EraseFilter
from kdi_assets.streams.resolve.errors import NothingToResolve
from kdi_assets.streams.resolve.resolve import Decision
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.kinesis.drains import EFO, HOUR, Crash, Put, crash_at
from tests.kinesis.kpl import UserRecord, aggregate_of
from tests.kinesis.wrong_readers import beginning_after, skipping
from tests.oracle import read_back

A, B, C = (TopicPartition("orders", number) for number in range(3))


def shown(orders: Put, only: TopicPartition | None = None, **target: Any) -> Decision:
    """What ``kdi resolve orders rewind`` would do."""
    return orders.decide("rewind", topic_partition=only, **target)


def rewind(orders: Put, only: TopicPartition | None = None, **target: Any) -> Decision:
    """Do it; no row is left at or after the new positions."""
    decision = orders.resolve("rewind", topic_partition=only, **target)
    assert all(offset < decision.after[tp] for tp, offset in numbers(orders).values())
    return decision


def numbers(orders: Put) -> dict[int, tuple[TopicPartition, int]]:
    """Shard and number of the record of each row, by its id."""
    at = {row["id"]: row["kinesis"] for row in read_back(orders.stream, orders.lake).rows}
    return {id_: (TopicPartition("orders", k["partition"]), k["offset"]) for id_, k in at.items()}


def positions(orders: Put, version: int = -1) -> dict[TopicPartition, int]:
    """After the ledger entry with this index."""
    return dict(orders.entries()[version].positions)


def restore(orders: Put, version: int) -> None:
    orders.spark.sql(f"RESTORE TABLE delta.`{orders.stream.table_uri(orders.lake)}` TO VERSION AS OF {version}")


def assert_whole(orders: Put) -> None:
    """Every record that was put has one row, all offsets are accounted for, and Kinesis holds the same records."""
    assert orders.drained() == orders.ids
    assert orders.audit().complete
    assert orders.compare().agrees


def to_an_edge(orders: Put) -> Decision:
    return rewind(orders, A, to=positions(orders, -2)[A])


def inside_a_span(orders: Put) -> Decision:
    return rewind(orders, A, to=positions(orders, -2)[A] + 1)


def to_a_time(orders: Put) -> Decision:
    edges = positions(orders, -2)
    at = {row["kinesis"]["timestamp"] for row in read_back(orders.stream, orders.lake).rows if later(row, edges)}
    return rewind(orders, to_timestamp=min(at))


def to_a_version(orders: Put) -> Decision:
    return rewind(orders, to_version=orders.entries()[-2].version)


def to_the_end_of_the_rows(orders: Put) -> Decision:
    edges = positions(orders, -2)
    past = " OR ".join(f"(kinesis.partition = {tp.partition} AND kinesis.offset >= {at})" for tp, at in edges.items())
    orders.spark.sql(f"DELETE FROM delta.`{orders.stream.table_uri(orders.lake)}` WHERE {past}")
    return rewind(orders)


def later(row: Mapping[str, Any], edges: Mapping[TopicPartition, int]) -> bool:
    at = row["kinesis"]
    return bool(at["offset"] >= edges[TopicPartition("orders", at["partition"])])


def test_a_rewind_goes_to_the_edge_at_or_before_its_target(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: two drains of two shards; then, to each kind of target: more records, drain, set back to before that
    drain, drain; each goes to an edge above that of the one before. At last below all of them, to version 1.
    """
    orders = Put(spark, lake, server, shards=2)
    for count in (40, 20):
        orders.put(count)
        orders.drain()
    targets = {to_an_edge: [A], inside_a_span: [A], to_a_time: [A, B], to_a_version: [A, B]}
    for target, shards in {**targets, to_the_end_of_the_rows: [A, B]}.items():
        orders.put(30)
        orders.drain()
        edges, numbered = positions(orders, -2), numbers(orders)

        decision = target(orders)

        assert positions(orders) == {**decision.before, **{tp: edges[tp] for tp in shards}}, target
        assert orders.drained() == [i for i in orders.ids if numbered[i][1] < positions(orders)[numbered[i][0]]]
        inside = "is inside the records that a drain read" in decision.reason
        assert inside == (target is inside_a_span)
        orders.drain()
        assert numbers(orders) == numbered
    version, numbered = orders.entries()[1].version, numbers(orders)

    rewind(orders, to_version=version)
    assert orders.drained() == orders.ids[:40]
    orders.drain()

    assert numbers(orders) == numbered
    assert_whole(orders)


def test_shards_that_continue_one_that_is_set_back_are_read_after_it_again(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: two drains, a split, two drains; set the parent back to a record of its second span. The drain after
    it ends before its commit; once more; then a RESTORE to before the decision, and to the decision.
    """
    orders = Put(spark, lake, server, shards=1)
    for count in (20, 15):
        orders.put(count)
        orders.drain()
    orders.split()
    for count in (30, 10):
        orders.put(count)
        orders.drain()
    before, numbered = orders.entries()[-1].version, numbers(orders)
    assert positions(orders)[A] == 35 and min(positions(orders).values()) > 0

    decision = rewind(orders, A, to=30)

    assert positions(orders) == {A: 20, B: 0, C: 0}
    assert f"{B} begins again, because it continues {A}" in decision.reason
    assert not any(mark.ended for mark in orders.entries()[-1].bookmarks.values())
    decided = orders.entries()[-1].version
    with pytest.raises(Crash):
        orders.drain(crash_at("accounted for"))
    orders.put(10)
    orders.drain()
    order = [set(entry.spans) for entry in orders.entries() if entry.version > decided]
    assert order == [{A}, {B, C}]
    assert {id_: at for id_, at in numbers(orders).items() if id_ < 75} == numbered
    assert_whole(orders)

    restore(orders, before)
    assert orders.drained() == orders.ids[:75]
    orders.drain()
    assert_whole(orders)
    restore(orders, decided)
    assert orders.drained() == orders.ids[:20]
    orders.drain()
    assert_whole(orders)


def test_a_rewind_whose_bookmark_aged_out_is_no_loss_but_records_that_age_out_after_it_are(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: three drains, ten hours apart, of which retention passes the first; back to the second; drain. Again,
    and retention passes the second before a drain.
    """
    server.behaviour.trimmed_position = "empty"
    orders = Put(spark, lake, server, shards=1)
    for count in (20, 15, 10):
        orders.put(count)
        orders.drain()
        server.advance(10 * HOUR)
    with pytest.raises(NothingToResolve, match="only from offset 20 on") as refused:
        shown(orders, A, to=5)
    assert "rewind --topic-partition orders/0 --to 20" in refused.value.then

    rewind(orders, A, to=20)
    orders.drain()
    assert_whole(orders)
    rewind(orders, A, to=20)
    server.advance(5 * HOUR)

    with pytest.raises(ShardTrimmed):
        orders.drain()


def test_the_first_record_of_a_shard_that_ages_out_after_a_rewind_is_a_loss(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: records that are ten hours old before the first drain; back to the first of them."""
    orders = Put(spark, lake, server, shards=1)
    orders.put(20)
    server.advance(10 * HOUR)
    orders.drain()
    rewind(orders, to_version=orders.entries()[0].version)
    server.advance(15 * HOUR)

    with pytest.raises(ShardTrimmed):
        orders.drain()


def test_dead_letters_and_erased_records_at_and_after_a_new_position(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: three drains with dead letters by the document; erase a record of the second; back to the third."""
    orders = Put(spark, lake, server, shards=1, expectations={"odd": {"sql": "id % 10 > 0", "then": "dead_letter"}})
    for count in (20, 15, 10):
        orders.put(count)
        orders.drain()
    erase(orders.stream, lake=lake, session=lambda: spark, chosen=EraseFilter("id = 21"), because="asked to")

    with pytest.raises(NothingToResolve, match="offset 21 of orders/0 was erased"):
        shown(orders, A, to=25)
    decision = rewind(orders, A, to=35)

    assert (decision.past_position.row_count, decision.past_position.letters) == (9, 1)
    assert decision.past_position.only_copies == 0
    orders.drain()
    assert orders.drained() == [i for i in orders.ids if i % 10 and i != 21]
    assert orders.audit().complete


def test_a_rewind_into_an_aggregate_goes_to_the_edge_before_it(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: a drain of three records, one of an aggregate of seven and two records, and one of one record."""
    orders = Put(spark, lake, server, shards=1)
    orders.put(3)
    orders.drain()
    users = [UserRecord(f"key {i}", json.dumps({"id": i}).encode()) for i in range(3, 10)]
    orders.client.put_record(StreamName="orders", Data=aggregate_of(*users), PartitionKey="a")
    orders.ids += range(3, 10)
    for count in (2, 1):
        orders.put(count)
        orders.drain()
    numbered = numbers(orders)

    rewind(orders, A, to=6)

    assert positions(orders) == {A: 3}
    orders.drain()
    assert numbers(orders) == numbered
    assert_whole(orders)


def test_a_rewind_of_a_table_that_is_read_by_efo(spark: SparkSession, lake: str, server: KinesisServer) -> None:
    """Procedure: two drains ten hours apart, a rewind to the second after the bookmark before it aged out; drain."""
    orders = Put(spark, lake, server, shards=1, consumer=EFO)
    for count in (20, 15):
        orders.put(count)
        orders.drain()
        server.advance(13 * HOUR)

    rewind(orders, A, to=30)
    orders.put(5)
    orders.drain()

    assert_whole(orders)


def test_rows_of_another_stream_that_had_the_name_stay(spark: SparkSession, lake: str, server: KinesisServer) -> None:
    """Procedure: a stream is drained, made again, and drained with fewer records; back to the first of these."""
    orders = Put(spark, lake, server, shards=1)
    orders.put(20)
    orders.drain()
    orders.make_again(shards=1)
    orders.resolve("new-topic")
    orders.put(10)
    orders.drain()

    decision = orders.resolve("rewind", topic_partition=A, to=4)

    assert (decision.after, decision.past_position.row_count) == ({A: 0}, 10)
    assert orders.drained() == orders.ids[:20]
    orders.drain()
    assert orders.drained() == orders.ids
    assert orders.audit().complete


def test_other_records_than_the_drained_ones_are_refused_and_one_that_was_passed_over_is_drained(
    spark: SparkSession, lake: str, server: KinesisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Procedure: a drain's reader skips a record in the midst of others; another one begins after the first record, and
    nobody looks at the seams.
    """
    orders = Put(spark, lake, server, shards=1)
    orders.put(10)
    orders.drain()
    with monkeypatch.context() as mutated:
        mutated.setattr(source, "_refuse_open_seams", lambda *seen: None)
        mutated.setattr(capture, "read_shards", skipping(orders.put(10)[4]))
        orders.drain()
        mutated.setattr(capture, "read_shards", beginning_after(A, orders.put(10)[0]))
        orders.drain()
    before = orders.drained()
    assert before == [i for i in orders.ids if i not in (14, 20)]

    with pytest.raises(SpanDiffers):
        shown(orders, A, to=10)
    rewind(orders, A, to=19)
    orders.drain()

    assert orders.drained() == [i for i in orders.ids if i != 14]
