"""Errors of Kafka."""

from __future__ import annotations

from kdi_assets.errors import Terminal, Transient


class LeaderMissing(Transient):
    """The brokers know the topic, but at this moment a topic partition has no leader that answers."""

    cluster: str
    topic: str
    detail: str

    what_happened = "Kafka cluster {cluster}: no leader answers for all partitions of {topic!r} ({detail})."
    what_is_safe = "nothing was read and nothing was written."
    what_to_run = (
        "repeat the command: leaders change when a topic is new and when a broker restarts; if the error stays, check "
        "the brokers"
    )


class TopicMissing(Terminal):
    """The cluster does not know the topic."""

    cluster: str
    topic: str

    what_happened = "Kafka cluster {cluster} has no topic {topic!r}."
    what_is_safe = "nothing was read and nothing was written; positions stay as they are."
    what_to_run = "create the topic, or correct `topic:` in the stream's document and run `kdi check`"


class BrokerUnreachable(Transient):
    """No broker of the cluster answered in time, or it refused the connection."""

    cluster: str
    bootstrap_servers: str
    detail: str

    what_happened = "Kafka cluster {cluster}: no answer from {bootstrap_servers} ({detail})."
    what_is_safe = "nothing was read and nothing was written."
    what_to_run = "check the address and the brokers, then repeat the command; `kdi broker run` starts a local one"


class AccessRefused(Terminal):
    """The brokers refuse our credentials or rights; a retry with the same credentials may lock the account."""

    cluster: str
    bootstrap_servers: str
    refused: str
    detail: str

    what_happened = "Kafka cluster {cluster}: {bootstrap_servers} refuses {refused} ({detail})."
    what_is_safe = "nothing was committed; positions stay as they are."
    what_to_run = (
        "correct the sasl.* and ssl.* properties of the cluster's document, the environment variables that it names, "
        "or the user's rights at the broker; then repeat the command"
    )


class PropertyRefused(Terminal):
    """The client does not accept the properties of a cluster."""

    cluster: str
    detail: str

    what_happened = "Kafka cluster {cluster}: the client does not accept its properties: {detail}."
    what_is_safe = "no broker was asked; nothing was read and nothing was written."
    what_to_run = "correct `properties:` of the cluster's document (names and values are librdkafka's), then kdi doctor"


class AdvertisedUnreachable(Transient):
    """The cluster answers, but some of its advertised brokers accept no connection from here."""

    cluster: str
    unreachable: tuple[str, ...]
    brokers: int

    def message_parts(self) -> tuple[str, str, str]:
        return (
            f"Kafka cluster {self.cluster}: {len(self.unreachable)} of {self.brokers} brokers take no connection from "
            f"here: {', '.join(self.unreachable)}.",
            "nothing was read; drains of topic partitions that these brokers lead stop before they write.",
            "repeat the command; if the error stays, check these brokers, their advertised.listeners, and the network "
            "between",
        )
