"""The operations that create, describe, reshard and delete streams."""

from __future__ import annotations

from kdi_assets.tools.local.kinesis.refusals import ApiRefusal
from kdi_assets.tools.local.kinesis.state import (
    ACCOUNT,
    MOST_STREAMS,
    ApiAnswer,
    ApiRequest,
    KinesisState,
    from_token,
    to_token,
)
from kdi_assets.tools.local.kinesis.streams import (
    HOUR,
    MOST_SHARDS,
    DataStream,
    Shard,
    parse_hash_key,
    refuse_bad_name,
    shard_id,
)
from kdi_assets.tools.local.kinesis.wire import ApiTimestamp

PAGE_SHARDS = 1000
NEXT_SHARDS = "NextToken of ListShards"
SHARD_FILTERS = frozenset(
    {"AFTER_SHARD_ID", "AT_TRIM_HORIZON", "FROM_TRIM_HORIZON", "AT_LATEST", "AT_TIMESTAMP", "FROM_TIMESTAMP"}
)
TOKEN_MS = 300_000
ON_DEMAND_SHARDS = 4
LEAST_HOURS, MOST_HOURS = 24, 8760


def create_stream(state: KinesisState, request: ApiRequest) -> None:
    """CreateStream: the stream is ACTIVE at once."""
    name, mode = request["StreamName"], request.get("StreamModeDetails", {}).get("StreamMode", "PROVISIONED")
    distributes = request.get("RecordDistributionStrategy") == "AUTO"
    shards = request.get("ShardCount", ON_DEMAND_SHARDS if mode == "ON_DEMAND" else 1)
    refuse_bad_name(name)
    if distributes and mode != "ON_DEMAND":
        raise ApiRefusal("InvalidArgumentException", "RecordDistributionStrategy AUTO needs StreamMode ON_DEMAND.")
    if name in state.streams:
        raise ApiRefusal("ResourceInUseException", f"Stream {name} under account {ACCOUNT} already exists.")
    if len(state.streams) >= MOST_STREAMS or not 0 < shards <= MOST_SHARDS:
        raise ApiRefusal(
            "LimitExceededException", f"This server keeps {MOST_STREAMS} streams of at most {MOST_SHARDS} shards."
        )
    state.create(
        name,
        shards=shards,
        first_shard=state.behaviour.first_shard,
        most_record_bytes=request.get("MaxRecordSizeInKiB", 1024) << 10,
        mode=mode,
        distributes=distributes,
    )


def delete_stream(state: KinesisState, request: ApiRequest) -> None:
    """DeleteStream: the stream is gone at once."""
    stream = state.stream_of(request)
    if stream.consumers and not request.get("EnforceConsumerDeletion"):
        raise ApiRefusal("ResourceInUseException", f"Stream {stream.name} has registered consumers.")
    state.delete(stream)


def describe_stream_summary(state: KinesisState, request: ApiRequest) -> ApiAnswer:
    """DescribeStreamSummary."""
    stream = state.stream_of(request)
    summary = {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "StreamStatus": "ACTIVE",
        "StreamModeDetails": {"StreamMode": stream.mode},
        "RetentionPeriodHours": stream.retention_hours,
        "StreamCreationTimestamp": ApiTimestamp(stream.created),
        "EnhancedMonitoring": [{"ShardLevelMetrics": []}],
        "EncryptionType": "NONE",
        "OpenShardCount": len(stream.open_shards()),
        "ConsumerCount": len(stream.consumers),
        "MaxRecordSizeInKiB": stream.most_record_bytes >> 10,
    }
    if stream.mode == "ON_DEMAND":
        summary["RecordDistributionStrategy"] = "AUTO" if stream.distributes else "USER_PARTITION_KEY"
    return {"StreamDescriptionSummary": summary}


def list_shards(state: KinesisState, request: ApiRequest) -> ApiAnswer:
    """ListShards: at most a thousand on a page; a token is valid for five minutes."""
    if token := request.get("NextToken"):
        if request.get("StreamName") or request.get("StreamCreationTimestamp") or request.get("ShardFilter"):
            raise ApiRefusal("InvalidArgumentException", "NextToken and StreamName cannot be provided together.")
        name, created, issued, last, kind, shard, moment = from_token(token, NEXT_SHARDS, parts=7)
        if state.now() - issued > TOKEN_MS:
            raise ApiRefusal("ExpiredNextTokenException", "The pagination token has expired.")
        stream = state.stream_named(name, created=created)
    else:
        stream, last = state.stream_of(request), ""
        filtered = request.get("ShardFilter") or {}
        if (kind := filtered.get("Type", "FROM_TRIM_HORIZON")) not in SHARD_FILTERS:
            raise ApiRefusal("ValidationException", f"{kind} is not a type of shard filters.")
        shard = request.get("ExclusiveStartShardId") or filtered.get("ShardId", "")
        moment = round(float(filtered.get("Timestamp") or 0) * 1000)
    left = [s for s in stream.shards(state.now()) if s.id > shard and _passes(s, stream, state.now(), kind, moment)]
    if newest_first := state.behaviour.newest_shards_first:
        left.reverse()
    if last:
        left = [one for one in left if (one.id < last if newest_first else one.id > last)]
    page = left[: min(request.get("MaxResults", PAGE_SHARDS), PAGE_SHARDS)]
    answer: ApiAnswer = {"Shards": [_described(one) for one in page]}
    if len(page) < len(left):
        parts = (stream.name, stream.created, state.now(), page[-1].id, kind, shard, moment)
        answer["NextToken"] = to_token(NEXT_SHARDS, *parts)
    return answer


