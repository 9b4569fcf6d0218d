"""Puts generated ``web_requests`` into a stream, alone or in aggregates, and waits until each is acknowledged."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import md5
from typing import Any, NamedTuple

from kdi_assets.aws import is_transient
from kdi_assets.tools.local.errors import KinesisDidNotAnswer, KinesisRefused, KinesisStreamMissing, RecordsNotPut
from kdi_assets.tools.local.generator import Traffic, WebRequests
from kdi_assets.tools.local.kinesis.aggregates import to_aggregate

BATCH = 500  # entries of PutRecords
AGGREGATE_BYTES = 51_200  # of data, with which an aggregate is full; the KPL's default for a whole aggregate
ATTEMPTS, FIRST_PAUSE_SECONDS = 8, 0.1  # of entries that are refused; the pauses are 12.7 seconds in all
USUAL_SHARDS = 2
ACTIVE_SECONDS = 60.0


class Entry(NamedTuple):
    """An entry of PutRecords, and how many messages are in it."""

    fields: Mapping[str, Any]
    messages: int = 1


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


@dataclass(slots=True)
class PutProgress:
    """What was asked for, and how much of it was acknowledged.

    Attributes:
        count: Messages that were asked for.
        messages, records: Acknowledged.
    """

    stream: str
    count: int
    aggregate: bool
    shards: int | None
    messages: int = 0
    records: int = 0

    def command(self, *, shards: int | None = None) -> str:
        """The command that puts what is left; with shards, it also creates the stream."""
        words = ["kdi", "kinesis", "put", self.stream, "--records", str(self.count - self.messages)]
        words += ["--aggregate"] if self.aggregate else []
        words += ["--shards", str(made)] if (made := self.shards or shards) else []
        return shlex.join(words)


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
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    begin, progress = time.monotonic(), PutProgress(stream, count, aggregate, shards)
    try:
        client = boto3.client("kinesis")
        ranges = _open_shards(client, progress)
        for entries in _batches(_entries(traffic, count, ranges if aggregate else None)):
            _put_all(client, progress, entries)
    except (BotoCoreError, ClientError) as failed:
        # Without credentials in its environment, a command has none later either; a service may get them from its role.
        passing = is_transient(failed) and not isinstance(failed, NoCredentialsError)
        error = KinesisDidNotAnswer if passing else KinesisRefused
        raise error(stream=stream, put=progress.messages, reason=str(failed), command=progress.command()) from failed
    return PutCount(stream, progress.messages, progress.records, time.monotonic() - begin)


def _open_shards(client: Any, progress: PutProgress) -> list[tuple[int, int]]:
    """The ranges of hash keys of the open shards, both ends inclusive; creates the stream if asked."""
    stream = progress.stream
    try:
        return _listed_ranges(client, stream)
    except client.exceptions.ResourceNotFoundException as missing:
        if progress.shards is None:
            endpoint, command = client.meta.endpoint_url, progress.command(shards=USUAL_SHARDS)
            raise KinesisStreamMissing(stream=stream, endpoint=endpoint, command=command) from missing
    client.create_stream(StreamName=stream, ShardCount=progress.shards)
    deadline = time.monotonic() + ACTIVE_SECONDS
    while _status(client, stream) != "ACTIVE" and time.monotonic() < deadline:
        time.sleep(1)
    return _listed_ranges(client, stream)


def _listed_ranges(client: Any, stream: str) -> list[tuple[int, int]]:
    ranges: list[Mapping[str, str]] = []
    asked: dict[str, Any] = {"StreamName": stream, "ShardFilter": {"Type": "AT_LATEST"}}
    while asked:
        answer = client.list_shards(**asked)
        ranges += (shard["HashKeyRange"] for shard in answer["Shards"])
        # Kinesis refuses a name beside a token, which boto3's paginator sends.
        asked = {"NextToken": answer["NextToken"]} if answer.get("NextToken") else {}
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
                yield Entry({"PartitionKey": key, "Data": data})
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
    fields = {"PartitionKey": records[0][0], "ExplicitHashKey": str(span[0]), "Data": to_aggregate(records)}
    return Entry(fields, messages=len(records))


def _batches(entries: Iterator[Entry]) -> Iterator[list[Entry]]:
    """At most 500 entries and some 4 MB: the limits of PutRecords."""
    batch: list[Entry] = []
    size = 0
    for entry in entries:
        batch.append(entry)
        size += len(entry.fields["Data"])
        if len(batch) == BATCH or size >= 4_000_000:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _put_all(client: Any, progress: PutProgress, entries: list[Entry]) -> None:
    """Put them, and those that are refused again; raises ``RecordsNotPut`` if some are refused to the end."""
    left, reason = entries, ""
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
        answers = client.put_records(StreamName=progress.stream, Records=[entry.fields for entry in left])["Records"]
        refused = [(entry, answer) for entry, answer in zip(left, answers, strict=True) if "ErrorCode" in answer]
        progress.records += len(left) - len(refused)
        progress.messages += sum(entry.messages for entry in left) - sum(entry.messages for entry, _ in refused)
        if not refused:
            return
        left = [entry for entry, _ in refused]
        reason = f"{refused[0][1]['ErrorCode']}: {refused[0][1].get('ErrorMessage', '')}"
    raise RecordsNotPut(
        stream=progress.stream, put=progress.messages, refused=len(left), reason=reason, command=progress.command()
    )
