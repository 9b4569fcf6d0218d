"""Exact ranges of a topic as a Spark DataFrame."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kdi_assets.stream import KafkaCluster, OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OFFSETS_PER_TASK = 100_000
"""A task below this spends more on its start than on reading; above it, another core helps."""
ANSWER_SECONDS = 20
"""How long Spark's clients wait for an answer that is no message; more than a broker takes to hand over its leaders."""
MESSAGE_SECONDS = 60
"""How long a task waits for the next message of its range; more than a broker takes to restart."""

_JAAS_MODULE = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def read_ranges(
    spark: SparkSession, cluster: KafkaCluster, ranges: Sequence[OffsetRange], *, headers: bool = True
) -> DataFrame:
    """Read exactly the messages in ``ranges``; both ends are pinned, nothing is looked up later.

    Args:
        ranges: Of one topic, none empty, at least one; each topic partition once.
        headers: Whether the ``headers`` column is there; it costs time where nobody reads it.

    Returns:
        ``key: binary, value: binary, topic: string, partition: int, offset: bigint, timestamp: timestamp,
        timestampType: int[, headers: array<struct<key: string, value: binary>>]``, one row per visible message.

    Source: Spark's Kafka integration guide; ``assign`` because ``subscribe`` fails when a topic partition appears
    between planning and reading, and an end of "latest" would be bound on the executors, where nobody learns it.
    """
    topic = ranges[0].topic_partition.topic
    assigned = {topic: [r.topic_partition.partition for r in ranges]}
    wanted = -(-sum(r.offset_count for r in ranges) // OFFSETS_PER_TASK)
    # More tasks than topic partitions where few of them hold much, so that no core waits.
    tasks = max(len(ranges), min(wanted, spark.sparkContext.defaultParallelism))
    reader = (
        spark.read.format("kafka")
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", _offsets(topic, {r.topic_partition.partition: r.start for r in ranges}))
        .option("endingOffsets", _offsets(topic, {r.topic_partition.partition: r.end for r in ranges}))
        .option("failOnDataLoss", "true")
        # Each retry may wait for ANSWER_SECONDS: of a broker that stays away one should hear within a minute or so.
        .option("fetchOffset.numRetries", "3")
        .option("fetchOffset.retryIntervalMs", "1000")
        .option("kafkaConsumer.pollTimeoutMs", str(MESSAGE_SECONDS * 1000))
        .option("includeHeaders", str(headers).lower())
        .option("minPartitions", str(tasks))
        .options(**{f"kafka.{k}": v for k, v in java_client_config(cluster).items()})
    )
    # Fewer where many topic partitions hold little: each would write a file of its own for every date.
    return reader.load().coalesce(wanted) if wanted < len(ranges) else reader.load()


def java_client_config(cluster: KafkaCluster) -> dict[str, str]:
    """The Java client's form of the cluster's librdkafka properties."""
    properties = dict(cluster.properties)
    mechanism = properties.pop("sasl.mechanisms", None) or properties.get("sasl.mechanism")
    user, password = properties.pop("sasl.username", None), properties.pop("sasl.password", None)
    authority = properties.pop("ssl.ca.location", None)
    config = {
        # What a range holds is there. Spark asks for a partition's bounds behind every fetch, on the connection where
        # the next fetch already waits for new messages: by default half a second for each topic partition and read.
        "fetch.max.wait.ms": "10",
        "request.timeout.ms": str(ANSWER_SECONDS * 1000),
        **properties,
        "bootstrap.servers": cluster.bootstrap_servers,
        "isolation.level": "read_committed",
    }
    # The Java client takes no whole that is shorter than one of its requests.
    config["default.api.timeout.ms"] = str(max(ANSWER_SECONDS * 1000, int(config["request.timeout.ms"])))
    if mechanism:
        config["sasl.mechanism"] = mechanism
    if mechanism in _JAAS_MODULE and user is not None:
        options = " ".join(f"{k}={json.dumps(v)}" for k, v in (("username", user), ("password", password or "")))
        config["sasl.jaas.config"] = f"{_JAAS_MODULE[mechanism]} required {options};"
    if authority:
        config |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    return config


def _offsets(topic: str, by_partition: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(p): o for p, o in by_partition.items()}})
