"""Envelopes of changes, such as Debezium's: rows of messages become rows of changes, and refining knows no envelope.

The columns of a change: those of the row, then ``_kdi_sequence``, ``_kdi_deletes`` and ``_kdi_at``; of Debezium also
``_kdi_unchanged``, the names of the columns whose values the message does not have.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from hashlib import md5
from typing import TYPE_CHECKING
from uuid import UUID

from kdi_assets.documents.model.refined_modes import OFFSET, Upsert
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.source_struct import KAFKA, SOURCE_STRUCTS
from kdi_assets.follow.refine.columns import AT, kept_columns, one_value
from kdi_assets.follow.refine.row_errors import QueryMistake
from kdi_assets.messages.formats.rules import literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField, StructType

CHANGE_SEQUENCE, CHANGE_DELETES, CHANGE_AT = "_kdi_sequence", "_kdi_deletes", "_kdi_at"
UNCHANGED = "_kdi_unchanged"
PLACE: Mapping[str, str] = {"partition": "int", "offset": "bigint", "index": "int"}
"""Where a change lies: its message, and its number among the rows of that message, if these are numbered."""
MESSAGE_KEY = "message_key"
"""A column with the message's key as JSON text: keys of deletes whose ``before`` lacks them."""
_ENDS = "_kdi_ends"


def coordinates_of(rows: DataFrame) -> Column:
    """Where each row's change lies, ``struct<partition: int, offset: bigint>``; null if not kept.

    Of the struct of a source; or of ``sequence_at``, if the rows are those of an upserted table. Where a message may
    become several rows, it also has ``index: int``.
    """
    from pyspark.sql import functions as F

    for column in (*(struct.name for struct in SOURCE_STRUCTS), AT):
        struct = _struct(rows, column)
        if struct is not None and has_coordinates(rows, column):
            fields = [name for name in PLACE if name in struct.names]
            place = F.struct(*(F.col(column)[name].alias(name) for name in fields))
            return F.when(F.col(column).isNotNull(), place).cast(_place_type(fields))
    return F.lit(None).cast(_place_type(["partition", "offset"]))


def _place_type(fields: Collection[str]) -> str:
    return f"struct<{', '.join(f'{name}: {PLACE[name]}' for name in fields)}>"


def ordering(rows: DataFrame, sql: str) -> str:
    """What a document orders rows by: the default, the offset, is in the struct of the source that the rows have."""
    if sql == OFFSET and not has_coordinates(rows, KAFKA.name):
        sql = next((struct.path("offset") for struct in SOURCE_STRUCTS if has_coordinates(rows, struct.name)), sql)
    return one_value(sql)


def has_coordinates(rows: DataFrame, column: str) -> bool:
    """Whether a column is a struct with ``partition`` and ``offset``."""
    struct = _struct(rows, column)
    return struct is not None and {"partition", "offset"} <= set(struct.names)


def without_envelope(rows: DataFrame, table: RefinedTableSpec, mode: Upsert) -> DataFrame:
    """The changes in some rows, of a document with an envelope.

    Raises:
        QueryMistake: The rows do not have the envelope's columns.
    """
    from pyspark.sql import functions as F

    if mode.envelope == "debezium":
        return _debezium(rows, table, mode)
    changes = rows.withColumns(
        {
            CHANGE_SEQUENCE: F.expr(ordering(rows, mode.sequence_by)),
            CHANGE_DELETES: F.expr("coalesce(tombstone, false)"),
            CHANGE_AT: coordinates_of(rows),
        }
    )
    return changes.drop("tombstone")


