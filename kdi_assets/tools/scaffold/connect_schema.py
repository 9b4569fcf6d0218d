"""Kafka Connect's schemas in messages: the types of their fields, and SQL for values that are sent in another form.

Source: Kafka Connect, ``JsonConverter`` with ``schemas.enable``; Debezium, "Data type mappings" of its connectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kdi_assets.tools.scaffold.infer_types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    STRING,
    TIMESTAMP,
    Array,
    Struct,
    Type,
    name_problem,
)

MOST_DIGITS, DIGITS_OF_64_BITS = 38, 18
"""Of a decimal in Spark and Delta; of one whose unscaled value always has at most 64 bits."""
_HALF, _TWO_TO_64 = 16, 2**64
_PLAIN: Mapping[str, str] = {
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": BIGINT,
    "float": "float",
    "double": DOUBLE,
    "boolean": BOOLEAN,
    "string": STRING,
    "bytes": STRING,  # Base64 in JSON
}
_CONNECT, _DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."
_DAYS = "date_add(DATE'1970-01-01', {0})"
_OF_MILLIS, _OF_MICROS, _OF_NANOS = "timestamp_millis({0})", "timestamp_micros({0})", "timestamp_micros({0} DIV 1000)"
_CLOCK = "date_format(timestampadd({unit}, {{0}}, TIMESTAMP_NTZ'1970-01-01 00:00:00'), 'HH:mm:ss.{fraction}')"
"""A time of day has no zone: it must not depend on the session's."""
_CLOCK_OF_MILLIS = _CLOCK.format(unit="MILLISECOND", fraction="SSS")
_READ: Mapping[str, str] = {
    f"{_DEBEZIUM}Date": _DAYS,
    f"{_CONNECT}Date": _DAYS,
    f"{_DEBEZIUM}Timestamp": _OF_MILLIS,
    f"{_CONNECT}Timestamp": _OF_MILLIS,
    f"{_DEBEZIUM}MicroTimestamp": _OF_MICROS,
    f"{_DEBEZIUM}NanoTimestamp": _OF_NANOS,
    f"{_DEBEZIUM}Time": _CLOCK_OF_MILLIS,
    f"{_CONNECT}Time": _CLOCK_OF_MILLIS,
    f"{_DEBEZIUM}MicroTime": _CLOCK.format(unit="MICROSECOND", fraction="SSSSSS"),
    f"{_DEBEZIUM}NanoTime": _CLOCK.format(unit="MICROSECOND", fraction="SSSSSS").replace("{0}", "{0} DIV 1000"),
}
"""By a schema's name: SQL of the value that a number stands for."""


def type_of_schema(schema: Mapping[str, Any]) -> Type:
    """The type in which the decoder reads a field of this schema."""
    match schema.get("type"):
        case "struct":
            return Struct({name: type_of_schema(field) for name, field in fields_of(schema).items()})
        case "array":
            return Array(type_of_schema(schema.get("items") or {}))
        case "map":
            keys, values = (type_of_schema(schema.get(part) or {}) for part in ("keys", "values"))
            return f"map<{keys}, {values if isinstance(values, str) else STRING}>"
    if schema.get("name") == f"{_DEBEZIUM}ZonedTimestamp":
        return TIMESTAMP
    return _PLAIN.get(str(schema.get("type")), STRING)


def fields_of(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The schemas of a struct's fields by name, of those that can be columns."""
    fields = (field for field in schema.get("fields") or () if isinstance(field, dict))
    return {str(f["field"]): f for f in fields if not name_problem(str(f.get("field", "")))}


def read_value(schema: Mapping[str, Any], value: str) -> str:
    """SQL of the value that a field stands for; empty if it is sent as it is.

    Args:
        value: SQL of the field.
    """
    name, kind = schema.get("name"), schema.get("type")
    if name == f"{_CONNECT}Decimal":
        parameters = schema.get("parameters") or {}
        digits, scale = int(parameters.get("connect.decimal.precision", MOST_DIGITS)), int(parameters.get("scale", 0))
        return decimal_of(value, digits, scale) if digits <= MOST_DIGITS else ""
    if name in _READ:
        return _READ[str(name)].format(value)
    return f"unbase64({value})" if kind == "bytes" and name is None else ""


def decimal_of(value: str, digits: int, scale: int) -> str:
    """SQL of a decimal that is sent as the Base64 of its unscaled value, a two's complement of at most 16 bytes."""
    unscaled = f"conv(lpad(h, {_HALF}, if(h < '8', '0', 'F')), 16, -10)"
    if digits > DIGITS_OF_64_BITS:
        # Two halves of 64 bits. Of a negative number the higher one is rounded to zero: it stays within a decimal.
        padded = f"lpad(h, {2 * _HALF}, if(h < '8', '0', 'F'))"
        high, low = f"conv(left({padded}, {_HALF}), 16, -10)", f"conv(right({padded}, {_HALF}), 16, 10)"
        high = f"(CAST({high} AS DECIMAL({MOST_DIGITS})) + if(h < '8', 0, 1))"
        low = f"(CAST({low} AS DECIMAL({MOST_DIGITS})) - if(h < '8', 0, {_TWO_TO_64}))"
        unscaled = f"{high} * {_TWO_TO_64} + {low}"
    decimal = f"CAST(concat({unscaled}, 'E-{scale}') AS DECIMAL({digits}, {scale}))"
    return f"transform(array(hex(unbase64({value}))), h -> {decimal})[0]"
