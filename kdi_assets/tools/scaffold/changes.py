"""Debezium's changes in a sample: the record of their messages, and the refined table that is made of them.

Source: Debezium, "Change event values" and "Change event keys" of its connectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kdi_assets.messages.kafka.sample import SampledMessage
from kdi_assets.tools.scaffold.connect_schema import fields_of, read_value, type_of_schema
from kdi_assets.tools.scaffold.errors import NoRecord
from kdi_assets.tools.scaffold.field_stats import FieldStats, JsonRecord, JsonValue, json_object, stats_of
from kdi_assets.tools.scaffold.infer_types import BIGINT, Struct, record_of, type_of

OPS = frozenset("crudtm")
LEAST_SHARE = 0.9
"""So many of the records must be changes."""
_BINLOG = "struct(CAST(substring_index({0}.file, '.', -1) AS BIGINT), {0}.pos)"
_LSN_DIGITS = 22
_COMMIT = ", ".join(f"lpad(coalesce({{0}}.{name}, ''), {_LSN_DIGITS}, '0')" for name in ("commit_lsn", "change_lsn"))
SEQUENCES: Mapping[str, str] = {
    "postgresql": "{0}.lsn",
    "mysql": _BINLOG,
    "mariadb": _BINLOG,
    "sqlserver": f"struct({_COMMIT})",
    "oracle": "CAST({0}.scn AS DECIMAL(38, 0))",
}
"""By connector: what its source counts."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What a topic of changes is.

    Attributes:
        record: The record of the messages; ``before`` has the types of ``after``.
        row: The columns of the source's table, which are those of ``after``.
        connector: Debezium's name of the source's kind.
        keys: The columns of the messages' keys; empty if they have none.
        wrapped: Whether Connect's ``schema`` and ``payload`` are around each change.
        read: By column, SQL of the values that are sent in another form, with ``{0}`` for the column.
    """

    record: Struct
    row: Struct
    connector: str
    keys: Sequence[str]
    wrapped: bool
    read: Mapping[str, str] = field(default_factory=dict)

    @property
    def envelope(self) -> str:
        """Prefix of the envelope's fields in the record."""
        return "payload." if self.wrapped else ""

    @property
    def sequence_by(self) -> str:
        """SQL of the source's own order."""
        return SEQUENCES.get(self.connector, "{0}.ts_ms").format("source")

    @property
    def times(self) -> Struct:
        """Of the record, the time at which the change was sent."""
        sent = Struct({"ts_ms": BIGINT})
        return Struct({"payload": sent}) if self.wrapped else sent


def changes_of(messages: Sequence[SampledMessage], records: Sequence[object]) -> Changes | None:
    """Recognise a topic of changes.

    Args:
        messages: The messages with a value.
        records: Of each message; what is not JSON object counts for nothing.

    Returns:
        ``None`` if most records are not changes of rows.
    """
    sent = sorted(zip(messages, records, strict=True), key=lambda pair: _sent_at(pair[0]))
    objects = [record for _, record in sent if isinstance(record, dict)]
    changes = [change for record in objects if _is_change(change := record.get("payload", record))]
    if not changes or len(changes) < LEAST_SHARE * len(objects):
        return None
    described = [record["schema"] for record in objects if record.keys() == {"schema", "payload"}]
    # The newest message has the source's columns of today.
    schema = described[-1] if described else None
    if described and not isinstance(schema, dict):
        return None
    found = _described(schema) if isinstance(schema, dict) else _seen(changes)
    if found is None:
        return None
    envelope, row = found
    envelope = Struct({**envelope.fields, "before": row, "after": row}, envelope.stats, envelope.left_out)
    keys = [name for name in _key_names([message for message, _ in sent]) if name in row.fields]
    return Changes(
        Struct({"payload": envelope}) if described else envelope,
        row,
        str(changes[-1]["source"]["connector"]),
        keys,
        wrapped=bool(described),
        read=dict(_conversions(schema, row)) if isinstance(schema, dict) else {},
    )


def _sent_at(message: SampledMessage) -> tuple[float, int]:
    """By what messages of several topic partitions are ordered."""
    return message.timestamp.timestamp() if message.timestamp else 0.0, message.offset


def _is_change(payload: JsonValue) -> bool:
    if not isinstance(payload, dict) or not isinstance(source := payload.get("source"), dict):
        return False
    row = payload.get("after") if payload.get("op") != "d" else payload.get("before")
    return payload.get("op") in OPS and "connector" in source and (row is None or isinstance(row, dict))


def _seen(changes: Sequence[JsonRecord]) -> tuple[Struct, Struct] | None:
    """The envelope and the row by their values; without fields of the envelope of which only null was seen."""
    rows, stats = FieldStats(), stats_of(changes)
    for number, change in enumerate(changes):
        rows.add(change.get("after"), number)
        rows.add(change.get("before"), number)
    row = type_of(rows)
    if not isinstance(row, Struct) or not row.fields:
        return None
    for seen in (stats, stats.fields["source"]):
        seen.fields = {name: inner for name, inner in seen.fields.items() if inner.values}
    return record_of(stats), row


def _described(schema: Mapping[str, Any]) -> tuple[Struct, Struct] | None:
    """The envelope and the row by Connect's schema of a message."""
    envelope = type_of_schema(schema)
    row = envelope.fields.get("after") if isinstance(envelope, Struct) else None
    if isinstance(envelope, Struct) and isinstance(row, Struct) and row.fields:
        return envelope, row
    return None


def _conversions(schema: Mapping[str, Any], row: Struct) -> Iterator[tuple[str, str]]:
    for name, column in fields_of(fields_of(schema)["after"]).items():
        if name in row.fields and (read := read_value(column, "{0}")):
            yield name, read


def _key_names(messages: Sequence[SampledMessage]) -> Sequence[str]:
    """The names in the newest message's key.

    Args:
        messages: The newest last.
    """
    for message in reversed(messages):
        try:
            key: JsonValue = json_object(message.key or b"")
        except NoRecord:
            continue
        if isinstance(key, dict) and key.keys() == {"schema", "payload"}:
            key = key["payload"]
        return list(key) if isinstance(key, dict) else ()
    return ()
