"""Spark's types in PostgreSQL, and their values as the text that COPY reads.

The JVM makes one text per row, in COPY's CSV form; the Python worker passes the bytes on and looks at no row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kdi_assets.follow.serve.columns import Column, ServedType
from kdi_assets.follow.serve.errors import ColumnNotServed

SCALARS: Mapping[str, str] = MappingProxyType(
    {
        "boolean": "boolean",
        "byte": "smallint",
        "short": "smallint",
        "integer": "integer",
        "long": "bigint",
        "float": "real",
        "double": "double precision",
        "string": "text",
        "binary": "bytea",
        "date": "date",
        "timestamp": "timestamp with time zone",
        "timestamp_ntz": "timestamp without time zone",
    }
)
"""By Delta's name, PostgreSQL's name as ``format_type`` prints it."""
MOST_COLUMNS = 1600
_OF_THE_SYSTEM = frozenset(("tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"))
"""Source: PostgreSQL 16, "System Columns", and "PostgreSQL Limits"."""
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_JSON_OPTIONS = ", ".join(
    f"'{name}', '{value}'"
    for name, value in {
        "ignoreNullFields": "false",
        # The default cuts microseconds off.
        "timestampFormat": "yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSSXXX",
        "timeZone": "UTC",
        "timestampNTZFormat": "yyyy-MM-dd\\'T\\'HH:mm:ss.SSSSSS",
    }.items()
)


def postgres_types(target: str, columns: Sequence[Column]) -> dict[str, str]:
    """The columns in PostgreSQL, name to type.

    Raises:
        ColumnNotServed: A type has no counterpart, a name is PostgreSQL's own, or there are too many columns.
    """
    if len(columns) > MOST_COLUMNS:
        reason = f"a table in PostgreSQL has at most {MOST_COLUMNS:,} columns, and this one would have {len(columns):,}"
        raise ColumnNotServed(target=target, column=columns[MOST_COLUMNS].name, reason=reason)
    for column in columns:
        if column.name.lower() in _OF_THE_SYSTEM:
            reason = "PostgreSQL has a column of this name in every table; give it another one upstream"
            raise ColumnNotServed(target=target, column=column.name, reason=reason)
        if not _type(column.type):
            raise ColumnNotServed(
                target=target, column=column.name, reason=f"its type {column.type} has no counterpart"
            )
    return {column.name: _type(column.type) for column in columns}


def _type(delta: ServedType) -> str:
    if isinstance(delta, str):
        if decimal := _DECIMAL.fullmatch(delta):
            return f"numeric({decimal[1]},{decimal[2]})"
        return SCALARS.get(delta, "")
    if delta["type"] == "array" and (element := _scalar(delta["elementType"])):
        return f"{element}[]"
    # Arrays of arrays too: PostgreSQL's have the same length in each row, Spark's need not.
    return "jsonb" if delta["type"] in ("struct", "map", "array") and _fits_json(delta) else ""


def _scalar(delta: ServedType) -> str:
    return _type(delta) if isinstance(delta, str) else ""


def _fits_json(delta: ServedType) -> bool:
    """Whether all types inside have a counterpart."""
    if isinstance(delta, str):
        return bool(_type(delta))
    inner = [delta[part] for part in ("elementType", "keyType", "valueType") if part in delta]
    return all(map(_fits_json, [*inner, *(field["type"] for field in delta.get("fields", ()))]))


def csv_line(columns: Sequence[Column]) -> str:
    """A Spark SQL expression: the row as a line of COPY's CSV form, with its line end.

    Source: PostgreSQL 16, "COPY", "CSV Format": an empty value without quotes is NULL; in quotes, only quotes are
    special.
    """
    fields = (f"coalesce({_csv_value(column.sql, column.type)}, '')" for column in columns)
    return "concat(" + ", ',', ".join(fields) + ", '\\n')"


def _csv_value(sql: str, delta: ServedType) -> str:
    if isinstance(delta, str):
        text = _text(sql, delta)
        return _quoted(text) if delta == "string" else text
    if delta["type"] == "array" and (_scalar(delta["elementType"])):
        return _quoted(_array(sql, delta["elementType"]))
    return _quoted(f"to_json({sql}, map({_JSON_OPTIONS}))")


def _quoted(text: str) -> str:
    return f"""concat('"', replace({text}, '"', '""'), '"')"""


def _text(sql: str, delta: str) -> str:
    """The text of a scalar, as PostgreSQL reads it."""
    match delta:
        case "string":
            return sql
        case "binary":
            return f"concat('\\\\x', hex({sql}))"
        case "timestamp":
            # Counted from 1970 in UTC: in the session's time zone a text can be two moments, when clocks go back.
            since = f"timestampadd(MICROSECOND, unix_micros({sql}), TIMESTAMP_NTZ'1970-01-01 00:00:00')"
            return f"concat(cast({since} as string), '+00')"
    return f"cast({sql} as string)"


def _array(sql: str, element: str) -> str:
    """PostgreSQL, "Array Value Input": quoted elements, backslashes and quotes escaped, NULL without quotes."""
    escaped = f"replace(replace({_text('x', element)}, '\\\\', '\\\\\\\\'), '\"', '\\\\\"')"
    item = f"""coalesce(concat('"', {escaped}, '"'), 'NULL')"""
    return f"concat('{{', array_join(transform({sql}, x -> {item}), ','), '}}')"
