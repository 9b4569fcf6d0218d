"""A Delta table with handwritten commits, which can be in the past and contain any fault."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from kdi_assets.delta.markers import table_txn_id, topic_txn_id, version_id
from kdi_assets.documents.model.stream import Cluster, OffsetRange, Stream, TopicPartition
from kdi_assets.streams.ledger.entry import Kind, LedgerEntry, RangeCounts
from kdi_assets.streams.ledger.entry_json import entry_to_json
from kdi_assets.streams.ledger.positions import partition_id

TOPIC = "orders"
TP = TopicPartition(TOPIC, 0)


def orders(**fields: Any) -> Stream:
    """A stream whose broker does not exist."""
    main = Cluster("main", "127.0.0.1:1")
    return Stream(TOPIC, "bronze/orders", "id bigint", "current_date()", main, **fields)


class TableByHand:
    """The table of ``orders`` in a lake, partitioned by date; by default version 0 is three months old."""

    def __init__(
        self,
        lake: str | Path,
        *,
        now: datetime | None = None,
        table_id: str = "t",
        days_old: int = 90,
        table: str = "bronze/orders",
        of_id: dict[str, Any] | None = None,
    ) -> None:
        self.now, self.version, self.position, self.table_id = now or datetime.now(UTC), -1, 0, table_id
        self.log = Path(lake) / table / "_delta_log"
        self.log.mkdir(parents=True)
        types = {"id": "long", "date": "date"}
        said = {"id": of_id or {}, "date": {}}  # metadata of columns
        columns = [{"name": n, "type": kind, "nullable": True, "metadata": said[n]} for n, kind in types.items()]
        schema = json.dumps({"type": "struct", "fields": columns})
        described = {"id": table_id, "format": {"provider": "parquet", "options": {}}, "schemaString": schema}
        age = timedelta(days=days_old)
        made = int((self.now - age).timestamp() * 1000)
        metadata = {**described, "partitionColumns": ["date"], "configuration": {}, "createdTime": made}
        protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
        self.commit({"protocol": protocol}, {"metaData": metadata}, ago=age, operation="CREATE TABLE")

    def commit(self, *actions: dict[str, Any], ago: timedelta, operation: str = "WRITE", **info: object) -> None:
        """One commit of these actions, this long ago by its own clock."""
        self.version += 1
        milliseconds = int((self.now - ago).timestamp() * 1000)
        described = {"timestamp": milliseconds, "operation": operation, "operationParameters": {}, **info}
        lines = [{"commitInfo": described}, *actions]
        self.file(self.version).write_text("\n".join(map(json.dumps, lines)))
        os.utime(self.file(self.version), (milliseconds / 1000, milliseconds / 1000))

    def file(self, version: int) -> Path:
        """The file of a commit."""
        return self.log / f"{version:020}.json"

    def restore(self, version: int, /, *, ago: timedelta = timedelta(), **parameters: object) -> None:
        """A RESTORE: later files are removed; ``parameters`` if the commit names another target."""
        since = (json.loads(line) for n in range(version + 1, self.version + 1) for line in _lines(self.file(n)))
        gone = [{"remove": {"path": a["add"]["path"], "dataChange": True}} for a in since if "add" in a]
        self.commit(*gone, ago=ago, operation="RESTORE", operationParameters=parameters or {"version": str(version)})

    def clean(self) -> None:
        """A cleaned log: a checkpoint, and the commits from it on."""
        DeltaTable(self.log.parent).create_checkpoint()
        for version in range(self.version):
            self.file(version).unlink(missing_ok=True)

    def drain(
        self,
        messages: int = 100,
        *,
        ago: timedelta = timedelta(minutes=1),
        dead_letters: int = 0,
        wait: float = 2.0,
        files: Mapping[date, list[int]] | None = None,
        **fields: Any,
    ) -> None:
        """A drain of this many messages, planned ``wait`` seconds before its commit; ``files``: sizes by date."""
        covered = OffsetRange(TP, self.position, self.position + messages)
        self.position += messages
        sizes = [(day, size) for day, some in (files or {}).items() for size in some]
        self.ledger_commit(
            "drain",
            *(data_file(number, day, rows=1, size=size) for number, (day, size) in enumerate(sizes)),
            ago=ago,
            ranges=(RangeCounts(covered, messages - dead_letters, dead_letters),),
            rows_by_date={self.now.date(): messages - dead_letters},
            planned_at=self.now - ago - timedelta(seconds=wait),
            **fields,
        )

    def ledger_commit(
        self,
        kind: Kind,
        *actions: dict[str, Any],
        at: Mapping[TopicPartition, int] | None = None,
        ago: timedelta = timedelta(minutes=1),
        **fields: Any,
    ) -> None:
        """A ledger commit with every id that ours have, at the current position or at others."""
        version, positions = self.version + 1, at or {TP: self.position}
        given = {"app_id": TOPIC, "topic": TOPIC, "topic_id": "topic", "attempt_id": f"try-{version}", **fields}
        entry = LedgerEntry(version, kind, table_id=self.table_id, positions=positions, **given)
        names = (version_id(TOPIC), topic_txn_id(TOPIC, str(given["topic_id"])), table_txn_id(TOPIC, self.table_id))
        ids = [position(TOPIC, offset, tp.partition) for tp, offset in positions.items()]
        ids += [{"txn": {"appId": name, "version": version}} for name in names]
        self.commit(*ids, *actions, ago=ago, userMetadata=entry_to_json(entry))


def position(app_id: str, at: int, partition: int = 0) -> dict[str, Any]:
    """The action that sets the position of a topic partition; the log has the last offset covered."""
    return {"txn": {"appId": partition_id(app_id, partition), "version": at - 1}}


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def data_file(number: int, day: date | None, *, rows: int, size: int = 1000) -> dict[str, Any]:
    """The action that adds a data file, which does not exist."""
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
