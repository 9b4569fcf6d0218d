"""Offsets that no drain can take: a drain goes up to them and refuses; ``accept-loss`` gives up exactly these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kdi_assets.errors import Terminal
from kdi_assets.sources.kafka_messages import first_timestamps_above
from kdi_assets.stream import OffsetRange, Stream

LONGEST_MILLISECONDS = (2**63 - 1) // 1000
"""Spark's Kafka reader multiplies each timestamp by 1,000 and fails where that is no 64-bit number."""


@dataclass(eq=False, kw_only=True)
class Undrainable(Terminal):
    """Nobody can read these offsets, or say why there is no message.

    Attributes:
        offsets: The first such offsets of each topic partition that has any; at least one.
    """

    stream: str
    offsets: tuple[OffsetRange, ...]
    happened = ""

    def parts(self) -> tuple[str, str, str]:
        first, others = self.offsets[0], len(self.offsets) - 1
        besides = f" So it is in {others} more topic partitions." if others else ""
        return (
            f"{self.stream}: {first}: {self.happened}.{besides}",
            "all offsets before these are drained, and so are the other topic partitions; positions stay there.",
            f"kdi resolve {self.stream} accept-loss --topic-partition {first.topic_partition} --from {first.start} "
            f"--until {first.end}   (gives up exactly these; look at the brokers first)",
        )


@dataclass(eq=False, kw_only=True)
class UnexplainedGap(Undrainable):
    """Offsets without a message, on a topic where every offset should have one."""

    happened = "no message is there, and the topic is neither compacted nor written by transactions"


@dataclass(eq=False, kw_only=True)
class TimestampTooLarge(Undrainable):
    """Messages with a timestamp that Spark cannot hold, such as nanoseconds where Kafka has milliseconds."""

    happened = "the message has a timestamp beyond the year 294,247, which Spark cannot read (nanoseconds?)"


def refuse_large_timestamps(stream: Stream, ranges: Sequence[OffsetRange]) -> None:
    """Refuse if messages have timestamps that Spark cannot read; reads the ranges with a client of our own.

    Raises:
        TimestampTooLarge: It names the first of each topic partition.
        BrokerUnreachable: There is no answer.
    """
    found = first_timestamps_above(stream.cluster, ranges, LONGEST_MILLISECONDS)
    if found:
        offsets = tuple(OffsetRange(tp, offset, offset + 1) for tp, offset in sorted(found.items()))
        raise TimestampTooLarge(stream=stream.name, offsets=offsets)
