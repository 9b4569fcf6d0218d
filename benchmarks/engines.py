"""The measured engines: a drain, plans that end after one of its stages, and Structured Streaming for comparison.

A worker also runs this over the code of another checkout: it calls only what every checkout has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.structured_streaming import ingest
from benchmarks.usage import StageMeter
from kdi_assets.documents.model.stream import OffsetRange, Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAMING = "structured streaming"


@dataclass(frozen=True, slots=True)
class Work:
    """The input of an engine."""

    stream: Stream
    lake: str
    count: int
    spark: SparkSession
    stages: StageMeter

    def tables(self) -> list[Stream]:
        """Streams that share the topic by their routes: each message has one table."""
        from kdi_assets.documents.loading.route_groups import link_routes
        from kdi_assets.documents.model.message_rules import Route

        conditions = {"bronze/get": "method = 'GET'", "bronze/post": "method = 'POST'"}
        routes = {table: Route(when) for table, when in conditions.items()}
        routes["bronze/rest"] = Route("method NOT IN ('GET', 'POST')", "dead_letters")
        return list(link_routes([replace(self.stream, table=table, route=route) for table, route in routes.items()]))

    def messages(self) -> DataFrame:
        """The last messages of the topic, as a drain reads them."""
        from kdi_assets.messages.kafka.reader import read_ranges
        from kdi_assets.messages.kafka.topic import read_topic

        partitions = read_topic(self.stream.kafka, self.stream.topic).partitions
        each = self.count // len(partitions)
        ranges = [OffsetRange(tp, offsets.end - each, offsets.end) for tp, offsets in sorted(partitions.items())]
        return read_ranges(self.spark, self.stream.kafka, ranges)


def drained(work: Work) -> list[Stream]:
    """Everything that waits, by our drain."""
    from kdi_assets.streams.drain.drain import drain

    drain(work.stream, lake=work.lake, session=lambda: work.spark, at=work.stages.at)
    return [work.stream]


def drained_one_by_one(work: Work) -> list[Stream]:
    """Three tables of the topic, one after the other."""
    from kdi_assets.streams.drain.drain import drain

    for table in work.tables():
        drain(table, lake=work.lake, session=lambda: work.spark)
    return work.tables()


def drained_together(work: Work) -> list[Stream]:
    """The same three tables in one pass."""
    from kdi_assets.streams.drain.shared_read import drain_together

    for outcome in drain_together(work.tables(), lake=work.lake, session=lambda: work.spark).values():
        outcome.result()
    return work.tables()


def streamed(work: Work) -> list[Stream]:
    """Everything that waits, by Structured Streaming in one micro-batch."""
    servers, table = work.stream.kafka.bootstrap_servers, Path(work.stream.table_uri(work.lake))
    ingest(work.spark, bootstrap_servers=servers, topic=work.stream.topic, table=table)
    return [work.stream]


def only_read(work: Work) -> list[Stream]:
    """Kafka's messages into nothing."""
    _into_nothing(work.messages())
    return []


def only_decoded(work: Work) -> list[Stream]:
    """Records into nothing."""
    from kdi_assets.messages.formats.decoder import RECORD
    from kdi_assets.streams.rules.records import decode, stream_decoder

    _into_nothing(decode(work.messages(), stream_decoder(work.stream)).select(RECORD))
    return []


def only_shaped(work: Work) -> list[Stream]:
    """The table's columns of every message, into nothing."""
    from kdi_assets.streams.rules.evaluate import evaluate
    from kdi_assets.streams.rules.records import decode, stream_decoder
    from kdi_assets.streams.rules.shape import shape

    decoder = stream_decoder(work.stream)
    _into_nothing(shape(evaluate(decode(work.messages(), decoder), decoder, None), decoder, None))
    return []


def only_judged(work: Work) -> list[Stream]:
    """Everything that a drain writes and counts, into nothing."""
    from kdi_assets.streams.drain.stage import stage

    stage(work.messages(), work.stream, work.stream.table_uri(work.lake), now=datetime.now(UTC), dry=True)
    return []


def _into_nothing(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


PREFIXES: Mapping[str, Callable[[Work], list[Stream]]] = {
    "kafka": only_read,
    "decode": only_decoded,
    "shape": only_shaped,
    "rules": only_judged,
}
"""The first stages of a drain, each including those before it."""
ENGINES: Mapping[str, Callable[[Work], list[Stream]]] = {
    "drain": drained,
    "three drains": drained_one_by_one,
    "one pass": drained_together,
    STREAMING: streamed,
    **PREFIXES,
}
"""Each returns the streams whose tables it wrote."""
