"""The configuration of topics: retention, compaction, transactions. No JVM."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kdi_assets.documents.model.stream import Cluster
from kdi_assets.errors import KdiError
from kdi_assets.messages.kafka.client import Admin
from kdi_assets.messages.kafka.errors import TopicMissing
from kdi_assets.messages.kafka.topic import topic_error
from kdi_assets.messages.source import REQUEST_SECONDS
from kdi_assets.messages.topic_state import Retention

TRANSACTIONS = "__transaction_state"
"""The broker creates this topic with the first transaction: without it there are no transaction markers."""

TopicConfig = Mapping[str, str]
"""Settings by name, defaults included."""


def topic_configs(cluster: Cluster, topics: Collection[str]) -> dict[str, TopicConfig | KdiError]:
    """The configuration of many topics, or the error of each.

    Raises:
        BrokerUnreachable: No broker answered at all.
        AccessRefused: The brokers refuse our credentials.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    if not topics:
        return {}
    wanted = {topic: ConfigResource(ResourceType.TOPIC, topic) for topic in topics}
    configs: dict[str, TopicConfig | KdiError] = {}
    with Admin(cluster) as admin:
        asked = admin.client.describe_configs(list(wanted.values()), request_timeout=REQUEST_SECONDS)
        admin.wait(asked.values())
        for topic, resource in wanted.items():
            try:
                with admin.reachable():
                    configs[topic] = {name: str(entry.value) for name, entry in asked[resource].result().items()}
            except KafkaException as refused:
                configs[topic] = topic_error(cluster, topic, refused, right="DescribeConfigs")
    return configs


def retention_of(config: TopicConfig | KdiError) -> Retention | None:
    """The retention of a configuration; ``None`` without access, or if a Kafka-compatible broker lacks a setting.

    Source: Kafka, topic settings ``cleanup.policy``, ``retention.ms`` and ``retention.bytes``; -1 is without limit.
    """
    if isinstance(config, KdiError):
        return None
    try:
        if "delete" not in config["cleanup.policy"]:
            return Retention(None, None)
        milliseconds, size = int(config["retention.ms"]), int(config["retention.bytes"])
    except (KeyError, ValueError):
        return None
    return Retention(milliseconds / 1000 if milliseconds >= 0 else None, size if size >= 0 else None)


def read_retention(cluster: Cluster, topics: Collection[str]) -> dict[str, Retention]:
    """The retention of many topics, in one request; absent if unknown.

    Raises:
        BrokerUnreachable: No broker answered.
        AccessRefused: The brokers refuse our credentials.
    """
    configs = topic_configs(cluster, topics)
    return {topic: kept for topic, config in configs.items() if (kept := retention_of(config)) is not None}


def can_have_gaps(cluster: Cluster, topic: str) -> bool:
    """Whether offsets without a message are normal: the topic is compacted, or the cluster has transactions.

    Whether transactions are possible is known only for the whole cluster: clients do not show control records, so
    nothing tells a transaction's marker in a topic from an offset that the brokers lost.

    Raises:
        AccessRefused: A right is missing; the error names it.
        TopicMissing, LeaderMissing, BrokerUnreachable: There is no answer.
    """
    config = topic_configs(cluster, [topic])[topic]
    if isinstance(config, KdiError):
        raise config
    return "compact" in config["cleanup.policy"] or knows_transactions(cluster)


def knows_transactions(cluster: Cluster) -> bool:
    """Whether the cluster ever had a transaction.

    Asks for the topic by name: a list of all topics leaves out topics without access, as if they did not exist. A
    guess would not be safe: without transactions every marker stops the drain as an unexplained gap, with them a lost
    message passes for a marker. So someone has to grant the right.

    Raises:
        AccessRefused: The right to Describe the topic of the transactions is missing.
        BrokerUnreachable: No broker answered.

    Source: Kafka protocol, "Metadata": for a topic by name an error says that it may not be described, whether it
    exists or not.
    """
    from confluent_kafka import KafkaException, TopicCollection

    topics = TopicCollection([TRANSACTIONS])
    try:
        with Admin(cluster) as admin, admin.reachable():
            asked = admin.client.describe_topics(topics, request_timeout=REQUEST_SECONDS)[TRANSACTIONS]
            admin.wait([asked])
            asked.result()
    except KafkaException as refused:
        refusal = topic_error(cluster, TRANSACTIONS, refused)
        if isinstance(refusal, TopicMissing):
            return False
        raise refusal from refused
    return True


def create_topic(cluster: Cluster, topic: str, *, settings: Mapping[str, str]) -> None:
    """Create a topic with one topic partition; one that somebody created a moment ago is left as it is.

    Raises:
        AccessRefused: The right to create it is missing.
        BrokerUnreachable: No broker answered.
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import NewTopic

    try:
        with Admin(cluster) as admin, admin.reachable():
            asked = admin.client.create_topics([NewTopic(topic, num_partitions=1, config=dict(settings))])[topic]
            admin.wait([asked])
            asked.result()
    except KafkaException as refused:
        if refused.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise topic_error(cluster, topic, refused, right="Create") from refused
