"""The source of a stream, chosen by the connection in its document."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import singledispatch

from kdi_assets.documents.model.connections.kinesis import FanOut, KinesisRegion
from kdi_assets.documents.model.kinesis_stream import KinesisStream
from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.messages.kinesis.errors import OffsetsUnknown
from kdi_assets.messages.source import Source
from kdi_assets.runtime.spark_failures import translated


def source_of(stream: Stream) -> Source:
    """The source of the stream's messages."""
    if isinstance(stream, KinesisStream):
        return source_at(stream.cluster, stream.fan_out, stream.name)
    return source_at(stream.cluster)


def source_failures(stream: Stream) -> AbstractContextManager[None]:
    """Raise the source's error where a task of Spark failed because of it; other failures pass unchanged.

    Raises:
        KdiError: As ``Source.failure``.
    """
    source = source_of(stream)
    return translated(lambda failure: source.failure(failure.root))


def refuse_unknown_offsets(stream: Stream) -> None:
    """Refuse what needs the offsets of messages that were not drained, of a source that does not know them.

    Raises:
        OffsetsUnknown: The stream is one of Kinesis: an offset is a number of the table's own reading.
    """
    if not stream.cluster.knows_offsets:
        raise OffsetsUnknown(stream=stream.name)


@singledispatch
def source_at(connection: object, fan_out: FanOut | None = None, table: str = "") -> Source:
    """The source that a connection leads to; one function for each type of connection."""
    raise TypeError(f"no source has connections of type {type(connection).__name__}")


@source_at.register
def _kafka(connection: Cluster) -> Source:
    from kdi_assets.messages.kafka.source import KafkaSource  # a second source must not load the client of this one

    return KafkaSource(connection)


@source_at.register
def _kinesis(connection: KinesisRegion, fan_out: FanOut | None = None, table: str = "") -> Source:
    from kdi_assets.messages.kinesis.source import KinesisSource

    return KinesisSource(connection, fan_out, table)


def topics_of(cluster: Cluster) -> tuple[str, ...]:
    """The names of all topics that a cluster of Kafka shows us, without Kafka's own.

    Raises:
        BrokerUnreachable: No broker answered.
        AccessRefused: The brokers refuse our credentials.
    """
    from kdi_assets.messages.kafka import topic

    return topic.topics_of(cluster)
