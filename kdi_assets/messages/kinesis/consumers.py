"""Consumers of enhanced fan-out: a drain registers one when it first reads, and AWS charges it until it is gone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kdi_assets.documents.model.connections.kinesis import OUR_CONSUMERS, FanOut, KinesisRegion
from kdi_assets.messages.kinesis.client import kinesis_client, server_time, translated
from kdi_assets.messages.kinesis.errors import ConsumerNotActive, NoRoomForConsumer, NoSuchConsumer

ACTIVE_SECONDS = 120
PAUSE_SECONDS = 1.0
MOST_CONSUMERS = 20
"""Of a stream; AWS allows more for some accounts, so only its refusal counts."""
DOLLARS_AN_HOUR = 0.015
"""Of a consumer and an open shard, whether it reads or not. Source: AWS's list price of us-east-1."""
HOURS_A_MONTH = 730


@dataclass(frozen=True, slots=True)
class RegisteredConsumer:
    """A consumer that a stream has.

    Attributes:
        stream: The stream's name.
        dollars_a_month: At the list price, without the records that it reads.
    """

    stream: str
    name: str
    arn: str
    status: str
    since: datetime
    age_seconds: float
    dollars_a_month: float


def active_consumer(connection: KinesisRegion, stream_arn: str, fan_out: FanOut, *, table: str) -> str:
    """The ARN of the consumer, once it is ACTIVE; one of ours is registered if it is missing.

    Args:
        table: The table whose commands errors name; empty: any one of the stream.

    Raises:
        NoSuchConsumer: One that is not ours is missing.
        NoRoomForConsumer: The stream has as many consumers as it may have.
        ConsumerNotActive: It does not become ACTIVE.
    """
    client, stream, detail = kinesis_client(connection), stream_of(stream_arn), ""
    for _ in range(round(ACTIVE_SECONDS / PAUSE_SECONDS)):
        with translated(connection, stream):
            found = described_consumer(client, stream_arn, fan_out.consumer)
        if found and found["StreamARN"] == stream_arn and found["ConsumerStatus"] == "ACTIVE":
            return str(found["ConsumerARN"])
        if not fan_out.is_ours and (not found or found["StreamARN"] != stream_arn):
            raise NoSuchConsumer(stream=stream, consumer=fan_out.consumer, table=table or stream)
        detail = f"its status is {found['ConsumerStatus']}" if found else _registered(connection, stream_arn, fan_out)
        time.sleep(PAUSE_SECONDS)
    raise ConsumerNotActive(stream=stream, consumer=fan_out.consumer, seconds=ACTIVE_SECONDS, detail=detail)


def deregister(connection: KinesisRegion, stream_arn: str, name: str) -> None:
    """Deregister a consumer; one that is gone already is no error."""
    client = kinesis_client(connection)
    with translated(connection, stream_of(stream_arn)):
        try:
            client.deregister_stream_consumer(StreamARN=stream_arn, ConsumerName=name)
        except client.exceptions.ResourceNotFoundException:
            return


def our_consumers(connection: KinesisRegion, stream: str) -> list[RegisteredConsumer]:
    """The consumers of the stream that drains registered, ordered by their names."""
    client = kinesis_client(connection)
    with translated(connection, stream):
        answer = client.describe_stream_summary(StreamName=stream)
        summary, now = answer["StreamDescriptionSummary"], server_time(answer)
        listed = list(listed_consumers(client, summary["StreamARN"]))
    price = DOLLARS_AN_HOUR * HOURS_A_MONTH * summary["OpenShardCount"]
    return [
        RegisteredConsumer(
            stream,
            one["ConsumerName"],
            one["ConsumerARN"],
            one["ConsumerStatus"],
            since=one["ConsumerCreationTimestamp"],
            age_seconds=max(0.0, (now - one["ConsumerCreationTimestamp"]).total_seconds()),
            dollars_a_month=round(price, 2),
        )
        for one in sorted(listed, key=lambda one: str(one["ConsumerName"]))
        if one["ConsumerName"].startswith(OUR_CONSUMERS)
    ]


def name_of(consumer_arn: str) -> str:
    """The name in a consumer's ARN."""
    return consumer_arn.rpartition("/")[2].partition(":")[0]


def stream_of(arn: str) -> str:
    """The stream's name in its ARN or a consumer's."""
    return arn.partition(":stream/")[2].partition("/")[0]


def described_consumer(client: Any, stream_arn: str, consumer: str) -> Any:
    """What DescribeStreamConsumer says of it; ``None`` if there is none."""
    which = {"ConsumerARN": consumer} if ":" in consumer else {"StreamARN": stream_arn, "ConsumerName": consumer}
    try:
        return client.describe_stream_consumer(**which)["ConsumerDescription"]
    except client.exceptions.ResourceNotFoundException:
        return None


def _registered(connection: KinesisRegion, stream_arn: str, fan_out: FanOut) -> str:
    """Register the consumer; what is in the way, if it can pass."""
    client = kinesis_client(connection, attempts=1)  # a stream without room is not throttled
    with translated(connection, stream_of(stream_arn)):
        try:
            client.register_stream_consumer(StreamARN=stream_arn, ConsumerName=fan_out.consumer)
        except client.exceptions.ResourceInUseException:
            return "another drain registers it"
        except client.exceptions.LimitExceededException as refused:
            others = tuple(
                sorted(one["ConsumerName"] for one in listed_consumers(kinesis_client(connection), stream_arn))
            )
            if len(others) >= MOST_CONSUMERS:
                stream = stream_of(stream_arn)
                raise NoRoomForConsumer(stream=stream, consumer=fan_out.consumer, others=others) from refused
            return str(refused)
    return "it was registered just now"


def listed_consumers(client: Any, stream_arn: str) -> Iterator[Any]:
    """All consumers of a stream."""
    for answer in client.get_paginator("list_stream_consumers").paginate(StreamARN=stream_arn):
        yield from answer["Consumers"]
