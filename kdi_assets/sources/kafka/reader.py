"""Exact ranges of a topic as a Spark DataFrame."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kdi_assets.stream.stream import Cluster, OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OFFSETS_PER_TASK = 100_000
"""A smaller task spends more time on its start than on reading; for more offsets another task pays."""
ANSWER_SECONDS = 20
"""How long Spark's clients wait for an answer without messages; a broker hands over its leaders in less."""
MESSAGE_SECONDS = 60
"""How long a task waits for the next message of its range; a broker restarts in less."""

_JAAS_MODULE = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}

_PEM = {
    "ssl.certificate": ("ssl.keystore", "ssl.keystore.certificate.chain"),
    "ssl.key": ("ssl.keystore", "ssl.keystore.key"),
    "ssl.ca": ("ssl.truststore", "ssl.truststore.certificates"),
}
"""librdkafka's name of a certificate or key, to the Java client's store and property, which holds the text of it."""


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
    from pyspark.sql import DataFrame

    jvm: Any = spark._jvm
    kafka, none = jvm.org.apache.spark.sql.kafka010, jvm.scala.Option.empty()
    topic_partition = jvm.org.apache.kafka.common.TopicPartition
    # A new group for each read: executors cache fetched messages by group and offset, and a recreated or truncated
    # topic has other messages at the same offsets.
    properties = jvm.PythonUtils.toScalaMap(java_client_config(cluster))
    executors = kafka.KafkaSourceProvider.kafkaParamsForExecutors(properties, f"kdi-{uuid4()}")
    tasks = -(-sum(r.offset_count for r in ranges) // OFFSETS_PER_TASK)
    parts = [
        kafka.KafkaOffsetRange(
            topic_partition(part.topic_partition.topic, part.topic_partition.partition), part.start, part.end, none
        )
        for r in ranges
        for part in _parts(r, ranges, min(tasks, spark.sparkContext.defaultParallelism))
    ]
    source = kafka.KafkaSourceRDD(
        spark.sparkContext._jsc.sc(), executors, jvm.PythonUtils.toSeq(parts), MESSAGE_SECONDS * 1000, True
    )
    to_row = kafka.KafkaRecordToRowConverter().toInternalRowWithHeaders()
    row = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")
    schema = kafka.KafkaRecordToRowConverter.kafkaSchema(True)
    rows = source.map(to_row, jvm.scala.reflect.ClassTag.apply(row))
    messages = DataFrame(spark._jsparkSession.internalCreateDataFrame(rows, schema, False), spark)
    # Fewer tasks if many topic partitions have few messages: every task writes a file for every date.
    return messages.coalesce(tasks) if tasks < len(parts) else messages


def _parts(r: OffsetRange, ranges: Sequence[OffsetRange], tasks: int) -> list[OffsetRange]:
    """Split a range into its share of the tasks, so that a few large ranges use all cores."""
    share = max(1, round(tasks * r.offset_count / sum(every.offset_count for every in ranges)))
    edges = [r.start + r.offset_count * n // share for n in range(share + 1)]
    return [OffsetRange(r.topic_partition, start, end) for start, end in pairwise(edges)]


def java_client_config(cluster: Cluster) -> dict[str, str]:
    """The Java client's form of the cluster's librdkafka properties."""
    properties = dict(cluster.properties)
    mechanism = properties.pop("sasl.mechanisms", None) or properties.get("sasl.mechanism")
    user, password = properties.pop("sasl.username", None), properties.pop("sasl.password", None)
    certificates = _certificates(properties)
    properties.pop("group.id", None)  # each read has its own
    config = {
        # All messages of a range exist already. Spark asks for a partition's bounds after every fetch, on the same
        # connection where the next fetch waits for new messages: by default 0.5 s for each topic partition and read.
        "fetch.max.wait.ms": "10",
        # Fewer and larger fetches: by default a megabyte for each topic partition, and 500 messages for each poll.
        "max.partition.fetch.bytes": str(4 << 20),
        "max.poll.records": "5000",
        "request.timeout.ms": str(ANSWER_SECONDS * 1000),
        **properties,
        "bootstrap.servers": cluster.bootstrap_servers,
        "isolation.level": "read_committed",
    }
    # The Java client refuses an API timeout that is shorter than its request timeout.
    config["default.api.timeout.ms"] = str(max(ANSWER_SECONDS * 1000, int(config["request.timeout.ms"])))
    if mechanism:
        config["sasl.mechanism"] = mechanism
    if mechanism in _JAAS_MODULE and user is not None:
        options = " ".join(f"{k}={json.dumps(v)}" for k, v in (("username", user), ("password", password or "")))
        config["sasl.jaas.config"] = f"{_JAAS_MODULE[mechanism]} required {options};"
    return config | certificates


def _certificates(properties: dict[str, str]) -> dict[str, str]:
    """Take certificates and key out of the properties; as texts, because executors do not see the driver's files."""
    found: dict[str, str] = {}
    for name, (store, property) in _PEM.items():
        text, location = properties.pop(f"{name}.pem", None), properties.pop(f"{name}.location", None)
        if text or location:
            found |= {f"{store}.type": "PEM", property: text or Path(str(location)).read_text()}
    return found
