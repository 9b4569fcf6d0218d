"""Requests of a drain of Kinesis, and how they fail."""

from __future__ import annotations

from typing import Any

OPERATIONS = (
    "DescribeStreamSummary",
    "ListShards",
    "GetShardIterator",
    "GetRecords",
    "DescribeStreamConsumer",
    "SubscribeToShard",
)
KINDS: tuple[dict[str, Any], ...] = (
    {"code": "LimitExceededException"},
    {"code": "InternalFailure", "status": 500},
    {"cut_after": 20},
    {"code": "ExpiredTokenException"},
)
