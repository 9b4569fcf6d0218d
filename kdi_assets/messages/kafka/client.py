"""Clients of a Kafka cluster: configuration, admin, consumer, and the translation of their errors."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.connections.sasl import AWS_MSK_IAM
from kdi_assets.documents.model.stream import Cluster, TopicPartition
from kdi_assets.messages.kafka.access import CLIENT_CERTIFICATE_REFUSED, authentication_error, protocol_error
from kdi_assets.messages.kafka.errors import BrokerUnreachable, PropertyRefused, TopicUnanswered
from kdi_assets.messages.kafka.msk import fresh_token, signing_keys
from kdi_assets.messages.kafka.security import client_properties
from kdi_assets.messages.source import REQUEST_SECONDS
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import Consumer, KafkaError, Message

LATE_SECONDS = 2.0
"""An answer counts as lost this long after the limit that the client itself keeps."""
ONE_BATCH = 1024
"""Bytes to fetch for one message of each topic partition; a broker sends the first batch whole."""

_ADVERTISED = re.compile(r"(?:\w+://)?(\S+)/\d+: ")
"""A broker as librdkafka names it, by its advertised address and its id; a bootstrap address has no id."""


class ClientErrors:
    """Errors that a client reports by callback; if credentials are refused, a request itself only times out."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._refused = ""
        self._all_down = False
        # Advertised addresses that accept no connection.
        self.unreachable: dict[str, None] = {}

    def __call__(self, error: KafkaError) -> None:
        """The client calls this while it is polled."""
        from confluent_kafka import KafkaError

        # In TLS 1.3 a refused certificate is reported as a lost connection.
        by_certificate = bool(CLIENT_CERTIFICATE_REFUSED.search(error.str()))
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL) or by_certificate:
            self._refused = error.str()
        self._all_down = self._all_down or error.code() == KafkaError._ALL_BROKERS_DOWN
        if error.code() in (KafkaError._TRANSPORT, KafkaError._RESOLVE) and (named := _ADVERTISED.match(error.str())):
            self.unreachable[named[1]] = None

    def refuse(self, *, answer_came_late: bool = False) -> None:
        """Refuse if a broker refused our credentials, and all brokers are down or no answer came in time.

        Raises:
            AccessRefused: Authentication failed, or no answer came and the port speaks another protocol.
        """
        if self._refused and (self._all_down or answer_came_late):
            raise authentication_error(self.cluster, self._refused)
        if answer_came_late and (differs := protocol_error(self.cluster)):
            raise differs


def broker_unreachable(cluster: Cluster, detail: str) -> BrokerUnreachable:
    """The error if the cluster does not answer."""
    return BrokerUnreachable(cluster=cluster.name, bootstrap_servers=cluster.bootstrap_servers, detail=detail)


def topic_unanswered(cluster: Cluster, detail: str) -> TopicUnanswered:
    """The error if there is no answer about a topic or one of its partitions."""
    return TopicUnanswered(cluster=cluster.name, bootstrap_servers=cluster.bootstrap_servers, detail=detail)


def client_config(cluster: Cluster, **extra: object) -> dict[str, Any]:
    """librdkafka's configuration: the cluster's connection and properties, then ours, which they cannot override.

    Raises:
        EnvironmentVariableMissing, SecretUnreadable, SecretUnanswered, AwsCredentialsMissing: A value cannot be had.
    """
    config = {
        "socket.timeout.ms": int(REQUEST_SECONDS * 1000),
        **({"debug": "broker,metadata,security"} if Settings.from_environment().verbose else {"log_level": 0}),
        **client_properties(cluster),
        "bootstrap.servers": cluster.bootstrap_servers,
        **extra,
    }
    if cluster.sasl and cluster.sasl.mechanism == AWS_MSK_IAM:
        signing_keys(cluster)  # an error inside of the callback would be librdkafka's
        config["oauth_cb"] = lambda _: fresh_token(cluster)
    return config


