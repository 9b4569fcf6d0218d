"""How a Kafka cluster is spoken to: configuration, and what it means when nobody answers or we are refused."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from kdi_assets.sources.kafka.errors import AccessRefused, BrokerUnreachable, PropertyRefused
from kdi_assets.stream.stream import Cluster, TopicPartition

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import Consumer, KafkaError, Message

REQUEST_SECONDS = 10.0
"""How long one look at the brokers may take; well below the 60 seconds that Dagster gives a sensor."""

LATE_SECONDS = 2.0
"""How much later than its limit, which the client keeps by itself, an answer may come before it counts as lost."""
ONE_BATCH = 1024
"""Bytes to fetch where one message of each topic partition is wanted; a broker sends the first batch whole."""

_ADVERTISED = re.compile(r"(?:\w+://)?(\S+)/\d+: ")
"""A broker as librdkafka names it, by the address that it advertises and its id; a given address has no id."""


class Heard:
    """What a client says beside its answers: of refused credentials, a request only knows that its time ran out."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._refused = ""
        self._all_down = False
        # Addresses that brokers advertise, and at which nobody took a connection.
        self.unreachable: dict[str, None] = {}

    def __call__(self, error: KafkaError) -> None:
        """Be told by the client; it calls this while it is polled."""
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self._refused = error.str()
        self._all_down = self._all_down or error.code() == KafkaError._ALL_BROKERS_DOWN
        if error.code() in (KafkaError._TRANSPORT, KafkaError._RESOLVE) and (named := _ADVERTISED.match(error.str())):
            self.unreachable[named[1]] = None

    def refuse(self, *, answer_came_late: bool = False) -> None:
        """Refuse once no broker is left that took our credentials, or one refused them and no answer came.

        Raises:
            AccessRefused: Then.
        """
        if self._refused and (self._all_down or answer_came_late):
            raise access_refused(self.cluster, "authentication", self._refused)


def access_refused(cluster: Cluster, refused: str, detail: str) -> AccessRefused:
    """The refusal: of ``authentication`` or ``authorization``."""
    servers = cluster.bootstrap_servers
    return AccessRefused(cluster=cluster.name, bootstrap_servers=servers, refused=refused, detail=detail)


def nobody_answers(cluster: Cluster, detail: str) -> BrokerUnreachable:
    """The refusal of a cluster that does not answer."""
    return BrokerUnreachable(cluster=cluster.name, bootstrap_servers=cluster.bootstrap_servers, detail=detail)


def client_config(cluster: Cluster, **extra: object) -> dict[str, Any]:
    """librdkafka's configuration for the cluster: the document's properties, then ours, which they cannot change."""
    return {
        "socket.timeout.ms": int(REQUEST_SECONDS * 1000),
        "log_level": 0,
        **cluster.properties,
        "bootstrap.servers": cluster.bootstrap_servers,
        **extra,
    }


class Admin:
    """A new admin client, and what it means when nobody answers it.

    Raises:
        PropertyRefused: It takes the cluster's properties not.
    """

    def __init__(self, cluster: Cluster) -> None:
        from confluent_kafka.admin import AdminClient

        self.cluster, self.heard = cluster, Heard(cluster)
        with _properties(cluster):
            self.client = AdminClient(client_config(cluster, error_cb=self.heard))

    def wait(self, asked: Collection[Future[Any]], *, request_seconds: float | None = None) -> None:
        """Wait until all is answered or out of time.

        Args:
            request_seconds: The limit that the requests were given, if it is not the usual one. The client may take it
                for each of the two steps of a request, asking who leads and asking the leaders.

        Raises:
            AccessRefused: The brokers refuse our credentials; said at once.
            BrokerUnreachable: The client lost an answer; without a limit of ours one would wait for it for ever.
        """
        seconds = 2 * (request_seconds or REQUEST_SECONDS) + LATE_SECONDS
        until = monotonic() + seconds
        while lost := wait(asked, timeout=0.1).not_done:
            self.client.poll(0)
            self.heard.refuse()
            if monotonic() > until:
                self.heard.refuse(answer_came_late=True)
                detail = f"{len(lost)} of {len(asked)} requests not answered within {seconds:g} s"
                raise nobody_answers(self.cluster, detail)

    @contextmanager
    def reachable(self) -> Iterator[None]:
        """Translate the client's "nobody answers" into ours; every other refusal passes.

        Raises:
            BrokerUnreachable, AccessRefused: Why nobody answers.
        """
        from confluent_kafka import KafkaError, KafkaException

        silent = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
        try:
            yield
        except KafkaException as refused:
            error = refused.args[0]
            if error.code() not in silent:
                raise
            self.client.poll(0)
            self.heard.refuse(answer_came_late=True)
            raise nobody_answers(self.cluster, error.str()) from refused

    def topics(self) -> Mapping[str, Any]:
        """The topics that we may see, each with its ``partitions``.

        Raises:
            BrokerUnreachable, AccessRefused: Why nobody answers.
        """
        with self.reachable():
            return self.client.list_topics(timeout=REQUEST_SECONDS).topics


