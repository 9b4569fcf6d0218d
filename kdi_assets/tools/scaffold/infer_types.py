"""From the statistics of a field to the type that most of its values fit without a change.

A value fits a type if the decoder accepts it: a ``string`` takes integers and booleans as they are written, but no
fractions, objects or arrays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kdi_assets.messages.formats.field_uses import FORBIDDEN, RESERVED
from kdi_assets.tools.scaffold.field_stats import NUMBERS, FieldStats, JsonRecord, JsonValue, Misfit, ValueKind, kind_of

MOST_KEYS = 100
"""Objects within messages that have more different keys are maps: their keys are data, not field names."""
MOST_DECIMAL_DIGITS = 12
"""Numbers with more digits after the decimal point are doubles, written out."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYWORDS = ("null", "true", "false")


@dataclass(frozen=True, slots=True)
class Struct:
    """An object with known fields.

    Attributes:
        fields: Types by name.
        stats: Statistics by name.
        left_out: Names of fields that cannot be columns, with the reason.
    """

    fields: Mapping[str, Type]
    stats: Mapping[str, FieldStats] = field(compare=False, default_factory=dict)
    left_out: Mapping[str, str] = field(compare=False, default_factory=dict)


@dataclass(frozen=True, slots=True)
class Array:
    """Elements of one type."""

    element: Type


Type: TypeAlias = str | Struct | Array
"""The DDL of a plain type, or a nested type."""
STRING, BIGINT, DOUBLE, BOOLEAN, DATE, TIMESTAMP = "string", "bigint", "double", "boolean", "date", "timestamp"
_TIMES: tuple[ValueKind, ...] = ("date", "local", "zoned")
_ACCEPTED: Mapping[str, tuple[ValueKind, ...]] = {
    BOOLEAN: ("boolean",),
    BIGINT: ("integer",),
    DATE: ("date",),
    TIMESTAMP: _TIMES,
    STRING: ("text", *_TIMES, "integer", "large", "boolean"),
}
"""Kinds of values that the decoder accepts for a type; all other types accept numbers."""


def record_of(stats: FieldStats) -> Struct:
    """The record of messages that are objects."""
    return _struct(stats, top=True)


def type_of(stats: FieldStats) -> Type:
    """The type that most values fit, the simplest of several; ``string`` without values."""
    return _best(stats)[1]


def type_of_all(stats: FieldStats) -> Type:
    """The type that all values fit, without rounding; else ``string``: for columns of text, where both are possible."""
    most, declared = _best(stats)
    return declared if most == stats.values and not (stats.rounded and declared == DOUBLE) else STRING


def fitting(declared: Type, stats: FieldStats) -> int:
    """Number of values that fit the type, judged by their kinds."""
    if isinstance(declared, str):
        return stats.count(*_ACCEPTED.get(declared, NUMBERS))
    return stats.count("array" if isinstance(declared, Array) else "object")


def misfit(record: JsonRecord, declared: Struct) -> Misfit | None:
    """The decoder's reason against a record, and the field at the top; ``None`` if the record fits."""
    reasons = ((_misfit_reason(record.get(name), type_), name) for name, type_ in declared.fields.items())
    return next(((reason, name) for reason, name in reasons if reason), None)


def _misfit_reason(value: JsonValue, declared: Type) -> str:
    """The decoder's reason against a value; empty if it fits."""
    match declared:
        case _ if value is None:
            return ""
        case str() if declared.startswith("map<"):
            return "" if isinstance(value, dict) else "wrong_type"
        case str():
            kind = kind_of(value)
            if kind in _ACCEPTED.get(declared, NUMBERS):
                return ""
            return "out_of_range" if (declared, kind) == (BIGINT, "large") else "wrong_type"
        case Struct(fields) if isinstance(value, dict):
            inner = (_misfit_reason(value.get(name), type_) for name, type_ in fields.items())
        case Array(element) if isinstance(value, list):
            inner = (_misfit_reason(item, element) for item in value)
        case _:
            return "wrong_type"
    return next(filter(None, inner), "")


def _best(stats: FieldStats) -> tuple[int, Type]:
    """The number of values that fit the best type, and this type."""
    # Decimal if a double would round, unless the numbers are doubles, written out.
    number = f"decimal(38,{stats.scale})" if stats.rounded and stats.scale <= MOST_DECIMAL_DIGITS else DOUBLE
    best = max((BOOLEAN, BIGINT, number, DATE, TIMESTAMP, STRING), key=lambda declared: fitting(declared, stats))
    most, arrays, objects = fitting(best, stats), stats.count("array"), stats.count("object")
    if max(arrays, objects) <= most:
        return most, best if most else STRING
    if objects > arrays:
        return objects, _struct(stats)
    return arrays, Array(type_of(stats.items) if stats.items else STRING)


def _struct(stats: FieldStats, *, top: bool = False) -> Struct:
    fields: dict[str, Type] = {}
    left_out: dict[str, str] = {}
    first_spelling: dict[str, str] = {}
    for name, inner in stats.fields.items():
        declared = type_of(inner)
        other = first_spelling.setdefault(name.lower(), name)
        why = name_problem(name, top=top) or _object_problem(declared, inner)
        if other != name:
            why = f"its name differs from {other} only in case"
        if why:
            left_out[name] = why
        else:
            fields[name] = declared
    return Struct(fields, {name: stats.fields[name] for name in fields}, left_out)


def _object_problem(declared: Type, stats: FieldStats) -> str:
    """Why objects in a field cannot be a struct; empty if they can, or if the field has none."""
    while isinstance(declared, Array) and stats.items:
        declared, stats = declared.element, stats.items
    if not isinstance(declared, Struct):
        return ""
    if len(stats.fields) > MOST_KEYS:
        return f"its objects have {len(stats.fields):,} different keys: `map<string, …>` takes them"
    return "" if declared.fields else "its objects have no field that can be a column"


def is_reserved(name: str) -> bool:
    """Whether no field of a record may have this name."""
    return name.lower() in RESERVED or name.lower().startswith("_kdi_")


def name_problem(name: str, *, top: bool = False) -> str:
    """Why no column can have this name; empty if one can."""
    if not name or not name.isprintable():
        return "its name cannot be printed"
    if not FORBIDDEN.isdisjoint(name):
        return "its name has a character that no column name may have"
    return "its name is reserved" if top and is_reserved(name) else ""


def ddl_name(name: str) -> str:
    """The name in DDL and expressions, quoted if necessary."""
    return name if _PLAIN_NAME.fullmatch(name) and name.lower() not in _KEYWORDS else f"`{name}`"
