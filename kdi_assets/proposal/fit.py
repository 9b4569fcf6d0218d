"""Why the decoder would condemn a message whose record is declared so; told on the driver, of a sample alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from kdi_assets.proposal.json_text import Json
from kdi_assets.proposal.seen import INT64, digits
from kdi_assets.proposal.times import told
from kdi_assets.proposal.types import Array, Map, Scalar, Struct, Type

_JAVA_NUMBER = re.compile(r"[+-]?([0-9]+([.][0-9]*)?|[.][0-9]+)([eE][+-]?[0-9]{1,9})?")
"""What a decimal takes of texts."""
Misfit = tuple[str, str]
"""Reason and field, as the decoder gives them to a dead letter."""


def misfit(document: dict[str, Json], record: Struct) -> Misfit | None:
    """The first reason to condemn a JSON object; ``None`` if it becomes a record."""
    return next(_unparsed(document, record), None) or next(_lossy(document, record), None)


def _unparsed(value: Json, declared: Type, path: str = "", *, leaf: str = "") -> Iterator[Misfit]:
    """What does not parse; the field is the innermost one that is neither in an array nor in a map."""
    at = leaf or path
    if value is None:
        return
    match declared:
        case Struct(fields):
            for name, inner in fields.items():
                here = f"{path}.{name}" if path else name
                if isinstance(value, dict):
                    yield from _unparsed(value.get(name), inner, here, leaf=leaf)
                else:
                    yield "wrong_type", leaf or next(_leaves(inner, here))
        case Array(element):
            if not isinstance(value, list):
                yield "wrong_type", at
                return
            for item in value:
                yield from _unparsed(item, element, leaf=at)
        case Map(inner):
            if not isinstance(value, dict):
                yield "wrong_type", at
                return
            for item in value.values():
                yield from _unparsed(item, inner, leaf=at)
        case Scalar(ddl):
            if reason := _scalar_unparsed(value, ddl):
                yield ("wrong_type" if leaf else reason), at


def _leaves(declared: Type, path: str) -> Iterator[str]:
    if not isinstance(declared, Struct):
        yield path
        return
    for name, inner in declared.fields.items():
        yield from _leaves(inner, f"{path}.{name}")


def _scalar_unparsed(value: Json, ddl: str) -> str:
    """Texts and times parse as whatever there is; they are looked at afterwards."""
    number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    match ddl:
        case "bigint":
            if not number or isinstance(value, Decimal):
                return "wrong_type"
            return "" if isinstance(value, int) and -INT64 <= value < INT64 else "out_of_range"
        case "double":
            return "" if number else "wrong_type"
        case "boolean":
            return "" if isinstance(value, bool) else "wrong_type"
        case "string" | "date" | "timestamp":
            return ""
    return "" if number or (isinstance(value, str) and _JAVA_NUMBER.fullmatch(value)) else "wrong_type"


def _lossy(value: Json, declared: Type, path: str = "") -> Iterator[Misfit]:
    """What would be changed on the way."""
    if value is None:
        return
    match declared:
        case Struct(fields):
            for name, inner in fields.items():
                if isinstance(value, dict):
                    yield from _lossy(value.get(name), inner, f"{path}.{name}" if path else name)
        case Array(element):
            for item in value if isinstance(value, list) else ():
                yield from _lossy(item, element, f"{path}[]")
        case Map(inner):
            for item in value.values() if isinstance(value, dict) else ():
                yield from _lossy(item, inner, f"{path}[]")
        case Scalar(ddl):
            if reason := _scalar_lossy(value, ddl):
                yield reason, path


def _scalar_lossy(value: Json, ddl: str) -> str:
    if ddl == "string":
        return "wrong_type" if isinstance(value, Decimal | list | dict) else ""
    if ddl == "double":
        infinite = isinstance(value, int | Decimal) and abs(float(Decimal(value))) == float("inf")
        return "out_of_range" if infinite else ""
    if ddl in ("date", "timestamp"):
        found = told(value) if isinstance(value, str) else None
        forms = ("date",) if ddl == "date" else ("date", "timestamp", "zoned")
        return "" if found and found.form in forms else "wrong_type"
    if ddl.startswith("decimal") and isinstance(value, int | Decimal | str):
        behind = int(ddl.removesuffix(")").rpartition(",")[2])
        return "too_precise" if digits(Decimal(value))[1] > behind else ""
    return ""
