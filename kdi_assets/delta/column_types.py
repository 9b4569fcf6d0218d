"""Columns of a table, and types of the Delta log as text."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kdi_assets.delta.log import TableLog

SPARK_NAMES: Mapping[str, str] = MappingProxyType(
    {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}
)


def type_text(
    schema: Any, *, comma: str = ", ", colon: str = ": ", names: Mapping[str, str] = MappingProxyType({})
) -> str:
    """A type of the Delta log as Spark's DDL: ``struct<a: bigint, b: array<string>>``.

    Args:
        names: Names of simple types where they differ from Spark's.

    Source: Delta protocol, "Schema Serialization Format".
    """
    if isinstance(schema, str):
        return names.get(schema) or SPARK_NAMES.get(schema, schema)

    def inner(part: Any) -> str:
        return type_text(part, comma=comma, colon=colon, names=names)

    match schema["type"]:
        case "struct":
            return f"struct<{comma.join(f['name'] + colon + inner(f['type']) for f in schema['fields'])}>"
        case "array":
            return f"array<{inner(schema['elementType'])}>"
        case _:
            return f"map<{inner(schema['keyType'])}{comma}{inner(schema['valueType'])}>"


def table_fields(uri: str) -> list[Mapping[str, Any]]:
    """The columns of a table's newest version, as Delta's schema JSON has them; none without a table."""
    log = TableLog.open(uri)
    return list(log.schema["fields"]) if log else []
