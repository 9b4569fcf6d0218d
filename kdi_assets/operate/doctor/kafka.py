"""Kafka: whether brokers answer, grant the rights of a drain, and retention leaves enough time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite

from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.errors import KdiError
from kdi_assets.messages.kafka.errors import AccessRefused
from kdi_assets.messages.kafka.probe import ask_brokers, try_reading
from kdi_assets.messages.kafka.security import java_properties
from kdi_assets.messages.kafka.topic import read_topics
from kdi_assets.messages.kafka.topic_config import TRANSACTIONS, knows_transactions, topic_configs
from kdi_assets.messages.of_stream import source_of
from kdi_assets.messages.topic_state import Retention, TopicState
from kdi_assets.operate.doctor.finding import Finding, Trouble, fine, warning, wrong
from kdi_assets.operate.monitoring.backlog_reader import Backlog, read_backlogs
from kdi_assets.operate.monitoring.errors import BacklogNotKnownYet
from kdi_assets.wording import byte_size, counted, duration

NEAR_SHARE = 0.5
"""Age of the next message as a share of its retention time: more is a warning."""


def brokers(cluster: Cluster) -> Iterator[Finding]:
    """Whether the cluster answers, and every broker that it names accepts a connection.

    Raises:
        BrokerUnreachable, AccessRefused, AdvertisedUnreachable: One does not.
        EnvironmentVariableMissing: A property of the cluster names a variable that is not set.
        KeyNotPkcs8: Spark's client cannot read the key of our certificate.
    """
    answer = ask_brokers(cluster)
    java_properties(cluster)  # what Spark's client cannot take would only be found by a drain
    seconds, addresses = answer.latency_seconds, answer.addresses
    found = f"{counted(len(addresses), 'broker')}, {seconds * 1000:.0f} ms: {', '.join(addresses)}"
    yield fine("brokers", cluster.name, found, addresses=addresses, latency_seconds=seconds)


def rights(cluster: Cluster, topics: Sequence[str]) -> Iterator[Finding]:
    """Try Describe, Read and DescribeConfigs on every topic, and Describe on the cluster's transactions.

    Raises:
        BrokerUnreachable, AccessRefused: No broker answers.
    """
    states, configs = read_topics(cluster, topics), topic_configs(cluster, topics)
    refused_reading = try_reading(cluster, [s for s in states.values() if isinstance(s, TopicState)])
    for topic in topics:
        answers = (states[topic], configs[topic], refused_reading.get(topic))
        yield from _rights(cluster, topic, [answer for answer in answers if isinstance(answer, KdiError)])
    yield from _transactions(cluster)


def _rights(cluster: Cluster, topic: str, refusals: Sequence[KdiError]) -> Iterator[Finding]:
    if not refusals:
        yield fine("rights", topic, "Describe, Read and DescribeConfigs tried", cluster=cluster.name)
    for refusal in {str(refusal): refusal for refusal in refusals}.values():  # a missing topic is refused three times
        yield wrong("rights", topic, refusal, cluster=cluster.name)


def _transactions(cluster: Cluster) -> Iterator[Finding]:
    """Only a warning: a drain needs this right only when it finds offsets without messages."""
    try:
        known = knows_transactions(cluster)
    except AccessRefused as hidden:
        yield warning("rights", TRANSACTIONS, hidden, cluster=cluster.name)
    else:
        found = f"Describe tried: {'transactions began here' if known else 'no transaction ever began'}"
        yield fine("rights", TRANSACTIONS, found, cluster=cluster.name, transactions=known)


def streams(own: Sequence[Stream], *, lake: str) -> Iterator[Finding]:
    """Why a drain of each stream of a connection would be refused, and how near each is to losing messages."""
    backlogs = read_backlogs(own, lake=lake)
    with_backlog = {stream.topic for stream, backlog in zip(own, backlogs, strict=True) if backlog.known}
    kept = source_of(own[0]).retention(with_backlog) if with_backlog else {}
    for stream, backlog in zip(own, backlogs, strict=True):
        yield _stream(stream, backlog)
        if backlog.known and stream.topic in kept:
            yield retention(stream, backlog, kept[stream.topic])


def _stream(stream: Stream, backlog: Backlog) -> Finding:
    facts: dict[str, object] = {
        "backlog_offsets": backlog.offsets if backlog.known else None,
        "backlog_bytes": backlog.bytes,
        "lag_seconds": backlog.lag_seconds,
        "status_word": backlog.word,
    }
    if backlog.refusal:
        return wrong("stream", stream.name, backlog.refusal, **facts)
    if backlog.topic_partitions and not backlog.known:
        return warning("stream", stream.name, BacklogNotKnownYet(stream=stream.name), **facts)
    lag = f", the oldest for {duration(backlog.lag_seconds)}" if backlog.lag_seconds is not None else ""
    if isinstance(stream.cluster, Cluster) or not backlog.offsets:
        return fine("stream", stream.name, f"{counted(backlog.offsets, 'offset')} wait{lag}", **facts)
    return fine("stream", stream.name, f"records wait on {counted(backlog.offsets, 'shard')}{lag}", **facts)


def retention(stream: Stream, backlog: Backlog, kept: Retention) -> Finding:
    """The age of the next message, compared with the time until its loss."""
    lag, left, close = backlog.lag_seconds, backlog.time_to_loss_seconds, backlog.time_to_close_seconds
    facts: dict[str, object] = {
        "retention_seconds": kept.seconds,
        "retention_bytes": kept.bytes,
        "lag_seconds": lag,
        "time_to_loss_seconds": left,
    }
    if not backlog.offsets:
        return fine("retention", stream.name, f"{_kept(kept)}; no backlog", **facts)
    if backlog.needs_position_commit and left is None:
        return fine("retention", stream.name, f"{_kept(kept)}; the table begins with its first drain", **facts)
    if lag is None or left is None:
        return warning("retention", stream.name, _lag_unknown(stream), **facts)
    if isfinite(left) and lag >= NEAR_SHARE * (lag + left):
        verdict = wrong if left <= (close or 0.0) else warning
        return verdict("retention", stream.name, _near_loss(stream, lag, left, close), **facts)
    until = f"{duration(left)} until loss" if isfinite(left) else "never lost"
    return fine("retention", stream.name, f"{_kept(kept)}; the backlog is {duration(lag)} old, {until}", **facts)


def _lag_unknown(stream: Stream) -> Trouble:
    look = f"kdi peek {stream.name}    (what does it hold?); " if isinstance(stream.cluster, Cluster) else ""
    return Trouble(
        kind="lag unknown",
        happened=f"{stream.name}: messages wait in {stream.topic}; the oldest has no timestamp or could not be read.",
        safe="every offset below the position is accounted for.",
        run=f"{look}kdi drain {stream.name}",
    )


def _near_loss(stream: Stream, lag: float, left: float, close: float | None) -> Trouble:
    when = f"in {duration(left)}" if left > 0 else "at any moment"
    takes = f"; a drain that begins now is expected to take {duration(close)}" if close and isfinite(close) else ""
    setting = "retention.ms or retention.bytes" if isinstance(stream.cluster, Cluster) else "the retention period"
    return Trouble(
        kind="retention near",
        happened=f"{stream.name}: the oldest message of the backlog is {duration(lag)} old, and retention may "
        f"delete it {when}{takes}.",
        safe="every offset below the position is accounted for; nothing is lost yet.",
        run=f"kdi drain {stream.name}    (if that is too late, raise {setting} of {stream.topic} first)",
    )


def _kept(kept: Retention) -> str:
    time = f"kept for {duration(kept.seconds)}" if kept.seconds is not None else "kept for ever"
    return time if kept.bytes is None else f"{time}, at most {byte_size(kept.bytes)} per topic partition"


def backlog_bytes(findings: Sequence[Finding]) -> int:
    """Size of all backlogs that are known: keys and values."""
    sizes = (finding.facts.get("backlog_bytes") for finding in findings if finding.examination == "stream")
    return sum(size for size in sizes if isinstance(size, int))
