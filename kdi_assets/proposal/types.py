"""From what was seen of a field to the type that takes most of its values, and changes none of them.

What a type takes is what the decoder takes: a ``string`` keeps integers and booleans as they are written, but condemns
fractions, objects and arrays; a ``double`` takes no text; a ``decimal`` takes text that is a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kdi_assets.proposal.seen import TEXTS, Kind, Seen

MOST_FIELDS = 500
"""Of one object; those that most messages have."""
MAP_KEYS, MAP_KEYS_PER_OBJECT = 64, 8
"""Objects are maps when so many keys were seen, and so many times more than an object has."""
_DECIMAL_DIGITS, _DECIMAL_FRACTION = 38, 12
_UNUSABLE = set(" ,;{}()\n\t=.'\"`[]\\")
_TAKEN = ("kafka", "_change_type", "_commit_version", "_commit_timestamp")
"""At the top: the struct that expressions know, and columns of Delta's change data feed."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A type without parts, by its DDL."""

    ddl: str


@dataclass(frozen=True, slots=True)
class Struct:
    """An object with known fields.

    Attributes:
        fields: The types by name.
        seen: What was seen of each, by name.
        left_out: Names that are not declared, and why.
    """

    fields: Mapping[str, Type]
    seen: Mapping[str, Seen] = field(compare=False, default_factory=dict)
    left_out: Mapping[str, str] = field(compare=False, default_factory=dict)


@dataclass(frozen=True, slots=True)
class Array:
    """Elements of one type."""

    element: Type


@dataclass(frozen=True, slots=True)
class Map:
    """An object with whatever keys."""

    value: Type


Type: TypeAlias = Scalar | Struct | Array | Map
STRING, BIGINT, DOUBLE, BOOLEAN, DATE, TIMESTAMP = map(
    Scalar, ("string", "bigint", "double", "boolean", "date", "timestamp")
)
_TAKES: Mapping[str, tuple[Kind, ...]] = {
    "boolean": ("boolean",),
    "bigint": ("integer",),
    "double": ("integer", "large", "fraction"),
    "date": ("date",),
    "timestamp": ("date", "timestamp", "zoned"),
    "string": (*TEXTS, "integer", "large", "boolean"),
}
_DECIMAL: tuple[Kind, ...] = ("integer", "large", "fraction", "number_text")


def record_of(seen: Seen) -> Struct:
    """The record of messages that are objects."""
    return _struct(seen, top=True)


def type_of(seen: Seen) -> Type:
    """The type that takes most of the values, the plainest of several; ``string`` where there is none."""
    most = 0
    chosen: Type = STRING
    for taken, make in _candidates(seen):
        if taken > most:
            most, chosen = taken, make()
    return chosen


def _candidates(seen: Seen) -> Iterable[tuple[int, Callable[[], Type]]]:
    """How many values a type takes; the one to be preferred comes first."""
    of, decimal = seen.of, _decimal(seen)
    whole = decimal is not None and not of("fraction")
    yield of("boolean"), lambda: BOOLEAN
    yield of("integer"), lambda: BIGINT
    if whole and decimal:
        yield of("integer", "large"), lambda: decimal
    if not seen.rounded:
        yield of("integer", "large", "fraction") - seen.infinite, lambda: DOUBLE
    elif decimal:
        yield of("integer", "large", "fraction"), lambda: decimal
    yield of("date"), lambda: DATE
    yield of(*_TAKES["timestamp"]), lambda: TIMESTAMP
    yield of(*_TAKES["string"]), lambda: STRING
    if decimal:
        yield of(*_DECIMAL), lambda: decimal
    # Text keeps every integer; where a fraction has too many digits for anything else, a double rounds it.
    yield of("integer", "large", "fraction") - seen.infinite, lambda: DOUBLE
    yield of("array"), lambda: Array(type_of(seen.items) if seen.items else STRING)
    yield of("object"), lambda: _object(seen)


