"""The rights of AWS that a table of Kinesis needs, and which of them can be tried without an effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kdi_assets.documents.model.connections.kinesis import OUR_CONSUMERS, FanOut
from kdi_assets.documents.model.kinesis_stream import KinesisStream
from kdi_assets.messages.kinesis.client import LOOK_ATTEMPTS, NEEDS_ACTIVE, kinesis_client, translated
from kdi_assets.messages.kinesis.consumers import described_consumer, listed_consumers
from kdi_assets.messages.kinesis.shards import list_shards

CONSUMERS, CONSUMERS_OF_OURS = "/consumer/*", f"/consumer/{OUR_CONSUMERS}*"
DENIED = ("AccessDeniedException", "AccessDenied")
DENIED_KEY = "KMSAccessDeniedException"
KEY = "kms:Decrypt"
ONLY_TRIED = "DryRunOperationException"
IN_USE = "ResourceInUseException"
GRANTED = (ONLY_TRIED, IN_USE)
"""Answers to a call that would have succeeded, and to a subscription while a drain has one of the same consumer."""


@dataclass(frozen=True, slots=True)
class Right:
    """A right, and what it is needed for.

    Attributes:
        action: As policies name it.
        without: What does not work without it.
        below: What follows the stream's ARN in the ARN of its resource.
        stops_drains: Drains need it.
    """

    action: str
    without: str
    below: str = ""
    stops_drains: bool = True


NO_DRAIN = "no drain begins, and neither status nor sensors know what waits"
READS = tuple(
    Right(f"kinesis:{name}", NO_DRAIN)
    for name in ("DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords")
)
"""Of every table: also with enhanced fan-out, a second client looks at single records."""
DESCRIBES_CONSUMER = Right("kinesis:DescribeStreamConsumer", "no drain finds its consumer", CONSUMERS)
SUBSCRIBES = (
    DESCRIBES_CONSUMER,
    Right("kinesis:SubscribeToShard", "a drain reads nothing", CONSUMERS),
)
REGISTERS = (
    Right("kinesis:RegisterStreamConsumer", "the first drain cannot register its consumer"),
    Right(
        "kinesis:ListStreamConsumers",
        "`kdi kinesis consumers` shows none, and nobody sees how many a stream has",
        stops_drains=False,
    ),
)
DEREGISTERS = (
    Right(
        "kinesis:DeregisterStreamConsumer", "the consumer stays after a drain, and AWS charges it", CONSUMERS_OF_OURS
    ),
)
DECRYPTS = Right(KEY, "the records of an encrypted stream cannot be read")


def rights_of(fan_out: FanOut | None) -> tuple[Right, ...]:
    """The rights that a table needs, without that on the key of an encrypted stream.

    Args:
        fan_out: The consumer that reads; ``None``: the shards are polled.
    """
    if fan_out is None:
        return READS
    ours = REGISTERS if fan_out.is_ours else ()
    return (*READS, *SUBSCRIBES, *ours, *(DEREGISTERS if fan_out.deregisters else ()))


@dataclass(slots=True)
class TriedRights:
    """What trying the rights of a table showed.

    Attributes:
        tried: Those that are there.
        denied: Those that are missing, with what AWS says.
        key: The key of an encrypted stream.
        open_shards: As the summary says; 0: unknown.
        consumer: What AWS says of the consumer that reads; ``None``: there is none, or nobody knows.
        consumers: The number of all consumers of the stream; ``None``: unknown.
        knows_dry_run: Kinesis has answered a call with ``DryRun`` as such; a server for tests may do what is asked.
    """

    rights: tuple[Right, ...]
    stream_arn: str
    tried: list[Right] = field(default_factory=list)
    denied: dict[Right, str] = field(default_factory=dict)
    key: str = ""
    open_shards: int = 0
    consumer: Mapping[str, Any] | None = None
    consumers: int | None = None
    knows_dry_run: bool = False

    @property
    def untried(self) -> list[Right]:
        """Those that show only when they are used, or that need something that is not there yet."""
        key = [DECRYPTS] if self.key and DECRYPTS not in self.denied else []
        return [right for right in (*self.rights, *key) if right not in self.tried and right not in self.denied]

    def resource(self, right: Right) -> str:
        """The ARN to name in a policy."""
        return self.key or "the key of the stream" if right.action == KEY else self.stream_arn + right.below

    @contextmanager
    def trying(self, name: str) -> Iterator[None]:
        """Note whether the call in the body is allowed; errors that are not about rights are raised."""
        from botocore.exceptions import ClientError

        right = next(right for right in self.rights if right.action == f"kinesis:{name}")
        try:
            yield
        except ClientError as refused:
            code = refused.response["Error"]["Code"]
            self.knows_dry_run |= code == ONLY_TRIED
            if code == DENIED_KEY:
                self.denied[DECRYPTS] = str(refused)
            elif code in DENIED:
                self.denied[right] = str(refused)
                return
            elif code not in GRANTED or (code == IN_USE and name in NEEDS_ACTIVE):
                raise
        self.tried.append(right)


def try_rights(table: KinesisStream) -> TriedRights:
    """Try the rights of a table: by ``DryRun`` where the API has it and nothing else shows them, the others by use.

    Nothing is registered, subscribed to or read. One GetShardIterator and one GetRecords of a shard count as calls.

    Raises:
        NoSuchKinesisStream: There is no such stream.
        KinesisUnanswered: Kinesis is too busy, or does not answer.
        KinesisRequestRefused: The credentials or the request are wrong.
    """
    connection, stream = table.kinesis, table.topic
    found = TriedRights(rights_of(table.fan_out), f"arn:aws:kinesis:{connection.region}:*:stream/{stream}")
    client = kinesis_client(connection, attempts=LOOK_ATTEMPTS)
    shards: list[str] = []
    iterator = ""
    with translated(connection, stream):
        with found.trying("DescribeStreamSummary"):
            summary = client.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]
            found.stream_arn, found.open_shards = summary["StreamARN"], summary["OpenShardCount"]
            found.key = summary.get("KeyId", "")
        with found.trying("ListShards"):
            shards = [shard.id for shard in list_shards(client, stream)]
        if shards:
            with found.trying("GetShardIterator"):  # by use: without an iterator, GetRecords cannot be tried
                at = {"StreamName": stream, "ShardId": shards[-1], "ShardIteratorType": "TRIM_HORIZON"}
                iterator = client.get_shard_iterator(**at)["ShardIterator"]
        if iterator:
            with found.trying("GetRecords"):
                client.get_records(ShardIterator=iterator, Limit=1, DryRun=True)
        if table.fan_out and found.open_shards:  # with the stream's own ARN, which consumers are asked by
            _try_consumer(client, found, table.fan_out, shards)
    return found


def _try_consumer(client: Any, found: TriedRights, fan_out: FanOut, shards: list[str]) -> None:
    if fan_out.is_ours:
        with found.trying("ListStreamConsumers"):
            found.consumers = sum(1 for _ in listed_consumers(client, found.stream_arn))
    with found.trying("DescribeStreamConsumer"):
        described = described_consumer(client, found.stream_arn, fan_out.consumer)
        found.consumer = described if described and described["StreamARN"] == found.stream_arn else None
    if found.consumer and found.consumer["ConsumerStatus"] == "ACTIVE" and shards and found.knows_dry_run:
        subscription = {"ConsumerARN": found.consumer["ConsumerARN"], "ShardId": shards[-1]}
        start = {"Type": "LATEST"}
        with found.trying("SubscribeToShard"):
            client.subscribe_to_shard(**subscription, StartingPosition=start, DryRun=True)