def split_shard(state: KinesisState, request: ApiRequest) -> None:
    """SplitShard: the children take records at once."""
    stream, now = _provisioned(state, request), state.now()
    stream.split(stream.shard(request["ShardToSplit"], now), parse_hash_key(request["NewStartingHashKey"]), now)


def merge_shards(state: KinesisState, request: ApiRequest) -> None:
    """MergeShards: the child takes records at once."""
    stream, now = _provisioned(state, request), state.now()
    adjacent = stream.shard(request["AdjacentShardToMerge"], now)
    stream.merge(stream.shard(request["ShardToMerge"], now), adjacent, now)


def update_shard_count(state: KinesisState, request: ApiRequest) -> ApiAnswer:
    """UpdateShardCount: at least half as many and at most twice as many shards as now."""
    stream, target = _provisioned(state, request), request["TargetShardCount"]
    now_open = len(stream.open_shards())
    if request["ScalingType"] != "UNIFORM_SCALING":
        raise ApiRefusal("ValidationException", "ScalingType must be UNIFORM_SCALING.")
    if target > 2 * now_open or 2 * target < now_open or 2 * target > MOST_SHARDS:
        raise ApiRefusal(
            "LimitExceededException",
            f"UpdateShardCount cannot go from {now_open} to {target} shards: below half, above double, or too many.",
        )
    stream.reshape(target, state.now())
    return {
        "StreamName": stream.name,
        "StreamARN": stream.arn,
        "CurrentShardCount": now_open,
        "TargetShardCount": target,
    }


def increase_retention(state: KinesisState, request: ApiRequest) -> None:
    """IncreaseStreamRetentionPeriod: what is removed stays removed."""
    stream = state.stream_of(request)
    _retain(state, stream, request["RetentionPeriodHours"], least=stream.retention_hours, most=MOST_HOURS)


def decrease_retention(state: KinesisState, request: ApiRequest) -> None:
    """DecreaseStreamRetentionPeriod: what is too old then is removed at once."""
    stream = state.stream_of(request)
    _retain(state, stream, request["RetentionPeriodHours"], least=LEAST_HOURS, most=stream.retention_hours)


def _retain(state: KinesisState, stream: DataStream, hours: int, *, least: int, most: int) -> None:
    if not least <= hours <= most:
        raise ApiRefusal(
            "InvalidArgumentException",
            f"Requested retention period ({hours} hours) is not possible for stream {stream.name}: {least} to {most}"
            " hours are.",
        )
    stream.retain(hours, state.now())


def _provisioned(state: KinesisState, request: ApiRequest) -> DataStream:
    """The stream, which its owner reshards; raises ValidationException if AWS does that."""
    stream = state.stream_of(request)
    if stream.mode == "ON_DEMAND":
        raise ApiRefusal("ValidationException", f"Stream {stream.name} under account {ACCOUNT} is in ON_DEMAND mode.")
    return stream


def _passes(shard: Shard, stream: DataStream, now: int, kind: str, moment: int) -> bool:
    match kind:
        case "AT_LATEST":
            return shard.closed is None
        case "AT_TRIM_HORIZON":
            return shard.opened <= max(now - stream.retention_hours * HOUR, stream.created)
        case "AT_TIMESTAMP":
            return shard.opened <= moment and (shard.closed is None or shard.closed >= moment)
        case "FROM_TIMESTAMP":
            return shard.closed is None or shard.closed >= moment
    return True


def _described(shard: Shard) -> ApiAnswer:
    numbers = {"StartingSequenceNumber": str(shard.start)}
    if shard.end is not None:
        numbers["EndingSequenceNumber"] = str(shard.end)
    names = ("ParentShardId", "AdjacentParentShardId")
    parents = {name: shard_id(parent) for name, parent in zip(names, shard.parents, strict=False)}
    return {"ShardId": shard.id, "HashKeyRange": hash_range(shard), "SequenceNumberRange": numbers, **parents}


def hash_range(shard: Shard) -> ApiAnswer:
    """A shard's range of hash keys, as answers show it."""
    return {"StartingHashKey": str(shard.first_hash), "EndingHashKey": str(shard.last_hash)}
