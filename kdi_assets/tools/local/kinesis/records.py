"""The operations that put and read records."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from kdi_assets.tools.local.kinesis.faults import take_fault
from kdi_assets.tools.local.kinesis.limits import PAGE_BYTES, PAGE_RECORDS
from kdi_assets.tools.local.kinesis.manage_streams import hash_range
from kdi_assets.tools.local.kinesis.refusals import ApiRefusal
from kdi_assets.tools.local.kinesis.state import ApiAnswer, ApiRequest, KinesisState, from_token, to_token
from kdi_assets.tools.local.kinesis.streams import HOUR, DataStream, Shard, StoredRecord, parse_hash_key, shard_id
from kdi_assets.tools.local.kinesis.wire import ApiTimestamp

ITERATOR = "ShardIterator"
ITERATOR_MS = 300_000
PUT_RECORDS, PUT_BYTES = 500, 10 << 20


@dataclass(frozen=True, slots=True)
class ShardPage:
    """Records of one answer.

    Attributes:
        after: The next page holds records behind this number; None: no answer will ever hold any.
        behind_ms: Age of the first record that was not read; 0: all were read.
        ended: The shard is closed, and read to its end.
    """

    records: list[StoredRecord]
    after: int | None
    behind_ms: int
    ended: bool


@dataclass(frozen=True, slots=True)
class NewRecord:
    """A record that was checked and may be put."""

    data: bytes
    partition_key: str | None
    hash_key: int | None


def put_record(state: KinesisState, request: ApiRequest) -> ApiAnswer:
    """PutRecord."""
    stream = state.stream_of(request)
    record = _checked(stream, request.fields)
    refuse_dry_run(request)
    answer = _put(state, stream, record)
    if "ErrorCode" in answer:
        raise ApiRefusal(answer["ErrorCode"], answer["ErrorMessage"])
    return answer


def put_records(state: KinesisState, request: ApiRequest) -> ApiAnswer:
    """PutRecords: a record that is not valid refuses all of them, a limit only those that it meets."""
    stream = state.stream_of(request)
    records = [_checked(stream, entry) for entry in request["Records"]]
    if not 0 < len(records) <= PUT_RECORDS or sum(len(record.data) for record in records) > PUT_BYTES:
        raise ApiRefusal("InvalidArgumentException", f"PutRecords takes 1 to {PUT_RECORDS} records, at most 10 MiB.")
    refuse_dry_run(request)
    fault = take_fault(state.faults, request.call, of_records=True)
    refused = fault.entries if fault else 0
    answers = [_refused("ProvisionedThroughputExceededException", "Rate exceeded.") for _ in records[:refused]]
    answers += [_put(state, stream, record) for record in records[refused:]]
    return {"FailedRecordCount": sum("ErrorCode" in answer for answer in answers), "Records": answers}


def get_shard_iterator(state: KinesisState, request: ApiRequest) -> ApiAnswer:
    """GetShardIterator."""
    stream = state.stream_of(request)
    shard = stream.shard(request["ShardId"], state.now())
    number, moment = request.get("StartingSequenceNumber"), request.get("Timestamp")
    after = start_after(state, stream, shard, request["ShardIteratorType"], number=number, moment=moment)
    refuse_dry_run(request)
    return {"ShardIterator": _iterator(state, stream, shard, after, state.behaviour.empty_pages)}


def get_records(state: KinesisState, request: ApiRequest) -> ApiAnswer:
    """GetRecords: at most 10,000 records and 10 MiB."""
    stream, shard, after, empty_pages = _read_iterator(state, request["ShardIterator"])
    limit = request.get("Limit", PAGE_RECORDS)
    if not 0 < limit <= PAGE_RECORDS:
        raise ApiRefusal("InvalidArgumentException", f"Limit must be between 1 and {PAGE_RECORDS}, not {limit}.")
    refuse_dry_run(request)
    if empty_pages:
        following = _iterator(state, stream, shard, after, empty_pages - 1)
        unread = read_page(state, stream, shard, after, most_records=0, most_bytes=0)
        behind = max(1000 * empty_pages, unread.behind_ms)  # no answer is ahead of a record that comes after it
        return {"Records": [], "NextShardIterator": following, "MillisBehindLatest": behind}
    page = read_page(state, stream, shard, after, most_records=limit, most_bytes=PAGE_BYTES)
    shard.limits.note_bytes(sum(record.size for record in page.records), state.now())
    answer: ApiAnswer = {
        "Records": [described_record(record) for record in page.records],
        "MillisBehindLatest": page.behind_ms,
    }
    if page.records and take_fault(state.faults, request.call, of_records=True):
        return {**answer, "NextShardIterator": _iterator(state, stream, shard, after, 0)}
    if page.ended:
        return {**answer, "ChildShards": described_children(stream, shard)}
    more_empty = state.behaviour.empty_pages if page.records else 0
    return {**answer, "NextShardIterator": _iterator(state, stream, shard, page.after, more_empty)}


def start_after(
    state: KinesisState, stream: DataStream, shard: Shard, kind: str, *, number: str | None, moment: Any
) -> int | None:
    """The number behind which reading starts; None: no answer holds a record."""
    if kind == "TRIM_HORIZON":
        return 0
    if kind == "LATEST":
        return shard.last
    if kind == "AT_TIMESTAMP":
        return _before_moment(state, shard, moment)
    if kind not in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        raise ApiRefusal("ValidationException", f"{kind} is not a type of shard iterators.")
    if number is None:
        raise ApiRefusal("InvalidArgumentException", f"A sequence number must be given with type {kind}.")
    sequence = stream.parse_number(number, shard)
    if sequence <= shard.trimmed and state.behaviour.trimmed_position == "refused":
        raise ApiRefusal("InvalidArgumentException", f"StartingSequenceNumber {number} is no longer available.")
    if sequence <= shard.trimmed and state.behaviour.trimmed_position == "empty":
        return None
    return sequence - (kind == "AT_SEQUENCE_NUMBER")


def read_page(
    state: KinesisState, stream: DataStream, shard: Shard, after: int | None, *, most_records: int, most_bytes: int
) -> ShardPage:
    """The records behind a number, at least one if there is any."""
    if after is None:
        return ShardPage([], None, behind_ms=stream.retention_hours * HOUR, ended=False)
    begin = end = shard.after(after)
    size = 0
    while end < min(len(shard.records), begin + most_records):
        size += shard.records[end].size
        if size > most_bytes and end > begin:
            break
        end += 1
    unread = shard.records[end] if end < len(shard.records) else None
    behind = max(1, state.now() - unread.arrived) if unread else 0
    records = shard.records[begin:end]
    return ShardPage(
        records,
        after=records[-1].sequence if records else after,
        behind_ms=max(behind, state.behaviour.least_behind_ms),
        ended=unread is None and shard.end is not None,
    )


def described_record(record: StoredRecord) -> ApiAnswer:
    """A record, as answers show it."""
    key = {} if record.partition_key is None else {"PartitionKey": record.partition_key}
    return {
        "SequenceNumber": str(record.sequence),
        "ApproximateArrivalTimestamp": ApiTimestamp(record.arrived),
        "Data": record.data,
        "EncryptionType": "NONE",
        **key,
    }


def described_children(stream: DataStream, shard: Shard) -> list[ApiAnswer]:
    """The shards that follow a shard, as answers at its end show them."""
    return [
        {
            "ShardId": child.id,
            "ParentShards": [shard_id(parent) for parent in child.parents],
            "HashKeyRange": hash_range(child),
        }
        for child in stream.children(shard)
    ]


def refuse_dry_run(request: ApiRequest) -> None:
    """What a call answers that only asks whether it would succeed, once all checks have passed."""
    if request.get("DryRun"):
        raise ApiRefusal(
            "DryRunOperationException", "The request was rejected because the DryRun parameter was specified."
        )


def stream_and_shard(iterator: object) -> tuple[str, str]:
    """Names of the stream and the shard of an iterator; empty if it is not one."""
    try:
        name, _, shard, *_ = from_token(iterator, ITERATOR, parts=7)
        return name, shard
    except ApiRefusal:
        return "", ""


def _checked(stream: DataStream, fields: Any) -> NewRecord:
    data, key, hash_key = _data(fields), fields.get("PartitionKey"), fields.get("ExplicitHashKey")
    if key is None and not stream.distributes:
        raise ApiRefusal("InvalidArgumentException", f"Stream {stream.name} needs a partition key with each record.")
    size = len(data) + len((key or "").encode())
    if size > stream.most_record_bytes or (key is not None and not 0 < len(key) <= 256):
        raise ApiRefusal(
            "InvalidArgumentException",
            f"Data and partition key must not exceed {stream.most_record_bytes} bytes, the key 1 to 256 characters.",
        )
    return NewRecord(data, key, None if hash_key is None else parse_hash_key(hash_key))


def _put(state: KinesisState, stream: DataStream, record: NewRecord) -> ApiAnswer:
    if not state.has_room(len(record.data)):
        return _refused("LimitExceededException", f"This server keeps at most {state.most_bytes:,} bytes of records.")
    now, jitter = state.now(), state.behaviour.arrival_jitter_ms
    early = crc32(record.data) % jitter if jitter else 0
    shard, number = stream.put(record.data, record.partition_key, record.hash_key, now=now, arrived=now - early)
    return {"ShardId": shard.id, "SequenceNumber": str(number), "EncryptionType": "NONE"}


def _refused(code: str, message: str) -> ApiAnswer:
    return {"ErrorCode": code, "ErrorMessage": message}


def _data(fields: Any) -> bytes:
    data = fields.get("Data")
    if isinstance(data, bytes):
        return data
    try:
        return b64decode(data, validate=True)
    except (NotBase64, TypeError, ValueError):
        raise ApiRefusal("SerializationException", "Data is not base64.") from None


def _before_moment(state: KinesisState, shard: Shard, moment: Any) -> int:
    if moment is None:
        raise ApiRefusal("InvalidArgumentException", "A timestamp must be given with type AT_TIMESTAMP.")
    at = round(float(moment) * 1000)
    if at > state.now():
        raise ApiRefusal(
            "InvalidArgumentException",
            "The timestampInMillis parameter cannot be greater than the currentTimestampInMillis.",
        )
    return next((record.sequence - 1 for record in shard.records if record.arrived >= at), shard.last)


def _iterator(state: KinesisState, stream: DataStream, shard: Shard, after: int | None, empty_pages: int) -> str:
    state.iterators += 1
    number = after if after is None else str(after)
    return to_token(ITERATOR, stream.name, stream.created, shard.id, number, state.now(), state.iterators, empty_pages)


def _read_iterator(state: KinesisState, token: object) -> tuple[DataStream, Shard, int | None, int]:
    name, created, shard, after, issued, number, empty_pages = from_token(token, ITERATOR, parts=7)
    stream = state.stream_named(name, created=created)
    if (age := state.now() - issued) > ITERATOR_MS or number <= state.iterators_from:
        raise ApiRefusal(
            "ExpiredIteratorException",
            f"Iterator expired. The iterator was created {age} milliseconds ago, which is further in the past than the"
            f" tolerated delay of {ITERATOR_MS} milliseconds.",
        )
    return stream, stream.shard(shard, state.now()), after if after is None else int(after), empty_pages
