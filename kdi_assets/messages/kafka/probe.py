"""Tries whether a cluster's brokers answer, and whether we may read. No consumer group."""

from __future__ import annotations

import socket
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from time import monotonic

from kdi_assets.documents.model.stream import Cluster
from kdi_assets.errors import KdiError
from kdi_assets.messages.kafka.client import Admin, broker_unreachable, poll_messages
from kdi_assets.messages.kafka.errors import AdvertisedUnreachable, BrokerUnreachable
from kdi_assets.messages.kafka.topic import reading_refused
from kdi_assets.messages.topic_state import TopicState
from kdi_assets.runtime.threads import start_in_thread

ANSWER_SECONDS = 5.0
"""How long a broker may take to answer from memory."""

CONNECT_SECONDS = 2.0
"""How long a connection may take."""


@dataclass(frozen=True, slots=True)
class Brokers:
    """A cluster that answers.

    Attributes:
        addresses: ``host:port`` of each broker, as the cluster advertises it.
        latency_seconds: Of one request on an open connection.
    """

    addresses: tuple[str, ...]
    latency_seconds: float


def ask_brokers(cluster: Cluster) -> Brokers:
    """Describe the cluster, and connect to every broker that it advertises.

    Raises:
        BrokerUnreachable: No broker answered.
        AccessRefused: The brokers refuse our credentials.
        AdvertisedUnreachable: Some brokers accept no connection.
    """
    with Admin(cluster) as admin:
        try:
            addresses, _ = _described(admin)  # opens the connection, so that only the second request is timed
            refuse_unreachable(cluster, addresses)
            return Brokers(*_described(admin))
        except BrokerUnreachable:
            # A broker may answer at its bootstrap address, and be unreachable at the address that it advertises.
            refuse_unreachable(cluster, admin.errors.unreachable)
            raise


def _described(admin: Admin) -> tuple[tuple[str, ...], float]:
    """The brokers, and how long the answer took."""
    from confluent_kafka import KafkaException

    began = monotonic()
    try:
        with admin.reachable():
            asked = admin.client.describe_cluster(request_timeout=ANSWER_SECONDS)
            admin.wait([asked], request_seconds=ANSWER_SECONDS)
            nodes = asked.result().nodes
    except KafkaException as refused:
        raise broker_unreachable(admin.cluster, refused.args[0].str()) from refused
    return tuple(f"{node.host}:{node.port}" for node in nodes), monotonic() - began


def refuse_unreachable(cluster: Cluster, addresses: Collection[str]) -> None:
    """Connect to every address.

    Raises:
        AdvertisedUnreachable: Some accept no connection.
    """
    tries = {
        address: start_in_thread(partial(_connects, address), name=f"connect to {address}") for address in addresses
    }
    if unreachable := tuple(address for address, connected in tries.items() if not connected.result()):
        raise AdvertisedUnreachable(cluster=cluster.name, unreachable=unreachable, brokers=len(addresses))


def _connects(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def try_reading(cluster: Cluster, topics: Collection[TopicState]) -> dict[str, KdiError]:
    """Fetch at the end of every topic partition, as the drain's second client does.

    Returns:
        The error of each topic that could not be read.

    Raises:
        AccessRefused: The brokers refuse our credentials.
    """
    silent = {tp: offsets.end for topic in topics for tp, offsets in topic.partitions.items()}
    refusals: dict[str, KdiError] = {}
    for tp, message in poll_messages(cluster, silent, silent, seconds=ANSWER_SECONDS):
        del silent[tp]
        if refusal := reading_refused(cluster, message):
            refusals[tp.topic] = refusal
    for tp in sorted(silent):
        refusals.setdefault(tp.topic, broker_unreachable(cluster, f"{tp}: no answer to a fetch"))
    return refusals
