"""Whether a cluster's brokers answer, and whether they let us read: tried, not concluded. No consumer group."""

from __future__ import annotations

import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from kdi_assets.errors import KdiError, Transient
from kdi_assets.runtime.threads import begin
from kdi_assets.sources.kafka import TopicState, topic_error
from kdi_assets.sources.kafka_client import (
    AccessRefused,
    BrokerUnreachable,
    Heard,
    await_answers,
    open_admin,
    open_consumer,
    polled,
    reachable,
)
from kdi_assets.sources.kafka_config import right_refused
from kdi_assets.stream import KafkaCluster, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

ANSWER_SECONDS = 5.0
"""How long a broker may take for an answer that it has in memory."""

CONNECT_SECONDS = 2.0
"""How long a connection may take."""


@dataclass(frozen=True, slots=True)
class Brokers:
    """A cluster that answers.

    Attributes:
        addresses: ``host:port`` of each broker, as the cluster advertises it.
        latency_seconds: Of one question and its answer, on a connection that stands.
    """

    addresses: tuple[str, ...]
    latency_seconds: float


class AdvertisedUnreachable(Transient):
    """The cluster answers, and some of the brokers that it names do not take a connection from here."""

    cluster: str
    unreachable: tuple[str, ...]
    brokers: int

    def parts(self) -> tuple[str, str, str]:
        return (
            f"Kafka cluster {self.cluster}: {len(self.unreachable)} of {self.brokers} brokers take no connection from "
            f"here: {', '.join(self.unreachable)}.",
            "nothing was read; drains of topic partitions that these brokers lead stop before they write.",
            "the same command once more; if it repeats, look at these brokers, at their advertised.listeners, and at "
            "the network between",
        )


def ask_brokers(cluster: KafkaCluster) -> Brokers:
    """Ask the cluster who it is, twice, and knock at every broker that it names.

    Raises:
        BrokerUnreachable: No broker answered.
        AccessRefused: The brokers refuse our credentials.
        AdvertisedUnreachable: Some brokers take no connection.
    """
    admin, heard = open_admin(cluster)
    try:
        addresses, _ = _described(cluster, admin, heard)  # it pays for the connection
        refuse_deaf(cluster, addresses)
        return Brokers(*_described(cluster, admin, heard))
    except BrokerUnreachable:
        # Who answered at the given address may be out of reach at the one that it advertises.
        refuse_deaf(cluster, heard.unreachable)
        raise


def _described(cluster: KafkaCluster, admin: AdminClient, heard: Heard) -> tuple[tuple[str, ...], float]:
    """The brokers, and how long the answer took."""
    from confluent_kafka import KafkaException

    began = monotonic()
    try:
        with reachable(cluster, admin, heard):
            asked = admin.describe_cluster(request_timeout=ANSWER_SECONDS)
            await_answers(admin, heard, [asked], request_seconds=ANSWER_SECONDS)
            nodes = asked.result().nodes
    except KafkaException as refused:
        detail, servers = refused.args[0].str(), cluster.bootstrap_servers
        raise BrokerUnreachable(cluster=cluster.name, bootstrap_servers=servers, detail=detail) from refused
    return tuple(f"{node.host}:{node.port}" for node in nodes), monotonic() - began


def refuse_deaf(cluster: KafkaCluster, addresses: Collection[str]) -> None:
    """Knock at every address.

    Raises:
        AdvertisedUnreachable: Some take no connection.
    """
    if deaf := _deaf(addresses):
        raise AdvertisedUnreachable(cluster=cluster.name, unreachable=deaf, brokers=len(addresses))


def _deaf(addresses: Collection[str]) -> tuple[str, ...]:
    begun = {address: begin(partial(_hears, address), name=f"knock at {address}") for address in addresses}
    return tuple(address for address, heard in begun.items() if not heard.result())


def _hears(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def try_reading(cluster: KafkaCluster, topics: Collection[TopicState]) -> dict[str, KdiError]:
    """Fetch at the end of every topic partition, as a drain's second client reads.

    Returns:
        What stands in the way, for each topic of which it is known; the others were read.

    Raises:
        AccessRefused: The brokers refuse our credentials.
    """
    ends = {tp: offsets.end for topic in topics for tp, offsets in topic.partitions.items()}
    answered, refusals = _fetch(cluster, ends) if ends else (set(), {})
    for tp in sorted(ends.keys() - answered):
        detail = f"{tp}: no answer to a fetch"
        servers = cluster.bootstrap_servers
        refusals.setdefault(tp.topic, BrokerUnreachable(cluster=cluster.name, bootstrap_servers=servers, detail=detail))
    return refusals


def _fetch(
    cluster: KafkaCluster, ends: Mapping[TopicPartition, int]
) -> tuple[set[TopicPartition], dict[str, KdiError]]:
    """Topic partitions that answered in time, and what was refused by topic."""
    from confluent_kafka import KafkaError, KafkaException

    answers = (KafkaError._PARTITION_EOF, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)
    answered: set[TopicPartition] = set()
    refusals: dict[str, KdiError] = {}
    with open_consumer(cluster, ends) as (consumer, heard):
        for batch in polled(consumer, heard, seconds=ANSWER_SECONDS):
            for message in batch:
                topic, error = message.topic(), message.error()
                if topic is None:
                    continue  # about the group, which the client looks up although nobody asks it to
                answered.add(TopicPartition(topic, message.partition() or 0))
                if error is not None and error.code() not in answers:
                    refusals[topic] = _reading_refused(cluster, topic, KafkaException(error))
            if answered >= ends.keys():
                break
    return answered, refusals


def _reading_refused(cluster: KafkaCluster, topic: str, refused: Exception) -> KdiError:
    refusal = topic_error(cluster, topic, refused)
    return right_refused(cluster, "Read", topic, refused) if isinstance(refusal, AccessRefused) else refusal