class Admin:
    """A new admin client, used in a ``with`` block.

    If a client with a request that was given up is left to Python's garbage collector, the late answer can make the
    client's own thread collect it, and librdkafka then ends the process. The end of the block closes it in time.

    Raises:
        PropertyRefused: The client does not accept the cluster's properties.
    """

    def __init__(self, cluster: Cluster) -> None:
        from confluent_kafka.admin import AdminClient

        self.cluster, self.errors = cluster, ClientErrors(cluster)
        with _property_errors(cluster):
            self.client = AdminClient(client_config(cluster, error_cb=self.errors))

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *raised: object) -> None:
        self.client.__exit__(*raised)

    def wait(self, asked: Collection[Future[Any]], *, request_seconds: float | None = None) -> None:
        """Wait until all requests are answered or timed out.

        Args:
            request_seconds: The limit of the requests, if it is not ``REQUEST_SECONDS``. The client may take it twice:
                to ask for the leaders, and to ask the leaders.

        Raises:
            AccessRefused: The brokers refuse our credentials; raised at once.
            BrokerUnreachable: The client lost an answer, and would wait for it forever.
        """
        seconds = 2 * (request_seconds or REQUEST_SECONDS) + LATE_SECONDS
        until = monotonic() + seconds
        while lost := wait(asked, timeout=0.1).not_done:
            self.client.poll(0)
            self.errors.refuse()
            if monotonic() > until:
                self.errors.refuse(answer_came_late=True)
                detail = f"{len(lost)} of {len(asked)} requests not answered within {seconds:g} s"
                raise broker_unreachable(self.cluster, detail)

    @contextmanager
    def reachable(self) -> Iterator[None]:
        """Translate the client's errors for unreachable brokers; others pass.

        Raises:
            BrokerUnreachable, AccessRefused: No broker answers.
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
            self.errors.refuse(answer_came_late=True)
            raise broker_unreachable(self.cluster, error.str()) from refused

    def topics(self) -> Mapping[str, Any]:
        """The visible topics, each with its ``partitions``; raises as ``reachable``."""
        with self.reachable():
            return self.client.list_topics(timeout=REQUEST_SECONDS).topics


@contextmanager
def open_consumer(
    cluster: Cluster,
    positions: Mapping[TopicPartition, int],
    *,
    committed: bool = True,
    fetch_bytes: int = ONE_BATCH,
) -> Iterator[tuple[Consumer, ClientErrors]]:
    """A new consumer that reads from these positions, uses no group, and reports the ends of topic partitions.

    Args:
        committed: Read only committed messages; else those of open and aborted transactions too.
        fetch_bytes: Bytes to fetch at a time from each topic partition; a broker sends at least one batch.

    Raises:
        PropertyRefused: The client does not accept the cluster's properties.
    """
    from confluent_kafka import Consumer

    errors = ClientErrors(cluster)
    config = {
        # The client demands a group id; nothing is ever committed to it or read from it.
        "group.id": "kdi-reads-no-group-offsets",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "auto.offset.reset": "error",
        "fetch.message.max.bytes": fetch_bytes,
        "fetch.max.bytes": 1_000_000,
        "error_cb": errors,
    }
    with _property_errors(cluster):
        consumer = Consumer(client_config(cluster, **config))
    try:
        consumer.assign([rd_partition(tp, offset) for tp, offset in positions.items()])
        yield consumer, errors
    finally:
        consumer.close()


def poll_messages(
    cluster: Cluster,
    positions: Mapping[TopicPartition, int],
    waiting: Collection[TopicPartition],
    *,
    seconds: float,
    most: int = 100,
    committed: bool = True,
    fetch_bytes: int = ONE_BATCH,
) -> Iterator[tuple[TopicPartition, Message]]:
    """Messages, ends and errors of topic partitions, until the time is up or ``waiting`` is empty.

    Args:
        positions, committed, fetch_bytes: As in ``open_consumer``.
        waiting: The caller removes topic partitions of which it has enough.
        most: How many messages are taken from the client at a time.

    Raises:
        AccessRefused: The brokers refuse our credentials.
        PropertyRefused: As ``open_consumer``.
    """
    if not waiting:
        return
    until = monotonic() + seconds
    with open_consumer(cluster, positions, committed=committed, fetch_bytes=fetch_bytes) as (consumer, errors):
        while waiting and monotonic() < until:
            errors.refuse()
            for message in next_messages(consumer, most):
                tp = topic_partition_of(message)
                if tp not in waiting:
                    continue  # has enough, or is an error about the group, which the client looks up by itself
                yield tp, message
                if tp not in waiting:
                    consumer.pause([rd_partition(tp)])


def next_messages(consumer: Consumer, most: int) -> list[Message]:
    """At most ``most`` messages that the consumer has now, or the first that comes within 0.2 seconds."""
    first = consumer.poll(0.2)
    if first is None:
        return []
    return [first, *consumer.consume(num_messages=most - 1, timeout=0)]


def rd_partition(tp: TopicPartition, offset: int = -1001) -> Any:
    """The topic partition as the client's type; by default without an offset."""
    from confluent_kafka import TopicPartition as RdPartition

    return RdPartition(tp.topic, tp.partition, offset)


def topic_partition_of(message: Message) -> TopicPartition:
    """The topic partition of a message."""
    return TopicPartition(str(message.topic()), message.partition() or 0)


@contextmanager
def _property_errors(cluster: Cluster) -> Iterator[None]:
    """Translate a new client's errors about its properties.

    Raises:
        PropertyRefused: The client does not accept them.
    """
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as refused:
        raise PropertyRefused(cluster=cluster.name, detail=refused.args[0].str()) from refused
