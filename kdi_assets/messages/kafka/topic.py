"""Topic ids and offsets of a Kafka cluster. No JVM, no consumer group.

Everything is read as ``read_committed``: an end offset is the last stable offset, and an open transaction shows as the
distance to the high watermark.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.stream import Cluster, TopicPartition
from kdi_assets.errors import KdiError
from kdi_assets.messages.kafka.access import authorization_error
from kdi_assets.messages.kafka.client import Admin, open_consumer, rd_partition, topic_unanswered
from kdi_assets.messages.kafka.errors import AccessRefused, BrokerUnreachable, LeaderMissing, TopicMissing
from kdi_assets.messages.source import LEADER_SECONDS, REQUEST_SECONDS
from kdi_assets.messages.topic_state import BrokerOffsets, TopicState
from kdi_assets.wording import did_you_mean

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import Message


def read_topics(
    cluster: Cluster, topics: Collection[str], *, leader_seconds: float = LEADER_SECONDS
) -> dict[str, TopicState | KdiError]:
    """Read many topics in one batch of requests, and repeat it for topics whose leaders are changing.

    Args:
        leader_seconds: How long to repeat; a caller that reads again soon need not wait.

    Returns:
        By topic its state, or its error; an error does not affect the other topics.

    Raises:
        BrokerUnreachable: No broker answered at all.
        AccessRefused: The brokers refuse our credentials.

    Source: Kafka protocol, "ListOffsets" and "DescribeTopicPartitions" (topic ids: KIP-516).
    """
    until = monotonic() + leader_seconds
    states = _read(cluster, topics)
    while (moving := [t for t, s in states.items() if isinstance(s, LeaderMissing)]) and monotonic() < until:
        sleep(0.1)
        try:
            states |= _read(cluster, moving)
        except (BrokerUnreachable, AccessRefused):
            break  # the others have their answers
    return states


def _read(cluster: Cluster, topics: Collection[str]) -> dict[str, TopicState | KdiError]:
    with Admin(cluster) as admin:  # a new one each time: a client caches leaders
        return _states(admin, topics)


def _states(admin: Admin, topics: Collection[str]) -> dict[str, TopicState | KdiError]:
    from confluent_kafka import KafkaException, TopicCollection

    with admin.reachable():
        futures = admin.client.describe_topics(TopicCollection(sorted(topics)), request_timeout=REQUEST_SECONDS)
    admin.wait(futures.values())
    described: dict[str, Any] = {}
    states: dict[str, TopicState | KdiError] = {}
    for topic, future in futures.items():
        try:
            with admin.reachable():
                described[topic] = future.result()
        except KafkaException as refused:
            states[topic] = topic_error(admin.cluster, topic, refused)
    partitions = {t: sorted(TopicPartition(t, p.id) for p in d.partitions) for t, d in described.items()}
    offsets = _list_offsets(admin, [tp for of in partitions.values() for tp in of])
    for topic, description in described.items():
        own = {tp: offsets[tp] for tp in partitions[topic]}
        broken = next((o for o in own.values() if isinstance(o, KdiError)), None)
        healthy = {tp: o for tp, o in own.items() if isinstance(o, BrokerOffsets)}
        states[topic] = broken or TopicState(topic, str(description.topic_id), healthy)
    return states


def with_same_ends(cluster: Cluster, states: Collection[TopicState]) -> dict[str, TopicState]:
    """Those of the states whose topics still end where they did, by topic; not those that do not answer in time.

    Source: librdkafka, ``rd_kafka_offsets_for_times``: a time is sent as it is, and -1 asks for the end (Kafka
    protocol, "ListOffsets"), for all topic partitions in one call. An admin client has a future for each of them.
    """
    from confluent_kafka import OFFSET_END, KafkaException

    known = {tp: end for state in states for tp, end in state.ends.items()}
    with open_consumer(cluster, {}) as (consumer, _):
        try:
            asked = [rd_partition(tp, OFFSET_END) for tp in known]
            found = consumer.offsets_for_times(asked, timeout=REQUEST_SECONDS)
        except KafkaException:
            return {}  # whoever asks for the whole topics then hears why
    ends = {TopicPartition(tp.topic, tp.partition): tp.offset for tp in found if tp.error is None}
    return {state.topic: state for state in states if all(ends.get(tp) == end for tp, end in state.ends.items())}


def read_topic(cluster: Cluster, topic: str) -> TopicState:
    """Read one topic.

    Raises:
        TopicMissing: The cluster does not know the topic.
        LeaderMissing: A topic partition has no leader that answers.
        BrokerUnreachable: No broker answered.
        AccessRefused: The brokers refuse our credentials, or the right to the topic.
    """
    state = read_topics(cluster, [topic])[topic]
    if isinstance(state, TopicMissing):
        with suppress(KdiError):  # the topic is missing, whatever else the brokers refuse
            topics = topics_of(cluster)
            state = replace(state, hint=did_you_mean(topic, topics) if topics else "it has no topic at all.")
    if isinstance(state, KdiError):
        raise state
    return state


def topics_of(cluster: Cluster) -> tuple[str, ...]:
    """The names of all visible topics, without Kafka's own.

    Raises:
        BrokerUnreachable: No broker answered.
        AccessRefused: The brokers refuse our credentials.
    """
    with Admin(cluster) as admin:
        return tuple(sorted(name for name in admin.topics() if not name.startswith("__")))


def offsets_at(cluster: Cluster, topic: TopicState, moment: datetime) -> dict[TopicPartition, int]:
    """The first offset of each topic partition with a timestamp at or after ``moment``; the end if there is none.

    Raises:
        LeaderMissing: A topic partition has no leader that answers.
        BrokerUnreachable: No broker answered.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import OffsetSpec

    spec = OffsetSpec.for_timestamp(int(moment.timestamp() * 1000))
    try:
        with Admin(cluster) as admin, admin.reachable():
            found = _ask_offsets(admin, list(topic.partitions), spec, committed=True)
            admin.wait(found.values())
            answered = {tp: future.result() for tp, future in found.items()}
    except KafkaException as refused:
        raise _offsets_error(cluster, topic.topic, refused) from refused
    return {tp: info.offset if info.offset >= 0 else topic.partitions[tp].end for tp, info in answered.items()}