def _debezium(rows: DataFrame, table: RefinedTableSpec, mode: Upsert) -> DataFrame:
    """The rows of ``after``, and the keys that a change deletes; an update that changes the keys ends the old ones.

    Source: Debezium, "Change event values": ``op`` says what happened; ``before`` may have the keys alone, other
    columns than ``after`` or nothing, as the database's settings are.
    """
    from pyspark.sql import functions as F

    rows = _unwrapped(rows)
    after = _struct(rows, "after")
    if after is None or "op" not in rows.columns:
        detail = f"mode has envelope debezium, and the rows have no columns after and op: {', '.join(rows.columns)}"
        raise QueryMistake(table=table.name, field="mode.upsert.envelope", detail=detail)
    before = _struct(rows, "before")
    _refuse_keys_of_another_form(table, mode, before, after)
    old = {f.name: _field_of(before, f) for f in after.fields}
    old_keys = {key: _old_key(rows, after, key, old.get(key)) for key in mode.keys}
    deletes = F.expr("coalesce(op = 'd', false)")  # by null, the row would be neither there nor deleted
    changes, ends = _with_ended_keys(rows, old_keys)
    columns = {
        CHANGE_SEQUENCE: F.expr(ordering(rows, mode.sequence_by)),
        CHANGE_DELETES: deletes | ends,
        CHANGE_AT: coordinates_of(rows),
    }
    unchanged = {
        f.name: same
        for f in after.fields
        if f.name not in mode.keys and (same := _is_placeholder(f.name, f.dataType, mode))
    }
    if unchanged:
        columns[UNCHANGED] = _unchanged_names(unchanged, old, kept_columns(after.names, mode))
    values = []
    for f in after.fields:
        value = F.col(f"after.`{f.name}`")
        if f.name in old_keys:
            value = F.when(deletes | ends, old_keys[f.name]).otherwise(value)
        elif f.name in unchanged:
            value = F.when(F.expr(unchanged[f.name]), old[f.name]).otherwise(value)
        values.append(value.alias(f.name))
    return changes.select(*values, *(column.alias(name) for name, column in columns.items()))


def _unwrapped(rows: DataFrame) -> DataFrame:
    """Without Kafka Connect's ``schema`` and ``payload``."""
    if "op" in rows.columns or _struct(rows, "payload") is None:
        return rows
    return rows.select("payload.*", *(f"`{name}`" for name in rows.columns if name not in ("payload", "schema")))


def _struct(rows: DataFrame, column: str) -> StructType | None:
    from pyspark.sql.types import StructType

    kind = next((f.dataType for f in rows.schema.fields if f.name == column), None)
    return kind if isinstance(kind, StructType) else None


def _refuse_keys_of_another_form(
    table: RefinedTableSpec, mode: Upsert, before: StructType | None, after: StructType
) -> None:
    """Refuse keys that sql has read in ``after`` alone: no delete would find its row.

    Raises:
        QueryMistake: A key has another form in ``before``.
    """
    for key in mode.keys:
        if before is None or key not in before.names or key not in after.names:
            continue
        if _is_other_form(before[key], after[key]):
            sent, read = before[key].dataType.simpleString(), after[key].dataType.simpleString()
            detail = (
                f"{key} is {sent} in before and {read} in after: no delete would find its row. Make `before` in sql of "
                f"the same values too: named_struct('{key}', …) AS before"
            )
            raise QueryMistake(table=table.name, field="mode.upsert.keys", detail=detail)


def _field_of(before: StructType | None, field: StructField) -> Column:
    """A field of ``before`` in the type of ``after``; null if it does not have the value."""
    from pyspark.sql import functions as F

    if before is None or field.name not in before.names or _is_other_form(before[field.name], field):
        return F.lit(None).cast(field.dataType)
    return F.col(f"before.`{field.name}`").cast(field.dataType)


def _is_other_form(sent: StructField, field: StructField) -> bool:
    """Whether a field has values as Connect's JSON has them, of which a cast would make others: base64, or a number."""
    from pyspark.sql.types import BinaryType, DateType, NumericType, TimestampNTZType, TimestampType

    if isinstance(field.dataType, BinaryType):
        return not isinstance(sent.dataType, BinaryType)
    times = DateType | TimestampType | TimestampNTZType
    return isinstance(field.dataType, times) and isinstance(sent.dataType, NumericType)


def _old_key(rows: DataFrame, after: StructType, key: str, of_before: Column | None) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import TimestampNTZType, TimestampType

    if of_before is None or MESSAGE_KEY not in rows.columns:
        return F.lit(None) if of_before is None else of_before
    kind = after[key].dataType
    # Of a time, text alone is one: a number counts what the connector's type says, which is not in the key.
    is_time = isinstance(kind, TimestampType | TimestampNTZType)
    read_as = "string" if is_time else kind.simpleString()
    parsed = F.from_json(F.col(MESSAGE_KEY).cast("string"), f"`{key}` {read_as}, payload struct<`{key}`: {read_as}>")
    of_key = F.coalesce(parsed[key], parsed["payload"][key])
    return F.coalesce(of_before, of_key.try_cast(kind) if is_time else of_key)