@contextmanager
def open_consumer(
    cluster: Cluster,
    positions: Mapping[TopicPartition, int],
    *,
    committed: bool = True,
    fetch_bytes: int = ONE_BATCH,
) -> Iterator[tuple[Consumer, Heard]]:
    """A new consumer that reads from these positions without a group, and tells of the end.

    Args:
        committed: Only messages that may be read; else those of open and aborted transactions too.
        fetch_bytes: Asked for at a time, of each topic partition; a broker sends one batch at least.

    Raises:
        PropertyRefused: It takes the cluster's properties not.
    """
    from confluent_kafka import Consumer

    heard = Heard(cluster)
    with _properties(cluster):
        consumer = Consumer(
            client_config(
                cluster,
                **{
                    # The client demands a group id; nothing is ever committed to it or read from it.
                    "group.id": "kdi-reads-no-group-offsets",
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed" if committed else "read_uncommitted",
                    "auto.offset.reset": "error",
                    "fetch.message.max.bytes": fetch_bytes,
                    "fetch.max.bytes": 1_000_000,
                    "error_cb": heard,
                },
            )
        )
    try:
        consumer.assign([rd_partition(tp, offset) for tp, offset in positions.items()])
        yield consumer, heard
    finally:
        consumer.close()


def polled(
    cluster: Cluster,
    positions: Mapping[TopicPartition, int],
    waiting: Collection[TopicPartition],
    *,
    seconds: float,
    most: int = 100,
    committed: bool = True,
    fetch_bytes: int = ONE_BATCH,
) -> Iterator[tuple[TopicPartition, Message]]:
    """Messages, ends and errors of topic partitions, until the time is up or nobody waits for more.

    Args:
        positions, committed, fetch_bytes: As ``open_consumer`` takes them.
        waiting: The caller takes out the topic partitions of which it has enough.
        most: How many messages are handed out at a time.

    Raises:
        AccessRefused: The brokers refuse our credentials.
        PropertyRefused: The client takes the cluster's properties not.
    """
    if not waiting:
        return
    until = monotonic() + seconds
    with open_consumer(cluster, positions, committed=committed, fetch_bytes=fetch_bytes) as (consumer, heard):
        while waiting and monotonic() < until:
            heard.refuse()
            for message in what_came(consumer, most):
                tp = topic_partition_of(message)
                if tp not in waiting:
                    continue  # also what is about the group, which the client looks up although nobody asks it to
                yield tp, message
                if tp not in waiting:
                    consumer.pause([rd_partition(tp)])


def what_came(consumer: Consumer, most: int) -> list[Message]:
    """What the consumer has now, or what comes first within a fifth of a second; it does not wait for ``most``."""
    first = consumer.poll(0.2)
    if first is None:
        return []
    return [first, *consumer.consume(num_messages=most - 1, timeout=0)]


def rd_partition(tp: TopicPartition, offset: int = -1001) -> Any:
    """The topic partition as the client names it; without an offset by default."""
    from confluent_kafka import TopicPartition as RdPartition

    return RdPartition(tp.topic, tp.partition, offset)


def topic_partition_of(message: Message) -> TopicPartition:
    """Where a message stands."""
    return TopicPartition(str(message.topic()), message.partition() or 0)


@contextmanager
def _properties(cluster: Cluster) -> Iterator[None]:
    """Translate what a new client says of its properties.

    Raises:
        PropertyRefused: It takes them not.
    """
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as refused:
        raise PropertyRefused(cluster=cluster.name, detail=refused.args[0].str()) from refused
