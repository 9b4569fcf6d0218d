"""The messages of a test as the broker acknowledged them: the basis of every comparison."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message, Producer

from kdi_assets.documents.model.stream import TopicPartition

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Produced:
    """One acknowledged message, with its coordinates."""

    topic_partition: TopicPartition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: datetime


class Publisher:
    """Publishes and keeps the log of acknowledged messages."""

    def __init__(self, bootstrap_servers: str, **properties: str | int) -> None:
        self.log: list[Produced] = []
        self.failures: list[KafkaError] = []
        # Sent but unacknowledged messages would make the log incomplete: idempotent, and flush waits for all.
        safe: dict[str, str | int] = {"enable.idempotence": True, "linger.ms": 5, "log_level": 2}
        self.client = Producer({"bootstrap.servers": bootstrap_servers, **safe, **properties})

    def produce(
        self,
        topic: str,
        value: bytes | str | None,
        *,
        key: bytes | str | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp: datetime | None = None,
    ) -> None:
        """Queue a message; ``flush`` waits for its acknowledgement.

        Args:
            partition: By default by the hash of the key, or random.
            timestamp: By default now.
        """
        # A delivery report does not contain the headers that were sent.
        options: dict[str, Any] = {"on_delivery": partial(self._hear, _headers(headers))}
        if partition is not None:
            options["partition"] = partition
        if timestamp is not None:
            options["timestamp"] = int(timestamp.timestamp() * 1000)
        while True:
            try:
                self.client.produce(topic, value, key, headers=list(headers), **options)
                return
            except BufferError:
                self.client.poll(1)

    def flush(self) -> list[Produced]:
        """Wait until everything is acknowledged; the whole log in the order of topic partition and offset."""
        left = self.client.flush(60)
        assert left == 0 and not self.failures, f"{left} messages not acknowledged, refused: {self.failures[:3]}"
        return sorted(self.log, key=lambda message: (message.topic_partition, message.offset))

    def produce_all(
        self, topic: str, values: Iterable[bytes | str | None], *, partition: int | None = None
    ) -> list[Produced]:
        """Publish values one after the other, and wait; only the messages of this call, in the order of offsets."""
        before = len(self.log)
        for value in values:
            self.produce(topic, value, partition=partition)
        self.flush()
        return sorted(self.log[before:], key=lambda message: (message.topic_partition, message.offset))

    def _hear(self, headers: tuple[tuple[str, bytes | None], ...], error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(error)
            return
        self.log.append(replace(_as_produced(message), headers=headers))


def _as_produced(message: Message) -> Produced:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    kind, milliseconds = message.timestamp()
    assert topic is not None and partition is not None and offset is not None
    assert kind in (TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME)
    return Produced(
        topic_partition=TopicPartition(topic, partition),
        offset=offset,
        key=_as_bytes(message.key()),
        value=_as_bytes(message.value()),
        headers=(),
        timestamp=datetime.fromtimestamp(milliseconds / 1000, UTC),
    )


def _headers(given: Iterable[tuple[str, Any]]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((name, _as_bytes(value)) for name, value in given)


def _as_bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