def _with_ended_keys(rows: DataFrame, old_keys: Mapping[str, Column]) -> tuple[DataFrame, Column]:
    """The rows, those of updates that change keys twice; and which are the second ones, which end the old keys."""
    from pyspark.sql import functions as F

    before = _struct(rows, "before")
    if before is None or not set(old_keys) <= set(before.names):
        return rows, F.lit(False)
    known = [old.isNotNull() for old in old_keys.values()]
    other = [~old.eqNullSafe(F.col(f"after.`{key}`")) for key, old in old_keys.items()]
    is_state = F.expr("coalesce(op, '') NOT IN ('d', 't', 'm') AND after IS NOT NULL")
    moved = is_state & _all(known) & ~_all([~o for o in other])
    twice = F.when(moved, F.array(F.lit(False), F.lit(True))).otherwise(F.array(F.lit(False)))
    return rows.withColumn(_ENDS, F.explode(twice)), F.col(_ENDS)


def _all(conditions: list[Column]) -> Column:
    found = conditions[0]
    for condition in conditions[1:]:
        found = found & condition
    return found


def _unchanged_names(unchanged: Mapping[str, str], old: Mapping[str, Column], kept: Collection[str]) -> Column:
    """The columns whose values neither ``after`` nor ``before`` has; null if there are none, as in most changes.

    Args:
        kept: The columns of the table.
    """
    from pyspark.sql import functions as F

    unchanged = {name: same for name, same in unchanged.items() if name in kept}
    if not unchanged:
        return F.lit(None).cast("array<string>")
    names = [F.when(F.expr(same) & old[name].isNull(), F.lit(name)) for name, same in unchanged.items()]
    listed = F.array_compact(F.array(*names))
    return F.when(F.expr(" OR ".join(f"({same})" for same in unchanged.values())) & (F.size(listed) > 0), listed)


def _is_placeholder(column: str, kind: DataType, mode: Upsert) -> str:
    """SQL: whether ``after`` has Debezium's placeholder in the place of a value; empty for types that have none.

    Source: Debezium, PostgreSQL connector, ``UnchangedToastedPlaceholder``: the word itself, or hstore's JSON of it;
    its bytes for binary values, which Connect's JSON has as base64; for arrays and maps, one element of it, or of the
    UUID that Java makes of it; for arrays of numbers, its bytes, which Java takes for signed.
    """
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        DoubleType,
        FloatType,
        IntegerType,
        LongType,
        MapType,
        ShortType,
        StringType,
    )

    value, word = f"after.`{column}`", mode.unavailable_value
    text, in_bytes = literal(word), f"encode({literal(word)}, 'UTF-8')"
    match kind:
        case StringType():
            as_map = literal(json.dumps({word: word}, ensure_ascii=False, separators=(",", ":")))
            return f"coalesce({value} IN ({text}, base64({in_bytes}), {as_map}), false)"
        case BinaryType():
            return f"coalesce({value} = {in_bytes}, false)"
        case ArrayType(elementType=StringType()):
            uuid = UUID(bytes=md5(word.encode(), usedforsecurity=False).digest(), version=3)
            return f"coalesce({value} IN (array({text}), array(base64({in_bytes})), array('{uuid}')), false)"
        case ArrayType(elementType=BinaryType()):
            return f"coalesce({value} = array({in_bytes}), false)"
        case ArrayType(elementType=ShortType() | IntegerType() | LongType() | FloatType() | DoubleType()):
            numbers = ", ".join(str((byte + 128) % 256 - 128) for byte in word.encode())
            return f"coalesce({value} = CAST(array({numbers}) AS {kind.simpleString()}), false)"
        case MapType(keyType=StringType(), valueType=StringType()):
            return f"coalesce(size({value}) = 1 AND {value}[{text}] = {text}, false)"
    return ""
