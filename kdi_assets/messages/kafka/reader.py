"""Exact ranges of a topic as a Spark DataFrame; the only module that uses the internals of Spark's Kafka source.

Spark may change them without notice. ``tests/spark/test_internals.py`` asks a session for every name that is used here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kdi_assets.documents.model.stream import Cluster, OffsetRange
from kdi_assets.messages.kafka.security import java_properties
from kdi_assets.messages.source import OFFSETS_PER_TASK
from kdi_assets.runtime.spark_internals import (
    frame_of_internal_rows,
    jvm_context,
    jvm_view,
    scala_map,
    scala_option,
    scala_seq,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ANSWER_SECONDS = 20
"""How long Spark's clients wait for an answer without messages; a broker hands over its leaders in less."""
MESSAGE_SECONDS = 60
"""How long a task waits for the next message of its range; a broker restarts in less."""


def read_ranges(spark: SparkSession, cluster: Cluster, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Read exactly the messages in ``ranges``; Spark looks up no offsets.

    Args:
        ranges: At least one, none of them empty.

    Returns:
        ``key: binary, value: binary, topic: string, partition: int, offset: bigint, timestamp: timestamp,
        timestampType: int, headers: array<struct<key: string, value: binary>>``, one row per visible message.

    Source: Spark 4.2, ``KafkaRelation``. It asks the brokers for offsets and converts each message into a Scala row and
    back; this function uses the classes below it directly.
    """
    jvm = jvm_view(spark)
    kafka, none = jvm.org.apache.spark.sql.kafka010, scala_option(spark)
    topic_partition = jvm.org.apache.kafka.common.TopicPartition
    # A new group for each read: executors cache fetched messages by group and offset, and a recreated or truncated
    # topic has other messages at the same offsets.
    properties = scala_map(spark, _with_open_key(jvm, java_client_config(cluster)))
    executors = kafka.KafkaSourceProvider.kafkaParamsForExecutors(properties, f"kdi-{uuid4()}")
    tasks = -(-sum(r.offset_count for r in ranges) // OFFSETS_PER_TASK)
    at_once = min(tasks, spark.sparkContext.defaultParallelism)
    parts = [
        kafka.KafkaOffsetRange(
            topic_partition(part.topic_partition.topic, part.topic_partition.partition), part.start, part.end, none
        )
        for r in ranges
        for part in _parts(r, ranges, at_once)
    ]
    source = kafka.KafkaSourceRDD(jvm_context(spark), executors, scala_seq(spark, parts), MESSAGE_SECONDS * 1000, True)
    to_row = kafka.KafkaRecordToRowConverter().toInternalRowWithHeaders()
    row = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")
    schema = kafka.KafkaRecordToRowConverter.kafkaSchema(True)
    rows = source.map(to_row, jvm.scala.reflect.ClassTag.apply(row))
    messages = frame_of_internal_rows(spark, rows, schema)
    # Fewer tasks if many topic partitions have few messages: every task writes a file for every date.
    return messages.coalesce(tasks) if tasks < len(parts) else messages


def _parts(r: OffsetRange, ranges: Sequence[OffsetRange], tasks: int) -> list[OffsetRange]:
    """Split a range into its share of the tasks, so that a few large ranges use all cores."""
    share = max(1, round(tasks * r.offset_count / sum(every.offset_count for every in ranges)))
    edges = [r.start + r.offset_count * n // share for n in range(share + 1)]
    return [OffsetRange(r.topic_partition, start, end) for start, end in pairwise(edges)]


def _with_open_key(jvm: Any, config: dict[str, str]) -> dict[str, str]:
    """The same without the key's password: not every Java lets Kafka's client open the key."""
    if "ssl.keystore.key" not in config or "ssl.key.password" not in config:
        return config
    password = config.pop("ssl.key.password")
    return config | {"ssl.keystore.key": jvm.kdi.kafka.ClientKey.opened(config["ssl.keystore.key"], password)}


def java_client_config(cluster: Cluster) -> dict[str, str]:
    """The Java client's form of the cluster's connection and properties.

    Raises:
        EnvironmentVariableMissing, SecretUnreadable, SecretUnanswered, AwsCredentialsMissing: A value cannot be had.
        KeyNotPkcs8: The Java client cannot read the key.
    """
    config = {
        # All messages of a range exist already. Spark asks for a partition's bounds after every fetch, on the same
        # connection where the next fetch waits for new messages: by default 0.5 s for each topic partition and read.
        "fetch.max.wait.ms": "10",
        # Fewer and larger fetches, by default of a megabyte for each topic partition. Fewer polls, by default of 500
        # messages: after each, Spark waits for two answers about the bounds. A poll has no more than one fetch,
        # whose messages may be compressed.
        "max.partition.fetch.bytes": str(4 << 20),
        "max.poll.records": "5000",
        # A read opens a client for each topic partition, which lives for moments: nobody reads its figures as beans,
        # and to register them took an eighth of the CPU of a client that reads one batch.
        "auto.include.jmx.reporter": "false",
        "request.timeout.ms": str(ANSWER_SECONDS * 1000),
        **java_properties(cluster),
        "bootstrap.servers": cluster.bootstrap_servers,
        "isolation.level": "read_committed",
    }
    config.pop("group.id", None)  # each read has its own
    # The Java client refuses an API timeout that is shorter than its request timeout.
    config["default.api.timeout.ms"] = str(max(ANSWER_SECONDS * 1000, int(config["request.timeout.ms"])))
    return config
