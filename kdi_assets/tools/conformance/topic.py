"""A scenario's topic: everything that is done to it, and the log of what the broker acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from kdi_assets.tools.conformance.errors import BrokerTimedOut, NotDelivered
from kdi_assets.tools.conformance.messages import Fate, Sent

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer
    from confluent_kafka.admin import AdminClient

LATER_MS = str(7 * 24 * 3600 * 1000)
SEGMENT_MS = 100
COMPACTED: Mapping[str, str] = {
    "cleanup.policy": "compact",
    "segment.ms": str(SEGMENT_MS),
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": LATER_MS,
    "min.compaction.lag.ms": LATER_MS,
}
"""A topic that keeps everything until ``compact`` lets the cleaner work."""
BROKER_SECONDS = 90.0
FateOf = Callable[[bytes | None], Fate]


class Topic:
    """A topic of the suite's own, with the log of its messages in the order of their acknowledgement."""

    def __init__(self, bootstrap_servers: str, name: str, *, partitions: int, compacted: bool, fate_of: FateOf) -> None:
        self.name = name
        self.partitions = partitions
        self.sent: list[Sent] = []
        self._servers, self._fate_of = bootstrap_servers, fate_of
        self._number = 0
        self._config = dict(COMPACTED) if compacted else {"retention.ms": "-1"}
        self._next_partition = 0
        self._create()

    def produce(self, messages: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Produce keys and values, one topic partition after the other."""
        self._produce(self._producer(), messages, fate_of=self._fate_of)

    def transaction(self, messages: Iterable[tuple[bytes | None, bytes | None]], *, commit: bool) -> None:
        """Produce them in a transaction, and wait until the broker has written its end."""
        producer = self._producer(**{"transactional.id": f"{self.name}-{self._number}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        self._produce(producer, messages, fate_of=self._fate_of if commit else lambda value: "nothing")
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
        self._until(self._nothing_is_open, "end the transaction")

    def add_partitions(self, total: int) -> None:
        """Increase the number of topic partitions."""
        from confluent_kafka.admin import NewPartitions

        self._admin.create_partitions([NewPartitions(self.name, total)])[self.name].result(30)
        self._until(lambda: len(self._found_partitions()) == total, "add topic partitions")
        self.partitions = total

    def expire(self, *, keep: int) -> frozenset[Sent]:
        """Delete all but the newest messages of each topic partition, as retention does; the deleted ones."""
        from confluent_kafka import TopicPartition

        bounds = {
            partition: max((sent.offset for sent in self._of_now() if sent.partition == partition), default=-1)
            + 1
            - keep
            for partition in range(self.partitions)
        }
        asked = [TopicPartition(self.name, partition, max(offset, 0)) for partition, offset in bounds.items()]
        for deleted in self._admin.delete_records(asked).values():
            deleted.result(30)
        return frozenset(sent for sent in self._of_now() if sent.offset < bounds[sent.partition])

    def compact(self) -> frozenset[Sent]:
        """Let the cleaner remove all messages of a key but the newest, and wait until it did; the removed ones."""
        time.sleep(2 * SEGMENT_MS / 1000)  # the broker closes a segment by the timestamps in it
        self.produce([(f"last {number}".encode(), self.sent[-1].value) for number in range(self.partitions)])
        before = len(self._visible())
        seen = [before]
        self._configure({"min.compaction.lag.ms": "0"})

        def done() -> bool:
            # Two looks at the same, smaller number: the cleaner works on one topic partition after the other.
            seen.append(len(self._visible()))
            return seen[-1] == seen[-2] < before

        self._until(done, "compact the topic", pause=1.0)
        self._configure({"min.compaction.lag.ms": LATER_MS})
        visible = self._visible()
        return frozenset(sent for sent in self._of_now() if (sent.partition, sent.offset) not in visible)

    def recreate(self) -> None:
        """Delete the topic, and create another one of its name."""
        self.delete()
        self._number += 1
        self._create()

    def delete(self) -> None:
        """Delete the topic."""
        self._admin.delete_topics([self.name])[self.name].result(30)
        self._until(lambda: not self._found_partitions(), "delete the topic")

    def _create(self) -> None:
        from confluent_kafka.admin import NewTopic

        new = NewTopic(self.name, self.partitions, 1, config=self._config)
        self._admin.create_topics([new])[self.name].result(30)
        self._until(lambda: len(self._found_partitions()) == self.partitions, "create the topic")

    def _produce(
        self, producer: Producer, messages: Iterable[tuple[bytes | None, bytes | None]], *, fate_of: FateOf
    ) -> None:
        refused: list[KafkaError] = []

        def heard(value: bytes | None) -> Callable[[KafkaError | None, Message], None]:
            def on_delivery(error: KafkaError | None, message: Message) -> None:
                if error is not None:
                    refused.append(error)
                else:
                    place: tuple[Any, Any] = message.partition(), message.offset()
                    self.sent.append(Sent(self._number, *place, value=value, fate=fate_of(value)))

            return on_delivery

        for key, value in messages:
            partition = self._next_partition % self.partitions
            self._next_partition += 1
            producer.produce(self.name, value, key, partition=partition, on_delivery=heard(value))
        left = producer.flush(60)
        if left or refused:
            raise NotDelivered(topic=self.name, reason=str(refused[0]) if refused else f"{left} without an answer")

    def _of_now(self) -> list[Sent]:
        return [sent for sent in self.sent if sent.topic == self._number]

    def _producer(self, **properties: str) -> Producer:
        from confluent_kafka import Producer

        safe = {"enable.idempotence": True, "linger.ms": 5, "log_level": 2}
        return Producer({"bootstrap.servers": self._servers, **safe, **properties})

    @property
    def _admin(self) -> AdminClient:
        return _admin(self._servers)

    def holders(self, group: str) -> dict[int, str]:
        """Which member of a consumer group holds each topic partition; a killed one holds its own for a while."""
        found = self._admin.describe_consumer_groups([group])[group].result(30)
        return {
            place.partition: member.member_id
            for member in found.members
            for place in member.assignment.topic_partitions
            if place.topic == self.name
        }

    def _configure(self, config: Mapping[str, str]) -> None:
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, self.name, incremental_configs=entries)
        self._admin.incremental_alter_configs([resource])[resource].result(30)

    def _found_partitions(self) -> Collection[int]:
        found = self._admin.list_topics(timeout=10).topics.get(self.name)
        return found.partitions if found else ()

    def _nothing_is_open(self) -> bool:
        """Whether the last stable offset of each topic partition is its end."""
        return self._ends("read_committed") == self._ends("read_uncommitted")

    def _ends(self, isolation: str) -> list[int]:
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        level = getattr(IsolationLevel, isolation.upper())
        asked = {TopicPartition(self.name, partition): OffsetSpec.latest() for partition in range(self.partitions)}
        answers = self._admin.list_offsets(asked, isolation_level=level)
        return [answers[place].result(30).offset for place in asked]

    def _visible(self) -> set[tuple[int, int]]:
        """The coordinates of the messages that a reader of all topic partitions gets."""
        from confluent_kafka import Consumer, TopicPartition

        settings = {"group.id": "conformance", "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = Consumer({"bootstrap.servers": self._servers, "log_level": 2, **settings})
        seen, ended = set[tuple[int, int]](), 0
        try:
            consumer.assign([TopicPartition(self.name, partition, 0) for partition in range(self.partitions)])
            while ended < self.partitions and (message := consumer.poll(10)) is not None:
                place: Any = message.partition(), message.offset()
                ended += message.error() is not None
                seen |= set() if message.error() else {place}
        finally:
            consumer.close()
        return seen

    def _until(self, condition: Callable[[], bool], awaited: str, *, pause: float = 0.05) -> None:
        until = time.monotonic() + BROKER_SECONDS
        while not condition():
            if time.monotonic() > until:
                raise BrokerTimedOut(topic=self.name, awaited=awaited, seconds=BROKER_SECONDS)
            time.sleep(pause)


@cache  # requests of a client that was garbage-collected are never answered
def _admin(bootstrap_servers: str) -> AdminClient:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
