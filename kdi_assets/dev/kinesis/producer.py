"""Puts generated ``web_requests`` into a stream, alone or in aggregates, and waits until each is acknowledged."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import md5
from typing import Any

from kdi_assets.aws import is_transient
from kdi_assets.dev.errors import KinesisDidNotAnswer, KinesisRefused, KinesisStreamMissing, RecordsNotPut
from kdi_assets.dev.generator import Traffic, WebRequests
from kdi_assets.dev.kinesis.aggregates import to_aggregate

BATCH = 500  # entries of PutRecords
AGGREGATE_BYTES = 50_000  # of data: the KPL's default
ATTEMPTS, FIRST_PAUSE_SECONDS = 8, 0.1  # of entries that are refused; then some 25 seconds have passed
ACTIVE_SECONDS = 60.0

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PutCount:
    """The result of ``put_web_requests``.

    Attributes:
        user_records: Messages.
        records: What Kinesis counts: aggregates, or the messages themselves.
    """

    stream: str
    user_records: int
    records: int
    seconds: float


def put_web_requests(stream: str, traffic: Traffic, *, count: int, aggregate: bool, shards: int | None) -> PutCount:
    """Put messages; their partition keys are running numbers, which spread over all shards.

    Args:
        aggregate: Several messages of a shard become one record, as the Kinesis Producer Library makes it.
        shards: Create the stream with so many if it is missing.

    Raises:
        KinesisStreamMissing: There is no such stream, and ``shards`` is None.
        KinesisRefused: The request, the credentials or their absence are refused.
        KinesisDidNotAnswer: No answer.
        RecordsNotPut: Some records were refused again and again.
    """
    import boto3
    from botocore.exceptions import BotoCoreError, ClientError

    begin = time.monotonic()
    try:
        client = boto3.client("kinesis")
        ranges = _open_shards(client, stream, shards)
        put = 0
        for entries in _batches(_entries(traffic, count, ranges if aggregate else None)):
            _put_all(client, stream, entries, put_before=put)
            put += len(entries)
    except (BotoCoreError, ClientError) as failed:
        if is_transient(failed):
            raise KinesisDidNotAnswer(stream=stream, reason=str(failed)) from failed
        raise KinesisRefused(stream=stream, reason=str(failed)) from failed
    return PutCount(stream, count, put, time.monotonic() - begin)


def _open_shards(client: Any, stream: str, shards: int | None) -> list[tuple[int, int]]:
    """The ranges of hash keys of the open shards, both ends inclusive; creates the stream if asked."""
    try:
        listed = client.get_paginator("list_shards").paginate(StreamName=stream, ShardFilter={"Type": "AT_LATEST"})
        ranges = [shard["HashKeyRange"] for page in listed for shard in page["Shards"]]
    except client.exceptions.ResourceNotFoundException as missing:
        if shards is None:
            raise KinesisStreamMissing(stream=stream, endpoint=client.meta.endpoint_url) from missing
        client.create_stream(StreamName=stream, ShardCount=shards)
        deadline = time.monotonic() + ACTIVE_SECONDS
        while _status(client, stream) != "ACTIVE" and time.monotonic() < deadline:
            time.sleep(1)
        return _open_shards(client, stream, None)
    return [(int(one["StartingHashKey"]), int(one["EndingHashKey"])) for one in ranges]


def _status(client: Any, stream: str) -> str:
    status: str = client.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamStatus"]
    return status


def _entries(traffic: Traffic, count: int, ranges: list[tuple[int, int]] | None) -> Iterator[Entry]:
    """Entries of PutRecords; with ranges, aggregates of messages that belong to one of them."""
    requests, number = WebRequests(traffic), 0
    waiting: dict[tuple[int, int], list[tuple[str, bytes]]] = {span: [] for span in ranges or ()}
    while number < count:
        for value in requests.batch(min(BATCH, count - number), now=datetime.now(UTC)):
            key, data = str(number), value or b""
            number += 1
            if ranges is None:
                yield {"PartitionKey": key, "Data": data}
                continue
            span = _span_of(key, ranges)
            waiting[span].append((key, data))
            if sum(len(one) for _, one in waiting[span]) >= AGGREGATE_BYTES:
                yield _aggregated(span, waiting.pop(span))
                waiting[span] = []
    yield from (_aggregated(span, records) for span, records in waiting.items() if records)


def _span_of(key: str, ranges: Iterable[tuple[int, int]]) -> tuple[int, int]:
    hash_key = int.from_bytes(md5(key.encode(), usedforsecurity=False).digest())
    return next(span for span in ranges if span[0] <= hash_key <= span[1])


def _aggregated(span: tuple[int, int], records: list[tuple[str, bytes]]) -> Entry:
    # The key of the aggregate may belong to another shard than its user records: the hash key decides.
    return {"PartitionKey": records[0][0], "ExplicitHashKey": str(span[0]), "Data": to_aggregate(records)}


def _batches(entries: Iterator[Entry]) -> Iterator[list[Entry]]:
    """At most 500 entries and some 4 MB: the limits of PutRecords."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        batch.append(entry)
        size += len(entry["Data"])
        if len(batch) == BATCH or size >= 4_000_000:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _put_all(client: Any, stream: str, entries: list[Entry], *, put_before: int) -> None:
    """Put them, and those that are refused again; raises ``RecordsNotPut`` if some are refused to the end."""
    left, reason = entries, ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
        answers = client.put_records(StreamName=stream, Records=left)["Records"]
        refused = [(entry, answer) for entry, answer in zip(left, answers, strict=True) if "ErrorCode" in answer]
        if not refused:
            return
        left = [entry for entry, _ in refused]
        reason = f"{refused[0][1]['ErrorCode']}: {refused[0][1].get('ErrorMessage', '')}"
    put = put_before + len(entries) - len(left)
    raise RecordsNotPut(stream=stream, put=put, refused=len(left), reason=reason)
