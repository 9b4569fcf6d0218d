"""What others do to a topic while a stream is drained from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as RdPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from kdi_assets.documents.model.stream import Cluster, TopicPartition
from kdi_assets.messages.kafka.topic import read_topic
from tests.driven import DrivenStream, web_requests
from tests.kafka_log import Publisher
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL_FETCHES = {"fetch.max.bytes": "65536", "max.partition.fetch.bytes": "16384", "message.max.bytes": "16384"}
"""Client properties with which a task asks the broker many times."""


class TransactionalPublisher(Publisher):
    """A publisher whose log keeps only committed messages, once its transactions have ended."""

    def __init__(self, bootstrap_servers: str, transactional_id: str, **properties: str | int) -> None:
        super().__init__(bootstrap_servers, **{"transactional.id": transactional_id, **properties})
        self._committed = 0
        self.client.init_transactions(30)

    def begin(self) -> None:
        """Begin a transaction."""
        self.client.begin_transaction()

    def end(self, *, commit: bool) -> None:
        """Commit or abort the open transaction."""
        self.flush()
        if commit:
            self.client.commit_transaction(30)
        else:
            self.client.abort_transaction(30)
            self.forget()
        self._committed = len(self.log)

    def forget(self) -> None:
        """Remove from the log what belongs to no committed transaction."""
        del self.log[self._committed :]

    @contextmanager
    def transaction(self, *, commit: bool = True) -> Iterator[None]:
        """Everything produced inside is one transaction."""
        self.begin()
        yield
        self.end(commit=commit)


def await_markers(cluster: Cluster, topic: str) -> None:
    """The broker acknowledges the end of a transaction before it writes its markers."""

    def written() -> bool:
        held = read_topic(cluster, topic).partitions.values()
        return all(offsets.end == offsets.high_watermark for offsets in held)

    wait_until(written)


def admin(cluster: Cluster) -> AdminClient:
    """A client with all rights."""
    return _admin(cluster.bootstrap_servers)


@cache  # requests of a client that was garbage-collected are never answered
def _admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})


def stream_over(
    cluster: Cluster, topic: str, lake: str, session: Callable[[], SparkSession], *, partitions: int = 2
) -> DrivenStream:
    """A stream over a new topic of the test's own cluster."""
    admin(cluster).create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    return DrivenStream(web_requests(topic, cluster), lake, Publisher(cluster.bootstrap_servers), session)


def delete_records(web: DrivenStream, until: dict[int, int]) -> None:
    """Delete everything before these offsets, as retention does."""
    bounds = [RdPartition(web.stream.topic, partition, offset) for partition, offset in until.items()]
    for deleted in admin(web.stream.kafka).delete_records(bounds).values():
        deleted.result(10)


def delete_topic(web: DrivenStream, name: str) -> None:
    """Delete a topic, and wait until the broker has forgotten it."""
    client = admin(web.stream.kafka)
    client.delete_topics([name])[name].result(10)
    wait_until(lambda: name not in client.list_topics(timeout=5).topics, seconds=20)


def make_again(web: DrivenStream, *, partitions: int) -> Publisher:
    """Delete the topic and create another one of its name; the result publishes to it.

    A client that saw the topic vanish may refuse it for a while, so the new one has its own publisher.
    """
    topic, client = web.stream.topic, admin(web.stream.kafka)
    delete_topic(web, topic)
    client.create_topics([NewTopic(topic, partitions, 1)])[topic].result(10)
    wait_until(lambda: topic in client.list_topics(timeout=5).topics, seconds=20)
    return Publisher(web.stream.kafka.bootstrap_servers)


def add_topic_partitions(web: DrivenStream, *, total: int) -> None:
    """Increase the topic's partitions to this number."""
    topic, client = web.stream.topic, admin(web.stream.kafka)
    client.create_partitions([NewPartitions(topic, total)])[topic].result(10)
    wait_until(lambda: len(read_topic(web.stream.kafka, topic).partitions) == total, seconds=20)
    # A client that knew fewer refuses the new ones until it asks again.
    web.publisher.client.list_topics(topic, timeout=10)


def configure(cluster: Cluster, kind: ResourceType, name: str, **config: str) -> None:
    """Set configuration; underscores become dots."""
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in config.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    admin(cluster).incremental_alter_configs([resource])[resource].result(10)


def visible_offsets(cluster: Cluster, topic_partition: TopicPartition) -> list[int]:
    """The offsets that another client reads, from the first to the end."""
    settings = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "group.id": "another-reader",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    consumer, offsets = Consumer(settings), []
    try:
        consumer.assign([RdPartition(topic_partition.topic, topic_partition.partition, 0)])
        while (message := consumer.poll(10)) is not None and message.error() is None:
            offsets.append(message.offset() or 0)
    finally:
        consumer.close()
    return offsets
