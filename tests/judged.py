"""The result of a drain's rules without a broker: rows, dead letters and counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.stream import Cluster, Stream
from kdi_assets.messages.source import MESSAGES_DDL
from kdi_assets.streams.rules.judge import judge, letters_of
from kdi_assets.streams.rules.records import stream_decoder, with_schemas_of
from kdi_assets.streams.rules.tally import Counts, PassTally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Message:
    """A message as in Kafka; its offset is its index."""

    value: bytes | str | None
    key: bytes | None = b"the key"
    headers: Sequence[tuple[str, bytes | None]] | None = (("h", b"x"),)


@dataclass(frozen=True)
class Judged:
    """Rows and dead letters in the order of their offsets, as Python has them."""

    rows: Sequence[dict[str, Any]]
    letters: Sequence[dict[str, Any]]
    counts: Counts
    plan: str


def stream_of(ddl: str, **fields: Any) -> Stream:
    """A stream without a broker."""
    given = {"date_expression": "current_date()", **fields}
    return Stream("t", "bronze/t", ddl, cluster=Cluster("main", "nowhere:1"), **given)


def judged(
    spark: SparkSession,
    stream: Stream,
    messages: Sequence[Message | bytes | str | None],
    *,
    asks: bool = False,
) -> Judged:
    """Judge the messages, as a drain does.

    Args:
        asks: Whether messages are read for schemas first; a drain does this once it has met an unknown schema.
    """
    decoder, frame, now = stream_decoder(stream), frame_of_messages(spark, messages), datetime.now(UTC)
    decoder = (with_schemas_of(frame, decoder) if asks else None) or decoder
    tally = PassTally(spark, stream, now)
    rows = judge(frame, decoder, now=now, tally=tally)
    found = [row.asDict(recursive=True) for row in rows.collect()]
    counts = tally.counts(stream)
    letters = letters_of(frame, decoder, counts, now=now)
    return Judged(
        sorted(found, key=lambda row: (row[stream.coordinates]["offset"], row[stream.coordinates].get("index", 0))),
        sorted((row.asDict(recursive=True) for row in letters.collect()), key=lambda letter: int(letter["offset"])),
        counts,
        str(rows._jdf.queryExecution().toString()),
    )


def frame_of_messages(spark: SparkSession, messages: Sequence[Message | bytes | str | None]) -> DataFrame:
    """The messages as a drain reads them."""
    kept = [m if isinstance(m, Message) else Message(m) for m in messages]
    rows = [(m.key, _bytes(m.value), "t", 0, offset, AT, 0, m.headers) for offset, m in enumerate(kept)]
    return spark.createDataFrame(rows, MESSAGES_DDL)


def _bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
