"""The document of a stream of Kinesis: the fields of a stream, with those that differ from a topic of Kafka."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, model_validator

from kdi_assets.documents.model.connections.connections import SourceConnection
from kdi_assets.documents.model.connections.kinesis import (
    CHECKPOINT_WORDS,
    CONSUMER_NAME,
    OUR_CONSUMERS,
    FanOut,
    KinesisRegion,
)
from kdi_assets.documents.model.field_types import (
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
from kdi_assets.documents.model.message_rules import Route, TombstonePolicy
from kdi_assets.documents.model.source_struct import KINESIS
from kdi_assets.documents.model.stream import Stream
from kdi_assets.documents.model.stream_fields import Announce, References, StartPolicy


def _connection_named(name: str, info: ValidationInfo) -> SourceConnection:
    references: References = info.context  # type: ignore[assignment]
    return referred("KinesisConnection", name, references.connections, right="add one")


def _start(value: object) -> object:
    if isinstance(value, dict):
        return _checkpoints(value)
    return start_of("earliest" if value == "trim_horizon" else value)


def _checkpoints(value: dict[object, object]) -> dict[str, str]:
    """Checkpoints by shard: a sequence number, or a word; also as the Kinesis Client Library writes them."""
    for shard, at in value.items():
        at = str(at).lower()
        if not re.fullmatch(r"shardId-\d{12}", str(shard)) or not (at in CHECKPOINT_WORDS or re.fullmatch(r"\d+", at)):
            said = f"{{{shard}: {at}}} is not a shard and the sequence number of the last record that was read"
            raise wrong(said, "e.g. {shardId-000000000000: '4959…', shardId-000000000001: trim_horizon}, or shard_end")
    return {str(shard): CHECKPOINT_WORDS.get(str(at).lower(), str(at)) for shard, at in value.items()}


@dataclass(frozen=True, slots=True)
class Consumer(Declared):
    """How records are read."""

    mode: Annotated[Literal["polling", "efo"], Field(examples=["efo"])] = "polling"
    """polling: the calls that all readers of a shard share. efo: enhanced fan-out, a consumer with a throughput of its
    own, which AWS charges for each hour. It may change between any two drains."""
    registered: Annotated[
        str,
        matching(
            rf"{CONSUMER_NAME}|arn:aws[a-z-]*:kinesis:\S+:stream/\S+/consumer/\S+",
            "is neither the name nor the ARN of a consumer",
            "e.g. analytics",
        ),
        Field(examples=["analytics"]),
    ] = ""
    """Of efo: name or ARN of a consumer that you registered. By default the first drain registers `kdi_<app_id>`."""
    deregister: Annotated[Literal["never", "after_drain"], Field(examples=["after_drain"])] = "never"
    """Of efo: when `kdi_<app_id>` is deregistered. After a drain: the next one registers it again and waits for it."""

    @model_validator(mode="after")
    def _fields_belong_to_the_mode(self) -> Consumer:
        for name in ("registered", "deregister"):
            if self.mode == "polling" and getattr(self, name) not in ("", "never"):
                raise wrong("is given, and no consumer", "give mode: efo as well", field=f"consumer.{name}")
        if self.registered and self.deregister != "never":
            raise wrong("a consumer that you registered stays", "remove the line", field="consumer.deregister")
        return self


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
    start: Annotated[
        StartPolicy,
        BeforeValidator(_start, json_schema_input_type=str | dict[str, str]),
        Field(examples=["earliest"]),
    ] = "earliest"
    """Where a new stream begins: earliest (or trim_horizon), latest, a timestamp with its zone, or the checkpoint of
    each shard, which another reader left. It is resolved once, and later changes have no effect."""
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
    consumer: Annotated[Consumer, Field(examples=[{"mode": "efo"}])] = Consumer()
    """How records are read."""

    @model_validator(mode="after")
    def _kinesis_takes_the_name_of_the_consumer(self) -> KinesisStream:
        if self.fan_out and self.fan_out.is_ours and not re.fullmatch(CONSUMER_NAME, self.fan_out.consumer):
            said = f"{self.fan_out.consumer!r} is not a name that Kinesis takes for a consumer"
            raise wrong(said, "at most 124 letters, digits, '_', '-' and '.' in app_id", field="app_id")
        return self

    @property
    def kinesis(self) -> KinesisRegion:
        """The connection; raises ``TypeError`` if the stream was made with another one."""
        if not isinstance(self.cluster, KinesisRegion):
            raise TypeError(f"{self.name} is not fed by Kinesis")
        return self.cluster

    @property
    def fan_out(self) -> FanOut | None:
        """The consumer that reads; ``None``: the shards are polled."""
        given = self.consumer
        if given.mode == "polling":
            return None
        name = given.registered or OUR_CONSUMERS + self.app_id
        return FanOut(name, is_ours=not given.registered, deregisters=given.deregister == "after_drain")
