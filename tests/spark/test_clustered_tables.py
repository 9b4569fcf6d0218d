"""Why tables are partitioned by date and not clustered: what `streams.md` says of Delta's liquid clustering."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import ParseException

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.streams.drain.takeover import refuse_unsuitable
from kdi_assets.streams.rules.errors import SchemaDisagrees

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "id bigint, kafka struct<topic: string, partition: int, offset: bigint, timestamp: timestamp>, date date"


def created(spark: SparkSession, uri: str, how: str) -> str:
    """A table with these partitions or clusters, and two commits with rows of two dates each."""
    feed = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    spark.sql(f"CREATE TABLE delta.`{uri}` ({COLUMNS}) USING delta {how} {feed}")
    for _ in range(2):
        dates = "date_add(date'2026-01-01', cast(id % 2 AS int)) AS date"
        rows = spark.range(0, 100, 1, 1).selectExpr("id", dates)
        rows.write.format("delta").mode("append").save(uri)
    return uri


def rewritten_by_removing_a_date(spark: SparkSession, uri: str) -> int:
    """How many rows of other dates are written again."""
    spark.sql(f"DELETE FROM delta.`{uri}` WHERE date = date'2026-01-01'")
    metrics: dict[str, Any] = DeltaTable(uri).history(1)[0]["operationMetrics"]
    return int(metrics["numCopiedRows"])


def test_delta_has_no_table_with_partitions_and_clusters(spark: SparkSession, lake: str) -> None:
    with pytest.raises(ParseException, match="Clustering and partitioning cannot both be specified"):
        created(spark, f"{lake}/both", "PARTITIONED BY (date) CLUSTER BY (id)")


def test_to_remove_a_date_rewrites_other_dates_of_a_clustered_table_alone(spark: SparkSession, lake: str) -> None:
    partitioned = created(spark, f"{lake}/partitioned", "PARTITIONED BY (date)")
    clustered = created(spark, f"{lake}/clustered", "CLUSTER BY (date, id)")

    found = [rewritten_by_removing_a_date(spark, uri) for uri in (partitioned, clustered)]

    assert found == [0, 100]


def test_a_stream_refuses_a_clustered_table_before_anything_is_read(spark: SparkSession, lake: str) -> None:
    orders = Stream("t", "orders", "id bigint", "current_date()", Cluster("main", "nowhere:1"))
    log = TableLog.existing(created(spark, orders.table_uri(lake), "CLUSTER BY (date, id)"))

    with pytest.raises(SchemaDisagrees, match="the table is partitioned by nothing and not by date"):
        refuse_unsuitable(orders, lake, log, spark)
