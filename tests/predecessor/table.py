"""A table as kafka-delta-ingest leaves it, its log written by hand: text for the date, its own order of fields.

Source: its ``delta_helpers.rs`` (transaction ids), ``writer.rs`` (paths, partition values, statistics) and ``lib.rs``
(``STREAMING UPDATE``), at commit c6d42de; the schema is that of its README.
"""

from __future__ import annotations

import json
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from tests.kafka_log import Produced

TEXT = pa.string()
MICROS = pa.timestamp("us", tz="UTC")
COORDINATES = {"offset": pa.int64(), "topic": TEXT, "partition": pa.int32()}
_DELTA_NAMES = {TEXT: "string", pa.int64(): "long", pa.int32(): "integer", MICROS: "timestamp"}


@dataclass(frozen=True)
class PredecessorTable:
    """The table of web requests, filled by `-t 'date: substr(meta.producer.timestamp, …)'` and three or four times
    `-t 'meta.kafka.…'`.

    Attributes:
        coordinates: The fields of ``meta.kafka``, in the table's order.
        partitioned_by: The date first.
        date_length: Third argument of `substr`; 7 makes months of the dates.
    """

    uri: str
    app_id: str = "kdi"
    coordinates: Mapping[str, pa.DataType] | None = None
    partitioned_by: Sequence[str] = ("date",)
    date_length: int = 10

    @property
    def schema(self) -> pa.Schema:
        kafka = pa.struct(list((self.coordinates or COORDINATES).items()))
        meta = pa.struct([("kafka", kafka), ("producer", pa.struct([("timestamp", TEXT)]))])
        texts = [(name, TEXT) for name in ("session_id", "url", "uuid", "date")]
        return pa.schema([("meta", meta), ("method", TEXT), ("status", pa.int32()), *texts])

    def create(self) -> None:
        """Version 0, as someone made it before its first start."""
        Path(self.uri, "_delta_log").mkdir(parents=True)
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(_delta_type(pa.struct(list(self.schema)))),
            "partitionColumns": list(self.partitioned_by),
            "configuration": {},
            "createdTime": _now(),
        }
        said = {"isManaged": "false", "description": None, "partitionBy": "[]", "properties": "{}"}
        info = {"timestamp": _now(), "operation": "CREATE TABLE", "operationParameters": said, "isBlindAppend": True}
        protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
        self._commit(0, {"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata})

    def ingest(self, version: int, messages: Sequence[Produced]) -> None:
        """One of its commits: the rows of the messages, and the last offset of each of their topic partitions."""
        last = {m.topic_partition.partition: m.offset for m in sorted(messages, key=lambda m: m.offset)}
        txns = (
            {"txn": {"appId": f"{self.app_id}-{partition}", "version": offset, "lastUpdated": _now()}}
            for partition, offset in last.items()
        )
        said = {"epochId": str(_now()), "outputMode": "Append", "queryId": self.app_id}
        info = {"timestamp": _now(), "operation": "STREAMING UPDATE", "operationParameters": said}
        info |= {"clientVersion": "delta-rs.0.26.2"}
        self._commit(version, *txns, *self._adds([self._row(m) for m in messages]), {"commitInfo": info})

    def checkpoint(self) -> None:
        """Write a checkpoint, and remove the commits that it covers but the newest."""
        table = DeltaTable(self.uri)
        table.create_checkpoint()
        for version in range(table.version()):
            Path(self.uri, "_delta_log", f"{version:020}.json").unlink()

    def _row(self, message: Produced) -> dict[str, Any]:
        row = json.loads(message.value or b"")
        tp = message.topic_partition
        kept = {"offset": message.offset, "topic": tp.topic, "partition": tp.partition, "timestamp": message.timestamp}
        fields = self.coordinates or COORDINATES
        if fields.get("timestamp") == pa.int64():
            kept["timestamp"] = round(message.timestamp.timestamp() * 1000) * 1000
        meta = {"producer": {"timestamp": None}, **row.get("meta", {}), "kafka": {name: kept[name] for name in fields}}
        date = (meta["producer"]["timestamp"] or "")[: self.date_length] or None
        return {**dict.fromkeys(self.schema.names), **row, "meta": meta, "date": date}

    def _adds(self, rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        by_partition: dict[tuple[str | None, ...], list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            by_partition[tuple(row[column] for column in self.partitioned_by)].append(row)
        for values, some in by_partition.items():
            named = dict(zip(self.partitioned_by, values, strict=True))
            folder = "/".join(f"{column}={value or '__HIVE_DEFAULT_PARTITION__'}" for column, value in named.items())
            path = f"{folder}/part-00000-{uuid.uuid4()}-c000.snappy.parquet"
            file = Path(self.uri, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.Table.from_pylist(some, self.schema), file, compression="snappy")
            yield {
                "add": {
                    "path": path,
                    "partitionValues": named,
                    "size": file.stat().st_size,
                    "modificationTime": _now(),
                    "dataChange": True,
                    "stats": json.dumps(self._statistics(some)),
                    "tags": None,
                }
            }

    def _statistics(self, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        of = [{name: row[name] for name in self.schema.names if name not in self.partitioned_by} for row in rows]
        return {
            "numRecords": len(of),
            "minValues": _each(of, lambda values: min(filter(_is_there, values), default=None)),
            "maxValues": _each(of, lambda values: max(filter(_is_there, values), default=None)),
            "nullCount": _each(of, lambda values: values.count(None)),
        }

    def _commit(self, version: int, *actions: dict[str, Any]) -> None:
        text = "\n".join(json.dumps(action) for action in actions)
        Path(self.uri, "_delta_log", f"{version:020}.json").write_text(text)


def _each(rows: Sequence[Mapping[str, Any]], of_values: Any) -> dict[str, Any]:
    """The same structs, with one value of each leaf that has one; a time as text to the millisecond."""
    found: dict[str, Any] = {}
    for name, value in rows[0].items():
        values = [row[name] for row in rows]
        if isinstance(value, dict):
            found[name] = _each(values, of_values)
        elif (one := of_values(values)) is not None:
            found[name] = f"{one:%Y-%m-%dT%H:%M:%S}.{one.microsecond // 1000:03}Z" if hasattr(one, "year") else one
    return found


def _is_there(value: Any) -> bool:
    return value is not None


def _delta_type(type_: pa.DataType) -> Any:
    if not pa.types.is_struct(type_):
        return _DELTA_NAMES[type_]
    fields = [type_.field(i) for i in range(type_.num_fields)]
    columns = [{"name": f.name, "type": _delta_type(f.type), "nullable": True, "metadata": {}} for f in fields]
    return {"type": "struct", "fields": columns}


def _now() -> int:
    return int(time.time() * 1000)
