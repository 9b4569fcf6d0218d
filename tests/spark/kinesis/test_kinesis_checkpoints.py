"""A table that takes over a stream of Kinesis from another reader, at its checkpoints."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable
from pyspark.sql import SparkSession

from kdi_assets.messages.kinesis.shards import id_of
from kdi_assets.tools.local.kinesis.server import KinesisServer
from tests.kinesis.drains import Put, described


def test_two_readers_share_a_stream_at_a_checkpoint_without_a_hole_or_a_row_twice(
    spark: SparkSession, lake: str, server: KinesisServer
) -> None:
    """Procedure: one table reads two shards, of which one is split; another table begins at what it read last, after
    the shards were split once more and records came; then it is audited against the stream, also without its start.
    Pass: the second table has what the first has not, and no record of the first.
    """
    orders = Put(spark, lake, server, shards=2)
    orders.put(60)
    orders.split(at=1 << 126)
    orders.put(40)
    orders.drain()
    first, before = orders.stream, list(orders.ids)
    marks = orders.entries()[-1].bookmarks
    checkpoints = {id_of(tp.partition): "shard_end" if m.ended else m.sequence for tp, m in marks.items()}
    orders.put(50)
    orders.client.split_shard(StreamName="orders", ShardToSplit=id_of(1), NewStartingHashKey=str(3 << 126))
    server.advance(60)
    orders.put(70)

    second = {"table": "bronze/taken", "app_id": "taken", "start": checkpoints}
    orders.stream = described(Path(lake).parent / "second", server, second)
    orders.drain()
    orders.put(10)
    orders.drain()

    assert "shard_end" in checkpoints.values()
    assert orders.drained() == orders.ids[len(before) :]
    assert orders.audit().complete
    compared = orders.compare()
    assert (compared.agreed, compared.agrees) == (130, True), compared

    # The commit that says which shards the other reader had ended is lost with log and archive.
    taken = Path(orders.stream.table_uri(lake))
    DeltaTable(taken).create_checkpoint()
    (taken / "_delta_log" / f"{0:020}.json").unlink()
    compared = orders.compare()
    assert (compared.agreed, compared.agrees) == (130, True), compared

    orders.stream = first
    assert orders.drained() == before
