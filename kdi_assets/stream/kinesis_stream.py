"""The document of a stream of Kinesis: the fields of a stream, with those that differ from a topic of Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo

from kdi_assets.stream.connections import SourceConnection
from kdi_assets.stream.field_types import (
    ColumnPath,
    Declared,
    RefusedField,
    Sql,
    WrittenAs,
    matching,
    referred,
    start_of,
    wrong,
)
from kdi_assets.stream.fields import Announce, References, StartPolicy
from kdi_assets.stream.message_rules import Route, TombstonePolicy
from kdi_assets.stream.source_struct import KINESIS
from kdi_assets.stream.stream import Stream


def _connection_named(name: str, info: ValidationInfo) -> SourceConnection:
    references: References = info.context  # type: ignore[assignment]
    return referred("KinesisConnection", name, references.connections, right="add one")


def _start(value: object) -> object:
    if isinstance(value, dict):
        raise wrong("numbers of records are known to this table only", "earliest, latest, or e.g. 2026-01-01T00:00:00Z")
    return start_of("earliest" if value == "trim_horizon" else value)


@dataclass(frozen=True, slots=True)
class Consumer(Declared):
    """How records are read."""

    mode: Annotated[Literal["polling"], Field(examples=["polling"])] = "polling"
    """polling: the calls that all readers of a shard share."""


@dataclass(frozen=True, slots=True)
class KinesisStream(Stream):
    """One stream of Kinesis drained into one Delta table; to the engine its shards are topic partitions."""

    topic: Annotated[
        str,  # Kinesis, "CreateStream"
        matching(r"[A-Za-z0-9_.-]{1,128}", "is not a stream's name", "letters, digits, '_', '-' and '.', at most 128"),
        Field(validation_alias="stream_name", examples=["web_requests"]),
    ]
    """The name of the stream, in the region of the connection."""
    cluster: Annotated[
        SourceConnection, WrittenAs(str, _connection_named), Field(validation_alias="connection", examples=["main"])
    ]
    """Name of the KinesisConnection document of the stream."""
    start: Annotated[StartPolicy, BeforeValidator(_start, json_schema_input_type=str), Field(examples=["earliest"])] = (
        "earliest"
    )
    """Where a new stream begins: earliest (or trim_horizon), latest, or a timestamp with its zone. It is resolved once,
    and later changes have no effect."""
    date_expression: Annotated[Sql, Field(validation_alias="date", examples=["to_date(at)"])]
    """Spark SQL for the row's date (UTC), over the record's fields and the struct `kinesis` (stream, shard_id,
    sequence_number, subsequence_number, partition, offset, timestamp, partition_key)."""
    filter: Annotated[Sql, Field(examples=["method = 'GET' AND kinesis.partition_key <> 'test'"])] = ""
    """Spark SQL condition over the same names as `date`. A message for which it is not true (false, or null) is
    filtered: counted, and passed over. Where it raises, the message is a dead letter."""
    coordinates: Annotated[ColumnPath, Field(examples=["kinesis"])] = KINESIS.name
    """The struct column (dots nest) with stream, shard_id, sequence_number, subsequence_number, partition, offset and
    timestamp of every row, and with index and count if a message may become several rows."""
    tombstones: Annotated[TombstonePolicy, RefusedField("every record of Kinesis has data", "remove the line")] = "skip"
    route: Annotated[
        Route | None, RefusedField("is not supported for a stream of Kinesis yet", "one stream for each table")
    ] = None
    announce: Annotated[
        Announce | None, RefusedField("is not supported for a stream of Kinesis", "remove the line")
    ] = None
    consumer: Annotated[Consumer, Field(examples=[{"mode": "polling"}])] = Consumer()
    """How records are read."""