def _list_offsets(admin: Admin, partitions: list[TopicPartition]) -> dict[TopicPartition, BrokerOffsets | KdiError]:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import OffsetSpec

    earliest = _ask_offsets(admin, partitions, OffsetSpec.earliest(), committed=True)
    end = _ask_offsets(admin, partitions, OffsetSpec.latest(), committed=True)
    high = _ask_offsets(admin, partitions, OffsetSpec.latest(), committed=False)
    admin.wait([*earliest.values(), *end.values(), *high.values()])
    answers: dict[TopicPartition, BrokerOffsets | KdiError] = {}
    for tp in partitions:
        try:
            answers[tp] = BrokerOffsets(*(int(asked[tp].result().offset) for asked in (earliest, end, high)))
        except KafkaException as refused:
            answers[tp] = _offsets_error(admin.cluster, tp.topic, refused)
    return answers


def _ask_offsets(
    admin: Admin, partitions: list[TopicPartition], spec: Any, *, committed: bool
) -> dict[TopicPartition, Future[Any]]:
    from confluent_kafka import IsolationLevel

    if not partitions:
        return {}
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    with admin.reachable():
        asked = admin.client.list_offsets(
            {rd_partition(tp): spec for tp in partitions}, isolation_level=level, request_timeout=REQUEST_SECONDS
        )
    return {TopicPartition(tp.topic, tp.partition): future for tp, future in asked.items()}


def topic_error(cluster: Cluster, topic: str, refused: Exception, *, right: str = "Describe") -> KdiError:
    """The error of a topic: missing, unreachable, or a missing right, as Kafka's ACLs name it."""
    if _is_unknown(refused):
        return TopicMissing(cluster=cluster.name, topic=topic, bootstrap_servers=cluster.bootstrap_servers)
    return _offsets_error(cluster, topic, refused, right=right)


def _offsets_error(cluster: Cluster, topic: str, refused: Exception, *, right: str = "Describe") -> KdiError:
    """The error of a described topic without offsets; if a broker does not know it, it was just created or deleted."""
    from confluent_kafka import KafkaError

    error = refused.args[0]
    moving = (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    )
    if error.code() in moving or _is_unknown(refused):
        return LeaderMissing(cluster=cluster.name, topic=topic, detail=error.str())
    if error.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED):
        return authorization_error(cluster, f"{right} on topic {topic}: {error.str()}")
    return topic_unanswered(cluster, f"{topic}: {error.str()}")


def reading_refused(cluster: Cluster, message: Message) -> KdiError | None:
    """The error of a polled message; ``None`` for a message, an end, or an offset that retention deleted."""
    from confluent_kafka import KafkaError, KafkaException

    error = message.error()
    ends = (KafkaError._PARTITION_EOF, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)
    if error is None or error.code() in ends:
        return None
    return topic_error(cluster, str(message.topic()), KafkaException(error), right="Read")


def _is_unknown(refused: Exception) -> bool:
    from confluent_kafka import KafkaError

    unknown = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
    return refused.args[0].code() in unknown
