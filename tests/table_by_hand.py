"""A Delta table whose commits are written by hand, so that they can lie in the past and hold any fault."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from kdi_assets.ledger.entry import Kind, LedgerEntry, RangeCounts
from kdi_assets.ledger.state import partition_id
from kdi_assets.stream import KafkaCluster, OffsetRange, Stream, TopicPartition
from tests.hand_written import HandWrittenLog

TOPIC = "orders"
TP = TopicPartition(TOPIC, 0)


def orders(**fields: Any) -> Stream:
    """A stream whose broker does not exist."""
    main = KafkaCluster("main", "127.0.0.1:1")
    return Stream(TOPIC, "bronze/orders", "id bigint", "current_date()", main, **fields)


class TableByHand(HandWrittenLog):
    """The table of ``orders`` in a lake."""

    def __init__(self, lake: str, *, now: datetime | None = None) -> None:
        self.position = 0
        super().__init__(Path(lake) / "bronze/orders", now=now or datetime.now(UTC))

    def drain(
        self,
        messages: int = 100,
        *,
        ago: timedelta = timedelta(minutes=1),
        dead_letters: int = 0,
        ages: Mapping[int, int] | None = None,
        seconds: float = 2.0,
    ) -> None:
        """A drain of so many messages, planned ``seconds`` before its commit."""
        covered = OffsetRange(TP, self.position, self.position + messages)
        self.position += messages
        self.ledger_commit(
            "drain",
            ago=ago,
            ranges=(RangeCounts(covered, messages - dead_letters, dead_letters),),
            rows_by_date={self.now.date(): messages - dead_letters},
            planned_at=self.now - ago - timedelta(seconds=seconds),
            ages=ages or {},
        )

    def ledger_commit(self, kind: Kind, *, ago: timedelta = timedelta(minutes=1), **fields: Any) -> None:
        """A ledger commit at the position that stands."""
        entry = LedgerEntry(
            self.version + 1, kind, TOPIC, f"try-{self.version + 1}", TOPIC, "topic", "t", {TP: self.position}, **fields
        )
        self.commit(position(TOPIC, self.position), ago=ago, userMetadata=entry.to_json())


def position(app_id: str, at: int) -> dict[str, Any]:
    """The action that sets the position of topic partition 0; the log keeps the last offset covered."""
    return {"txn": {"appId": partition_id(app_id, 0), "version": at - 1}}


def data_file(number: int, day: date | None, *, rows: int, size: int = 1000) -> dict[str, Any]:
    """The action that adds a data file, which nobody wrote."""
    return {
        "add": {
            "path": f"part-{number}.parquet",
            "partitionValues": {"date": day.isoformat() if day else None},
            "size": size,
            "modificationTime": 0,
            "dataChange": True,
            "stats": json.dumps({"numRecords": rows}),
        }
    }
