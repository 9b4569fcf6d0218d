"""A Delta table whose commits are written by hand, so that they can lie in the past and hold what is wanted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from kdi_assets.ledger.entry import Kind, LedgerEntry, RangeCounts
from kdi_assets.stream import OffsetRange, TopicPartition

ORDERS = TopicPartition("orders", 0)


class HandWrittenLog:
    """The log of a table of ``id`` and ``date``, partitioned by date; version 0 is three months old."""

    def __init__(self, folder: Path, *, now: datetime, table_id: str = "t") -> None:
        self.now, self.log, self.version = now, folder / "_delta_log", -1
        self.log.mkdir(parents=True)
        types = {"id": "long", "date": "date"}
        columns = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
        schema = json.dumps({"type": "struct", "fields": columns})
        described = {"id": table_id, "format": {"provider": "parquet", "options": {}}, "schemaString": schema}
        metadata = {**described, "partitionColumns": ["date"], "configuration": {}}
        protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
        self.commit({"protocol": protocol}, {"metaData": metadata}, ago=timedelta(days=90), operation="CREATE TABLE")

    def commit(self, *actions: dict[str, Any], ago: timedelta, operation: str = "WRITE", **info: object) -> None:
        """One commit of these actions, so long ago by its own clock."""
        self.version += 1
        milliseconds = int((self.now - ago).timestamp() * 1000)
        described = {"timestamp": milliseconds, "operation": operation, "operationParameters": {}, **info}
        lines = [{"commitInfo": described}, *actions]
        (self.log / f"{self.version:020}.json").write_text("\n".join(map(json.dumps, lines)))


class TableWithLog(HandWrittenLog):
    """The table of topic ``orders``."""

    def __init__(self, lake: Path, *, now: datetime, table: str = "bronze/orders", table_id: str = "t") -> None:
        self.table = table
        super().__init__(lake / table, now=now, table_id=table_id)

    def ledger_commit(
        self,
        *,
        ago: timedelta,
        kind: Kind = "drain",
        messages: int = 100,
        dead_letters: int = 0,
        files: Mapping[str, list[int]] | None = None,
        wait: timedelta = timedelta(seconds=3),
        **fields: Any,
    ) -> None:
        """A drain of so many messages, planned ``wait`` before; ``files`` are the sizes of what it added, by date."""
        at, rows = self.now - ago, messages - dead_letters
        drained = {
            "ranges": (RangeCounts(OffsetRange(ORDERS, 0, messages), rows, dead_letters),),
            "rows_by_date": {at.date(): rows},
            "planned_at": at - wait,
        }
        given: dict[str, Any] = {"positions": {ORDERS: 100}, **(drained if kind == "drain" else {}), **fields}
        entry = LedgerEntry(self.version + 1, kind, "orders", "try", "orders", "id", "t", **given)
        added = [self._file(day, size, n) for day, sizes in (files or {}).items() for n, size in enumerate(sizes)]
        self.commit(*added, ago=ago, userMetadata=entry.to_json())

    def _file(self, day: str, size: int, number: int) -> dict[str, Any]:
        path = f"date={day}/{self.version + 1}-{number}.parquet"
        place = {"path": path, "partitionValues": {"date": day}}
        return {"add": {**place, "size": size, "modificationTime": 0, "dataChange": True}}
