"""Whether a cluster's brokers answer, and whether they let us read: tried, not concluded. No consumer group."""

from __future__ import annotations

import socket
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from time import monotonic

from kdi_assets.errors import KdiError
from kdi_assets.runtime.threads import begin
from kdi_assets.sources.kafka.client import Admin, nobody_answers, polled
from kdi_assets.sources.kafka.errors import AdvertisedUnreachable, BrokerUnreachable
from kdi_assets.sources.kafka.topic import TopicState, reading_refused
from kdi_assets.stream.stream import Cluster

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


def ask_brokers(cluster: Cluster) -> Brokers:
    """Ask the cluster who it is, twice, and knock at every broker that it names.

    Raises:
        BrokerUnreachable: No broker answered.
        AccessRefused: The brokers refuse our credentials.
        AdvertisedUnreachable: Some brokers take no connection.
    """
    admin = Admin(cluster)
    try:
        addresses, _ = _described(admin)  # it pays for the connection
        refuse_deaf(cluster, addresses)
        return Brokers(*_described(admin))
    except BrokerUnreachable:
        # Who answered at the given address may be out of reach at the one that it advertises.
        refuse_deaf(cluster, admin.heard.unreachable)
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
        raise nobody_answers(admin.cluster, refused.args[0].str()) from refused
    return tuple(f"{node.host}:{node.port}" for node in nodes), monotonic() - began


def refuse_deaf(cluster: Cluster, addresses: Collection[str]) -> None:
    """Knock at every address.

    Raises:
        AdvertisedUnreachable: Some take no connection.
    """
    begun = {address: begin(partial(_hears, address), name=f"knock at {address}") for address in addresses}
    if deaf := tuple(address for address, heard in begun.items() if not heard.result()):
        raise AdvertisedUnreachable(cluster=cluster.name, unreachable=deaf, brokers=len(addresses))


def _hears(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def try_reading(cluster: Cluster, topics: Collection[TopicState]) -> dict[str, KdiError]:
    """Fetch at the end of every topic partition, as a drain's second client reads.

    Returns:
        What stands in the way, for each topic of which it is known; the others were read.

    Raises:
        AccessRefused: The brokers refuse our credentials.
    """
    silent = {tp: offsets.end for topic in topics for tp, offsets in topic.partitions.items()}
    refusals: dict[str, KdiError] = {}
    for tp, message in polled(cluster, silent, silent, seconds=ANSWER_SECONDS):
        del silent[tp]
        if refusal := reading_refused(cluster, message):
            refusals[tp.topic] = refusal
    for tp in sorted(silent):
        refusals.setdefault(tp.topic, nobody_answers(cluster, f"{tp}: no answer to a fetch"))
    return refusals
