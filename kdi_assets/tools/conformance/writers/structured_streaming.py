"""A plain Structured Streaming job from Kafka to Delta: reads what the topic holds, appends it, ends.

It is written as Spark's and Delta's guides show it, with the default of every option that they leave alone. Nothing of
KDI Assets decides what it reads or writes; from it come only the JVM and its class path.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kdi_assets.runtime.spark_config import START_CONFIG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id bigint, name string, amount double, at string"
FASTER_START = {
    # A few hundred messages: compiling the plans would take longer than running them. The results are the same.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def ingest(
    spark: SparkSession, *, kafka: str, topic: str, table: str, checkpoint: str, fail_on_data_loss: bool
) -> None:
    """Append what waits in the topic to the table, partitioned by date."""
    from pyspark.sql import functions as F

    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", kafka)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("failOnDataLoss", fail_on_data_loss)
        .load()
    )
    rows = messages.select(
        F.from_json(F.col("value").cast("string"), SCHEMA).alias("record"),
        F.struct("topic", "partition", "offset", "timestamp").alias("kafka"),
    ).select("record.*", "kafka", F.to_date(F.substring("record.at", 1, 10)).alias("date"))
    query = (
        rows.writeStream.format("delta")
        .outputMode("append")
        .partitionBy("date")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(table)
    )
    query.awaitTermination()


def main(kafka: str, topic: str, table: str, checkpoint: str) -> None:
    """Run it in a JVM of its own, which ends with this process."""
    from pyspark.errors import StreamingQueryException

    from kdi_assets.runtime.spark_jvm import start_spark, stop_spark
    from kdi_assets.settings import Settings

    settings = Settings(Settings.from_environment().home, str(Path(table).parent), spark_master="local[2]")
    spark = start_spark(settings, config={**START_CONFIG, **FASTER_START}, app_name="structured streaming")
    try:
        accepted = Path(f"{checkpoint}.loss-accepted").exists()
        ingest(spark, kafka=kafka, topic=topic, table=table, checkpoint=checkpoint, fail_on_data_loss=not accepted)
    except StreamingQueryException as failed:
        sys.exit(f"the query failed:\n{failed}")  # while its JVM still runs, which has the text
    finally:
        stop_spark(spark)


if __name__ == "__main__":
    main(*sys.argv[1:])
