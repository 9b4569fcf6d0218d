"""Where the messages are: the cluster that is meant, and the topic that it must have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from kdi_assets.errors import Terminal
from kdi_assets.proposal.place import NOTHING_WRITTEN
from kdi_assets.sources.kafka import TopicMissing, TopicState, read_topic
from kdi_assets.sources.kafka_sample import Sample, sample, topics_of
from kdi_assets.stream import KafkaCluster

MOST_SHOWN = 10


@dataclass(eq=False, kw_only=True)
class ClusterUnclear(Terminal):
    """No cluster is described, or several are and none is the one that is meant."""

    topic: str
    known: tuple[str, ...]

    def parts(self) -> tuple[str, str, str]:
        safe = "nobody was asked and nothing was written."
        if not self.known:
            return (
                "no document describes a Kafka cluster.",
                safe,
                f"KDI_KAFKA=host:9092 kdi new {self.topic}; or describe the cluster in a document of the type "
                "kdi_assets.components.KafkaCluster",
            )
        clusters = ", ".join(self.known)
        return f"{self.topic} may lie in any of the clusters {clusters}.", safe, self._command()

    def _command(self) -> str:
        return f"kdi new {self.topic} --cluster {self.known[0]}, or another of them"


@dataclass(eq=False, kw_only=True)
class NoSuchTopic(Terminal):
    """The cluster has no topic of that name."""

    cluster: str
    topic: str
    known: tuple[str, ...]

    def parts(self) -> tuple[str, str, str]:
        close = get_close_matches(self.topic, self.known, n=1)
        guess = f": did you mean {close[0]}?" if close else "."
        there = ", ".join(self.known[:MOST_SHOWN]) + (", …" if len(self.known) > MOST_SHOWN else "")
        return (
            f"Kafka cluster {self.cluster} has no topic {self.topic!r}{guess}",
            "nothing was read and nothing was written.",
            f"kdi new with a topic that we may see, of {len(self.known):,}: {there or '(none)'}",
        )


@dataclass(eq=False, kw_only=True)
class NothingToSample(Terminal):
    """The topic holds no message from which anything could be told."""

    cluster: str
    topic: str
    detail: str

    def parts(self) -> tuple[str, str, str]:
        return (
            f"topic {self.topic!r} of Kafka cluster {self.cluster} {self.detail}: nothing to tell a schema by.",
            NOTHING_WRITTEN,
            "the same command once its producer has published; or write the document by hand (docs/streams.md)",
        )


def cluster_meant(name: str | None, clusters: Mapping[str, KafkaCluster], *, topic: str) -> KafkaCluster:
    """The cluster with this name; with no name ``main``, or the only one.

    Raises:
        KeyError: None has this name.
        ClusterUnclear: There is none, or several and none is ``main``.
    """
    if name is not None:
        return clusters[name]
    if "main" in clusters:
        return clusters["main"]
    if len(clusters) != 1:
        raise ClusterUnclear(topic=topic, known=tuple(sorted(clusters)))
    return next(iter(clusters.values()))


def sampled(cluster: KafkaCluster, topic: str, *, count: int) -> Sample:
    """A sample of the topic with at least one message that has a value.

    Raises:
        NoSuchTopic: The cluster does not know it.
        NothingToSample: It is empty, or has nothing but tombstones.
        BrokerUnreachable, LeaderMissing: Trying again can help.
        AccessRefused: The brokers do not let us in, or read.
    """
    found = sample(cluster, _topic(cluster, topic), count=count)
    if not found.messages:
        raise NothingToSample(cluster=cluster.name, topic=topic, detail="has no message that may be read")
    if all(message.value is None for message in found.messages):
        detail = f"has tombstones alone, {len(found.messages):,} in the sample"
        raise NothingToSample(cluster=cluster.name, topic=topic, detail=detail)
    return found


def _topic(cluster: KafkaCluster, topic: str) -> TopicState:
    try:
        return read_topic(cluster, topic)
    except TopicMissing as missing:
        raise NoSuchTopic(cluster=cluster.name, topic=topic, known=topics_of(cluster)) from missing
