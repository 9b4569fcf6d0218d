"""A Kinesis endpoint as tests use it: our own server, another one, or AWS."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from kdi_assets.tools.local.kinesis.faults import Behaviour, ServerClock
from kdi_assets.tools.local.kinesis.server import KinesisServer, start_kinesis

Shard = Mapping[str, Any]
Record = Mapping[str, Any]
HASH_KEYS = 1 << 128
SHARD = "shardId-000000000000"  # the first one of a new stream
HOUR = 3600
PAUSE_SECONDS = 0.25  # between two calls about a shard: five a second are allowed
CALLS = 60  # after which a reader gives up


def kinesis_client(endpoint: str | None) -> Any:
    """A client that never tries again; without an endpoint, of AWS with the credentials of the environment."""
    config = Config(retries={"total_max_attempts": 1}, read_timeout=20)
    if endpoint is None:
        return boto3.client("kinesis", config=config)
    return boto3.client(
        "kinesis",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="kdi-loopback",
        aws_secret_access_key="kdi-loopback-secret",
        config=config,
    )


@dataclass
class KinesisEndpoint:
    """A client, and what tests need around it.

    Attributes:
        server: Ours; its clock stands still, and ``wait`` advances it.
    """

    client: Any
    server: KinesisServer | None = None
    made: set[str] = field(default_factory=set)
    subscribed: list[Any] = field(default_factory=list)

    @property
    def ours(self) -> KinesisServer:
        """The server, of which a test orders something."""
        assert self.server
        return self.server

    def wait(self, seconds: float) -> None:
        """Let the endpoint's clock go on."""
        if self.server:
            self.server.advance(seconds)
        else:
            time.sleep(seconds)

    def stream(self, shards: int = 1, *, name: str = "", **options: Any) -> str:
        """Create a stream."""
        name = name or f"kdi-contract-{uuid.uuid4().hex[:12]}"
        self.client.create_stream(StreamName=name, ShardCount=shards, **options)
        self.made.add(name)
        self.settle(name)
        return name

    def delete(self, stream: str, **options: Any) -> None:
        """Delete a stream, and wait until its name is free."""
        self.client.delete_stream(StreamName=stream, **options)
        self.wait_until_gone(lambda: self.client.describe_stream_summary(StreamName=stream))
        self.made.discard(stream)

    def wait_until_gone(self, look: Callable[[], object]) -> None:
        """Wait until what a call looks at is missing: on AWS it is DELETING for a while."""
        for _ in range(CALLS):
            self.wait(2)
            try:
                look()
            except self.client.exceptions.ResourceNotFoundException:
                return
        raise AssertionError("it was not deleted")

    def split(self, stream: str, shard: Shard) -> None:
        """Split a shard in the middle."""
        first, last = hash_range(shard)
        middle = str((first + last + 1) // 2)
        self.client.split_shard(StreamName=stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=middle)
        self.settle(stream)

    def summary(self, stream: str) -> Mapping[str, Any]:
        """What DescribeStreamSummary says."""
        self.wait(PAUSE_SECONDS)
        described: Mapping[str, Any] = self.client.describe_stream_summary(StreamName=stream)
        return described["StreamDescriptionSummary"]  # type: ignore[no-any-return]

    def settle(self, stream: str) -> None:
        """Wait until the stream is ACTIVE: after it was created or resharded."""
        for _ in range(CALLS):
            if self.summary(stream)["StreamStatus"] == "ACTIVE":
                return
            self.wait(2)
        raise AssertionError(f"{stream} is not ACTIVE")

    def shards(self, stream: str, **more: Any) -> list[Shard]:
        """All pages of ListShards."""
        found, page = [], self.client.list_shards(StreamName=stream, **more)
        while True:
            found += page["Shards"]
            if "NextToken" not in page:
                return found
            page = self.client.list_shards(NextToken=page["NextToken"])

    def shard(self, stream: str, number: int) -> Shard:
        """One of the shards."""
        return self.shards(stream)[number]

    def put(self, stream: str, *values: bytes, shard: Shard | None = None) -> list[Mapping[str, Any]]:
        """Put values, in this order; into a shard, or wherever their keys belong. Returns PutRecords' answers."""
        inside = {"ExplicitHashKey": shard["HashKeyRange"]["StartingHashKey"]} if shard else {}
        entries = [{"Data": value, "PartitionKey": f"k{n}", **inside} for n, value in enumerate(values)]
        answer = self.client.put_records(StreamName=stream, Records=entries)
        assert answer["FailedRecordCount"] == 0
        return list(answer["Records"])

    def iterator(self, stream: str, shard: str, kind: str = "TRIM_HORIZON", **more: Any) -> str:
        """An iterator; the options are those of GetShardIterator."""
        self.wait(PAUSE_SECONDS)
        answer = self.client.get_shard_iterator(StreamName=stream, ShardId=shard, ShardIteratorType=kind, **more)
        return str(answer["ShardIterator"])

    def page(self, iterator: str) -> Mapping[str, Any]:
        """One answer of GetRecords, without a pause before it."""
        answer: Mapping[str, Any] = self.client.get_records(ShardIterator=iterator)
        return answer

    def pages(self, iterator: str, *, limit: int = 10_000) -> Iterator[Mapping[str, Any]]:
        """Answers of GetRecords, until nothing is left or the shard ends."""
        following: str | None = iterator
        for _ in range(CALLS):
            self.wait(PAUSE_SECONDS)
            page = self.client.get_records(ShardIterator=following, Limit=limit)
            yield page
            following = page.get("NextShardIterator")
            if following is None or (not page["Records"] and page["MillisBehindLatest"] == 0):
                return
        raise AssertionError(f"not read to the end in {CALLS} calls")

    def read(self, stream: str, shard: str, kind: str = "TRIM_HORIZON", *, limit: int = 10_000, **more: Any) -> Read:
        """All records from a position on."""
        pages = list(self.pages(self.iterator(stream, shard, kind, **more), limit=limit))
        return Read([record for page in pages for record in page["Records"]], pages)

    def consumer(self, stream: str, name: str = "kdi") -> str:
        """ARN of a new consumer that is ACTIVE."""
        arn = self.summary(stream)["StreamARN"]
        made = self.client.register_stream_consumer(StreamARN=arn, ConsumerName=name)["Consumer"]
        for _ in range(CALLS):
            self.wait(1)
            described = self.client.describe_stream_consumer(ConsumerARN=made["ConsumerARN"])
            if described["ConsumerDescription"]["ConsumerStatus"] == "ACTIVE":
                return str(made["ConsumerARN"])
        raise AssertionError(f"{name} is not ACTIVE")

    def subscribe(self, consumer: str, shard: str, kind: str = "TRIM_HORIZON", **position: Any) -> Any:
        """The events of a new subscription."""
        start = {"Type": kind, **position}
        answer = self.client.subscribe_to_shard(ConsumerARN=consumer, ShardId=shard, StartingPosition=start)
        self.subscribed.append(answer["EventStream"])
        return iter(answer["EventStream"])

    def clean_up(self) -> None:
        """End the subscriptions, delete the streams, and see that our server did all that was ordered, and no more."""
        while self.subscribed:
            self.subscribed.pop().close()
        while self.made:
            name = self.made.pop()
            self.wait(PAUSE_SECONDS)
            try:
                self.client.delete_stream(StreamName=name, EnforceConsumerDeletion=True)
            except ClientError as gone:
                assert gone.response["Error"]["Code"] == "ResourceNotFoundException"
        if self.server:
            for name, usual in asdict(Behaviour()).items():
                setattr(self.server.behaviour, name, usual)
            wrong = self.server.unmet_faults(), self.server.failures()
            assert wrong == ([], [])


@dataclass(frozen=True)
class Read:
    """Records, and the answers they came in."""

    records: Sequence[Record]
    pages: Sequence[Mapping[str, Any]]

    @property
    def values(self) -> list[bytes]:
        """The records' data."""
        return [record["Data"] for record in self.records]

    @property
    def last_page(self) -> Mapping[str, Any]:
        """The answer at which reading ended."""
        return self.pages[-1]


def refusal(error: Any) -> str:
    """The code of an error that the API answered."""
    return str(error.value.response["Error"]["Code"])


@contextmanager
def refused_with(*codes: str) -> Iterator[None]:
    """The call in the body is refused with one of these codes."""
    with pytest.raises(ClientError) as error:
        yield
    assert refusal(error) in codes


def received(events: Any, count: int) -> list[Mapping[str, Any]]:
    """The events of a subscription, until so many records came."""
    got: list[Mapping[str, Any]] = []
    while sum(len(event["Records"]) for event in got) < count:
        got.append(next(events)["SubscribeToShardEvent"])
    return got


def values(events: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """The data of all records of some events or pages."""
    return [record["Data"] for event in events for record in event["Records"]]


def hash_range(shard: Shard) -> tuple[int, int]:
    """First and last hash key."""
    span = shard["HashKeyRange"]
    return int(span["StartingHashKey"]), int(span["EndingHashKey"])


@contextmanager
def frozen_kinesis(**options: Any) -> Iterator[KinesisEndpoint]:
    """Our server with a clock that only tests move."""
    server = start_kinesis(clock=ServerClock(frozen=True), **options)
    try:
        with closing(kinesis_client(server.endpoint)) as client:
            endpoint = KinesisEndpoint(client, server)
            yield endpoint
            endpoint.clean_up()
    finally:
        server.stop()


@contextmanager
def kinesis_of_environment(monkeypatch: pytest.MonkeyPatch, *, frozen: bool = False) -> Iterator[KinesisServer]:
    """A server of ours, whose address and keys are in the environment; it did all that was ordered, and no more."""
    server = start_kinesis(clock=ServerClock(frozen=frozen))
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    yield server
    server.stop()
    assert (server.unmet_faults(), server.failures()) == ([], [])
