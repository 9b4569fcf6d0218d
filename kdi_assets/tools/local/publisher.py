"""Publishes generated messages; an error counts the messages that the broker did not acknowledge."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.stream import Cluster
from kdi_assets.messages.kafka.client import Admin, client_config
from kdi_assets.messages.source import REQUEST_SECONDS
from kdi_assets.tools.local.errors import DeliveryFailed, TopicRefused
from kdi_assets.tools.local.generator import Traffic, WebRequests

if TYPE_CHECKING:
    from confluent_kafka import Producer

BATCH = 2000  # messages handed to librdkafka in one call
IN_FLIGHT = 300_000  # messages that may wait for acknowledgement: some 100 MB
DELIVERY_SECONDS = 60  # then librdkafka gives up a message

PRODUCER_CONFIG: dict[str, Any] = {
    "enable.idempotence": True,  # retries inside librdkafka must not duplicate messages
    "compression.type": "lz4",
    "linger.ms": 50,
    "batch.size": 1_000_000,  # bytes
    "queue.buffering.max.messages": 2 * IN_FLIGHT,
    "queue.buffering.max.kbytes": 1 << 20,
    "delivery.timeout.ms": DELIVERY_SECONDS * 1000,
    # Only failures call back, for a third of the CPU: when the queue is empty, all other messages are acknowledged.
    "delivery.report.only.error": True,
}


@dataclass(frozen=True, slots=True)
class Published:
    """The result of ``publish``.

    Attributes:
        acknowledged: Messages, each acknowledged by all in-sync replicas.
        counts: Messages by kind: ``good``, ``tombstone`` and each of ``BAD_KINDS``.
    """

    topic: str
    acknowledged: int
    counts: Mapping[str, int]
    seconds: float


def ensure_topic(cluster: Cluster, topic: str, *, partitions: int) -> int:
    """Create the topic if it is missing.

    Returns:
        The number of its topic partitions.

    Raises:
        BrokerUnreachable: No broker answered.
        AccessRefused: The brokers refuse the credentials.
        TopicRefused: The brokers do not create it.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    new = NewTopic(topic, num_partitions=partitions)
    with Admin(cluster) as admin:
        existing = admin.topics()
        if topic in existing:
            return len(existing[topic].partitions)
        try:
            admin.client.create_topics([new])[topic].result(timeout=REQUEST_SECONDS)
        except KafkaException as refused:
            raise TopicRefused(topic=topic, reason=refused.args[0].str()) from refused
    return partitions


def publish(
    cluster: Cluster,
    topic: str,
    traffic: Traffic,
    *,
    count: int | None = None,
    rate: float | None = None,
    partitions: int = 4,
    stopped: Callable[[], bool] = lambda: False,
    report: Callable[[int], None] = lambda sent: None,
) -> Published:
    """Publish messages to all topic partitions in turn and wait for every acknowledgement.

    Args:
        count: Number of messages; None: until ``stopped``.
        rate: Messages per second; None: as fast as the broker accepts them.
        partitions: For a topic that is created.
        stopped: Called before each batch.
        report: Called after each batch with the number of messages so far.

    Raises:
        DeliveryFailed: The broker did not acknowledge every message.
        KdiError: As ``ensure_topic``.
    """
    partitions = ensure_topic(cluster, topic, partitions=partitions)
    requests, outbox = WebRequests(traffic), Outbox(cluster, topic)
    begin, sent = time.monotonic(), 0
    for size in batch_sizes(count, rate):
        if stopped():
            break
        values = requests.batch(size, now=datetime.now(UTC))
        for partition in range(partitions):
            # Message n goes to topic partition n modulo their number, for any size of batches.
            outbox.put(values[(partition - sent) % partitions :: partitions], partition=partition)
        sent += size
        report(sent)
        outbox.wait(until=begin + sent / rate if rate else 0.0, stopped=stopped)
    outbox.close()
    return Published(topic, sent, dict(requests.counts), time.monotonic() - begin)


def batch_sizes(count: int | None, rate: float | None) -> Iterator[int]:
    """Sizes that add up to ``count``; with a rate, ten or fewer batches a second."""
    size = min(BATCH, max(1, round(rate / 10))) if rate else BATCH
    left = count
    while left is None or left > 0:
        yield size if left is None else min(size, left)
        left = left if left is None else left - size


class Outbox:
    """A producer that counts failures; ``close`` raises if there are any."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._put = self._failed = 0
        self._reason = ""
        self._producer: Producer = Producer(PRODUCER_CONFIG | client_config(cluster))

    def put(self, values: Sequence[bytes | None], *, partition: int) -> None:
        """Queue messages; None is a tombstone."""
        messages = [{"value": value} for value in values]
        accepted = self._producer.produce_batch(
            self._topic, messages, partition=partition, on_delivery=lambda error, _: self._note(error, 1)
        )
        self._put += len(messages)
        if accepted < len(messages):
            refused = next(message["_error"] for message in messages if "_error" in message)
            self._note(refused, len(messages) - accepted)

    def wait(self, *, until: float, stopped: Callable[[], bool]) -> None:
        """Wait for the moment ``until`` (monotonic seconds) and for room in the queue."""
        self._producer.poll(0)
        while (len(self._producer) > IN_FLIGHT or time.monotonic() < until) and not stopped():
            self._producer.poll(min(0.1, max(0.01, until - time.monotonic())))
        if self._failed:
            self.close()

    def close(self) -> None:
        """Wait for all acknowledgements; raises ``DeliveryFailed`` if one is missing."""
        deadline = time.monotonic() + DELIVERY_SECONDS + REQUEST_SECONDS
        while (unanswered := self._producer.flush(0.5)) and time.monotonic() < deadline:
            continue  # short waits, because signals are handled only between them
        if unanswered:
            self._note("no answer in time", unanswered)
        if self._failed:
            raise DeliveryFailed(
                topic=self._topic, acknowledged=self._put - self._failed, failed=self._failed, reason=self._reason
            )

    def _note(self, error: object, failed: int) -> None:
        self._failed += failed
        self._reason = self._reason or str(error)