def _decimal(seen: Seen) -> Scalar | None:
    """A decimal that holds all the numbers, unless their digits look like a double's that was written out."""
    behind = seen.fraction_digits
    if behind > _DECIMAL_FRACTION or seen.integer_digits + behind > _DECIMAL_DIGITS or seen.infinite:
        return None
    return Scalar(f"decimal({_DECIMAL_DIGITS},{behind})")


def _object(seen: Seen) -> Type:
    values = _together(seen.fields.values())
    if _is_map(seen):
        return Map(type_of(values))
    struct = _struct(seen)
    return struct if struct.fields else Map(type_of(values))


def _is_map(seen: Seen) -> bool:
    """Whether keys are data: many, of which every object has few, or names that no column can have; one type fits."""
    keys, objects = len(seen.fields), seen.kinds["object"]
    if not keys or not objects:
        return False
    each = sum(inner.kinds.total() for inner in seen.fields.values()) / objects
    many = keys >= MAP_KEYS and keys >= MAP_KEYS_PER_OBJECT * each
    unusable = sum(1 for name in seen.fields if _why_not(name))
    if not (many or unusable > keys / 2):
        return False
    values = _together(seen.fields.values())
    return not values.values or fits_all(type_of(values), values)


def fits_all(declared: Type, seen: Seen) -> bool:
    """Whether a type takes every value, as far as kinds tell."""
    match declared:
        case Struct():
            return seen.of("object") == seen.values
        case Map(value):
            inner = _together(seen.fields.values())
            return seen.of("object") == seen.values and fits_all(value, inner)
        case Array(element):
            return seen.of("array") == seen.values and (seen.items is None or fits_all(element, seen.items))
        case Scalar(ddl):
            return seen.of(*_TAKES.get(ddl, _DECIMAL)) == seen.values


def _together(several: Iterable[Seen]) -> Seen:
    """What was seen of many fields, as if they were one."""
    whole = Seen()
    for one in several:
        whole.kinds.update(one.kinds)
        whole.in_messages = max(whole.in_messages, one.in_messages)
        for name, inner in one.fields.items():
            whole.fields[name] = _together([whole.fields[name], inner]) if name in whole.fields else inner
        if one.items:
            whole.items = _together([whole.items, one.items]) if whole.items else one.items
        whole.integer_digits = max(whole.integer_digits, one.integer_digits)
        whole.fraction_digits = max(whole.fraction_digits, one.fraction_digits)
        whole.rounded += one.rounded
        whole.infinite += one.infinite
    return whole


def _struct(seen: Seen, *, top: bool = False) -> Struct:
    fields: dict[str, Type] = {}
    left_out: dict[str, str] = {}
    often = sorted(seen.fields, key=lambda name: -seen.fields[name].kinds.total())  # stable: first seen, first here
    spelt: dict[str, str] = {}
    for name in often:
        if why := _why_not(name, top=top):
            left_out[name] = why
        elif other := spelt.get(name.lower()):
            left_out[name] = f"its name differs from {other} only in case"
        elif len(spelt) == MOST_FIELDS:
            left_out[name] = f"beyond the {MOST_FIELDS} fields that most messages have"
        else:
            spelt[name.lower()] = name
    for name, inner in seen.fields.items():
        if name not in left_out:
            fields[name] = type_of(inner)
    return Struct(fields, {name: seen.fields[name] for name in fields}, left_out)


def is_taken(name: str) -> bool:
    """Whether a record cannot have a field of that name, because something else has it."""
    return name.lower() in _TAKEN or name.lower().startswith("_kdi_")


def _why_not(name: str, *, top: bool = False) -> str:
    """Why a field cannot be a column; empty if it can."""
    if not name or not name.isprintable():
        return "its name cannot be printed"
    if set(name) & _UNUSABLE:
        return "its name has a character that a column's cannot have"
    if top and is_taken(name):
        return "its name is taken"
    return ""


def ddl_name(name: str) -> str:
    """The name as DDL and expressions take it."""
    return name if _PLAIN.fullmatch(name) and name.lower() not in KEYWORDS else f"`{name}`"


KEYWORDS = frozenset(("null", "true", "false"))
"""What Spark SQL reads otherwise, also where a column has the name."""
