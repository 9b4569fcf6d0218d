"""What shards still hold, read by boto3 in Spark's Python workers, with the numbers that spans give.

This module and ``aggregates`` are sent to workers by value: they import nothing else of ours, and the rest inside
functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from kdi_assets.messages.kinesis.aggregates import aggregate_parser

if TYPE_CHECKING:
    import pyarrow as pa

RECORDS_DDL = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp, sequence_number string, "
    "subsequence_number int, span bigint"
)
"""One row a record, or each user record of an aggregate. ``span`` is the number of the first record of its span; null,
as ``offset``, if it lies in none."""
SHARDS_DDL = (
    "number int, id string, spans array<struct<first: string, last: string, start: bigint>>, after string, "
    "since bigint, last string, until bigint"
)
"""One row a ``HeldShard``; sequence numbers have up to 129 digits."""
Numbered = Callable[[int], tuple[int | None, int | None]]
_PAGE, _MOST_EMPTY, _PAUSE_SECONDS, _MOST_EXPIRED = 10_000, 1_000, 0.2, 3


@dataclass(frozen=True)
class HeldShard:
    """What is read of a shard.

    Attributes:
        spans: Sequence numbers of the first and the last record, and the number of the first; in order.
        after: The sequence number before the first record to read; empty without one.
        since: Where to look for it: the arrival of a record before it, in milliseconds since 1970; ``None``: begin at
            the oldest record.
        last: The sequence number of the last record to read, empty for none; ``None``: read to the end of the shard.
        until: Answers that are newer hold no record up to ``last`` any more, in milliseconds since 1970.
    """

    number: int
    id: str
    spans: Sequence[tuple[str, str, int]]
    after: str
    since: int | None
    last: str | None
    until: int


@dataclass(frozen=True)
class HeldReading:
    """What tasks read.

    Attributes:
        access: Region, endpoint, key, secret and session token; the token may be empty.
    """

    stream: str
    access: Sequence[str]

    def batches(self, shards: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records of shards, as ``SHARDS_DDL`` has them, in ``RECORDS_DDL``; for ``mapInArrow``."""
        for batch in shards:
            for row in batch.to_pylist():
                shard = HeldShard(**row)
                spans = [(span["first"], span["last"], span["start"]) for span in row["spans"]]
                yield from _shard_batches(self, replace(shard, spans=spans))


def _shard_batches(reading: HeldReading, shard: HeldShard) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    moment = pa.timestamp("us", "UTC")
    types = [pa.binary(), pa.binary(), pa.int32(), pa.int64(), moment, pa.string(), pa.int32(), pa.int64()]
    names = ["key", "value", "partition", "offset", "timestamp", "sequence_number", "subsequence_number", "span"]
    numbered, users_of = _numbering(shard.spans), aggregate_parser()
    for page in _pages(_client(reading.access), reading.stream, shard):
        rows = [row for record in page for row in _rows(record, shard.number, numbered, users_of(record["Data"]))]
        columns = zip(*rows, strict=True)
        arrays = [pa.array(list(values), kind) for values, kind in zip(columns, types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, names=names)


def _rows(
    record: Mapping[str, Any], number: int, numbered: Numbered, users: Sequence[tuple[bytes, bytes]]
) -> Iterator[tuple[Any, ...]]:
    key, sequence = record.get("PartitionKey"), record["SequenceNumber"]
    arrived = record["ApproximateArrivalTimestamp"]
    own = (None if key is None else key.encode(), record["Data"])
    for subsequence, (user_key, value) in enumerate(users or [own]):
        offset, span = numbered(int(sequence))
        yield user_key, value, number, offset, arrived, sequence, subsequence if users else None, span


def _numbering(texts: Sequence[tuple[str, str, int]]) -> Numbered:
    """The number of each next record or user record, and that of the first record of its span."""
    spans, at, passed = [(int(first), int(last), start) for first, last, start in texts], 0, 0

    def numbered(sequence: int) -> tuple[int | None, int | None]:
        nonlocal at, passed
        while at < len(spans) and spans[at][1] < sequence:
            at, passed = at + 1, 0
        if at == len(spans) or sequence < spans[at][0]:
            return None, None
        passed += 1
        return spans[at][2] + passed - 1, spans[at][2]

    return numbered


def _client(access: Sequence[str]) -> Any:
    import boto3
    from botocore.config import Config

    region, endpoint, key, secret, token = access
    keys = {"aws_access_key_id": key, "aws_secret_access_key": secret, "aws_session_token": token or None}
    limits = Config(retries={"max_attempts": 8, "mode": "standard"})
    return boto3.client("kinesis", region_name=region, endpoint_url=endpoint, config=limits, **keys)


def _pages(client: Any, stream: str, shard: HeldShard) -> Iterator[list[Any]]:
    """The records of each answer up to the last one, each once."""
    import time
    from email.utils import parsedate_to_datetime

    start: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
    if shard.since is not None:  # of a time that retention has passed, it is the oldest record as well
        start = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": datetime.fromtimestamp(shard.since / 1000, UTC)}
    last = None if shard.last is None else int(shard.last or -1)
    iterator, read, empty, expired = None, int(shard.after or -1), 0, 0
    while empty <= _MOST_EMPTY:
        iterator = iterator or client.get_shard_iterator(StreamName=stream, ShardId=shard.id, **start)["ShardIterator"]
        try:
            answer = client.get_records(ShardIterator=iterator, Limit=_PAGE)
        except client.exceptions.ExpiredIteratorException:
            if (expired := expired + 1) > _MOST_EXPIRED:
                raise
            iterator = None
            continue
        new = [record for record in answer["Records"] if int(record["SequenceNumber"]) > read]
        own = [record for record in new if last is None or int(record["SequenceNumber"]) <= last]
        if own:
            yield own
        iterator, empty, expired = answer.get("NextShardIterator"), 0 if new else empty + 1, 0
        if new:
            read = int(new[-1]["SequenceNumber"])
            start = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": str(read)}
        date = answer["ResponseMetadata"]["HTTPHeaders"]["date"]
        seen = parsedate_to_datetime(date).timestamp() * 1000 - answer["MillisBehindLatest"]
        tip = last is not None and (answer["MillisBehindLatest"] == 0 or seen > shard.until)
        if iterator is None or len(own) < len(new) or read == last or tip:
            return
        time.sleep(_PAUSE_SECONDS)
    raise RuntimeError(f"{shard.id} gave {empty} answers without a record or an end")
