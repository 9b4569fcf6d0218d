"""Start: where a stream without positions begins, and what an explicit start means where there are some."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from kdi_assets.errors import Terminal
from kdi_assets.sources.kafka import TopicState, offsets_at
from kdi_assets.stream import Stream, TopicPartition


@dataclass(eq=False, kw_only=True)
class StartOutOfRange(Terminal):
    """The document's `start:` names an offset that the topic partition does not hold."""

    stream: str
    topic_partition: TopicPartition
    offset: int
    earliest: int
    end: int

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.stream}: `start` says {self.offset} for {self.topic_partition}, which holds "
            f"[{self.earliest}, {self.end}).",
            "nothing was read and nothing was written.",
            "correct `start:` in the stream's document and run `kdi plan`",
        )


@dataclass(eq=False, kw_only=True)
class StartNamesNoTopicPartition(Terminal):
    """The document's `start:` names a topic partition that the topic does not have."""

    stream: str
    topic_partition: TopicPartition
    last: TopicPartition

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.stream}: `start` names {self.topic_partition}, and the topic's last topic partition is "
            f"{self.last}.",
            "nothing was read and nothing was written.",
            "correct `start:` in the stream's document and run `kdi plan`",
        )


@dataclass(eq=False, kw_only=True)
class PositionBelowStart(Terminal):
    """The document's `start:` names an offset behind the position: what lies between was neither read nor given up."""

    stream: str
    topic_partition: TopicPartition
    position: int
    start: int

    def parts(self) -> tuple[str, str, str]:
        tp, at = self.topic_partition, self.position
        return (
            f"{self.stream}: `start` says {self.start} for {tp}, and its position is {at} already: a start holds for a "
            f"stream that has none, and [{at}, {self.start}) was not drained.",
            f"every offset below {at} is accounted for; nothing was read and nothing was written.",
            f"take {tp.partition}: {self.start} out of `start:`, to drain on from {at}; or give the offsets up: "
            f"kdi resolve {self.stream} accept-loss --topic-partition {tp} --until {self.start}",
        )


def begin(
    stream: Stream, topic: TopicState, *, known: Collection[TopicPartition] = frozenset()
) -> dict[TopicPartition, int]:
    """Where the topic partitions begin that are not ``known``, as numbers.

    Raises:
        StartOutOfRange: An explicit offset is not there.
        KdiError: The brokers do not answer which offset a moment is.
    """
    begin = {tp: offsets for tp, offsets in topic.partitions.items() if tp not in known}
    if not begin:
        return {}
    if isinstance(stream.start, datetime):
        return offsets_at(stream.cluster, replace(topic, partitions=begin), stream.start)
    if stream.start == "latest":
        return {tp: offsets.end for tp, offsets in begin.items()}
    given = stream.start_offsets
    positions = {tp: given.get(tp, offsets.earliest) for tp, offsets in begin.items()}
    for tp, offsets in begin.items():
        # Up to the high watermark: an offset in an open transaction is there, if nobody may read it yet.
        if not offsets.earliest <= positions[tp] <= offsets.high_watermark:
            raise StartOutOfRange(
                stream=stream.name,
                topic_partition=tp,
                offset=positions[tp],
                earliest=offsets.earliest,
                end=offsets.high_watermark,
            )
    return positions


def refuse_other_start(stream: Stream, positions: Mapping[TopicPartition, int], topic: TopicState) -> None:
    """Refuse explicit start offsets that a position has not reached.

    A start is applied where there is no position. One at or below the position was applied, or is passed by now; one
    above it would skip messages, which is a decision that the ledger must know of.

    Raises:
        PositionBelowStart, StartNamesNoTopicPartition: As they say.
    """
    for tp, offset in stream.start_offsets.items():
        if tp not in topic.partitions:
            raise StartNamesNoTopicPartition(stream=stream.name, topic_partition=tp, last=max(topic.partitions))
        if tp in positions and positions[tp] < offset:
            raise PositionBelowStart(stream=stream.name, topic_partition=tp, position=positions[tp], start=offset)
