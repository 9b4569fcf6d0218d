"""From the statistics of a field to the type that takes most of its values, and changes none of them.

What a type takes is what the decoder takes: a ``string`` keeps integers and booleans as they are written, but condemns
fractions, objects and arrays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kdi_assets.scaffold.field_stats import NUMBERS, FieldStats, ValueKind, kind_of
from kdi_assets.scaffold.json_text import JsonRecord, JsonValue, Misfit

MOST_KEYS = 100
"""Of objects within messages; where more were seen, they are data and not names."""
_FRACTION = 12
_UNUSABLE = set(" ,;{}()\n\t=.'\"`[]\\")
_TAKEN = ("kafka", "_change_type", "_commit_version", "_commit_timestamp")
"""At the top: the struct that expressions know, and columns of Delta's change data feed."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEYWORDS = ("null", "true", "false")


@dataclass(frozen=True, slots=True)
class Struct:
    """An object with known fields.

    Attributes:
        fields: The types by name.
        stats: The statistics of each, by name.
        left_out: Names that are not declared, and why.
    """

    fields: Mapping[str, Type]
    stats: Mapping[str, FieldStats] = field(compare=False, default_factory=dict)
    left_out: Mapping[str, str] = field(compare=False, default_factory=dict)


@dataclass(frozen=True, slots=True)
class Array:
    """Elements of one type."""

    element: Type


Type: TypeAlias = str | Struct | Array
"""A type without parts is its DDL."""
STRING, BIGINT, DOUBLE, BOOLEAN, DATE, TIMESTAMP = "string", "bigint", "double", "boolean", "date", "timestamp"
_TIMES: tuple[ValueKind, ...] = ("date", "local", "zoned")
_TAKES: Mapping[str, tuple[ValueKind, ...]] = {
    BOOLEAN: ("boolean",),
    BIGINT: ("integer",),
    DATE: ("date",),
    TIMESTAMP: _TIMES,
    STRING: ("text", *_TIMES, "integer", "large", "boolean"),
}
"""Kinds of values that the decoder takes for a type; those not named take numbers."""


def record_of(stats: FieldStats) -> Struct:
    """The record of messages that are objects."""
    return _struct(stats, top=True)


def type_of(stats: FieldStats) -> Type:
    """The type that takes most of the values, the plainest of several; ``string`` where there is none."""
    return _best(stats)[1]


def type_of_all(stats: FieldStats) -> Type:
    """The same if it takes every value and rounds none, else ``string``: of texts, which are whatever one reads."""
    most, declared = _best(stats)
    return declared if most == stats.values and not (stats.rounded and declared == DOUBLE) else STRING


def taken(declared: Type, stats: FieldStats) -> int:
    """How many values become one of the type, as far as their kinds tell."""
    if isinstance(declared, str):
        return stats.of(*_TAKES.get(declared, NUMBERS))
    return stats.of("array" if isinstance(declared, Array) else "object")


def misfit(record: JsonRecord, declared: Struct) -> Misfit | None:
    """Why the decoder condemns an object, and the field at the top in which that lies; ``None`` if it does not."""
    found = ((_unfit(record.get(name), type_), name) for name, type_ in declared.fields.items())
    return next(((reason, name) for reason, name in found if reason), None)


def _unfit(value: JsonValue, declared: Type) -> str:
    """Why a value does not become one of the type; empty if it does."""
    match declared:
        case _ if value is None:
            return ""
        case str():
            kind = kind_of(value)
            if kind in _TAKES.get(declared, NUMBERS):
                return ""
            return "out_of_range" if (declared, kind) == (BIGINT, "large") else "wrong_type"
        case Struct(fields) if isinstance(value, dict):
            inner = (_unfit(value.get(name), type_) for name, type_ in fields.items())
        case Array(element) if isinstance(value, list):
            inner = (_unfit(item, element) for item in value)
        case _:
            return "wrong_type"
    return next(filter(None, inner), "")


def _best(stats: FieldStats) -> tuple[int, Type]:
    """The type, and how many values it takes."""
    # A decimal where a double would round, unless so many digits are those of a double that was written out.
    number = f"decimal(38,{stats.behind})" if stats.rounded and stats.behind <= _FRACTION else DOUBLE
    best = max((BOOLEAN, BIGINT, number, DATE, TIMESTAMP, STRING), key=lambda declared: taken(declared, stats))
    most, arrays, objects = taken(best, stats), stats.of("array"), stats.of("object")
    if max(arrays, objects) <= most:
        return most, best if most else STRING
    if objects > arrays:
        return objects, _struct(stats)
    return arrays, Array(type_of(stats.items) if stats.items else STRING)


def _struct(stats: FieldStats, *, top: bool = False) -> Struct:
    fields: dict[str, Type] = {}
    left_out: dict[str, str] = {}
    spelt: dict[str, str] = {}
    for name, inner in stats.fields.items():
        declared = type_of(inner)
        other = spelt.setdefault(name.lower(), name)
        why = _why_not(name, top=top) or _no_column(declared, inner)
        if other != name:
            why = f"its name differs from {other} only in case"
        if why:
            left_out[name] = why
        else:
            fields[name] = declared
    return Struct(fields, {name: stats.fields[name] for name in fields}, left_out)


def _no_column(declared: Type, stats: FieldStats) -> str:
    """Why a field's objects have no fields of their own; empty if they have, or are none."""
    while isinstance(declared, Array) and stats.items:
        declared, stats = declared.element, stats.items
    if not isinstance(declared, Struct):
        return ""
    if len(stats.fields) > MOST_KEYS:
        return f"its objects have {len(stats.fields):,} different keys: `map<string, …>` takes them"
    return "" if declared.fields else "its objects have no field that can be a column"


def is_taken(name: str) -> bool:
    """Whether a record cannot have a field of that name, because something else has it."""
    return name.lower() in _TAKEN or name.lower().startswith("_kdi_")


def _why_not(name: str, *, top: bool = False) -> str:
    """Why a field cannot be a column; empty if it can."""
    if not name or not name.isprintable():
        return "its name cannot be printed"
    if set(name) & _UNUSABLE:
        return "its name has a character that a column's cannot have"
    return "its name is taken" if top and is_taken(name) else ""


def ddl_name(name: str) -> str:
    """The name as DDL and expressions take it."""
    return name if _PLAIN.fullmatch(name) and name.lower() not in _KEYWORDS else f"`{name}`"
