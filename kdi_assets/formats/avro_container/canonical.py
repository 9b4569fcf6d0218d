"""The canonical form of a schema: equal for all that write a datum as the same bytes, and mean the same by them.

Source: Avro 1.12 specification, "Parsing Canonical Form for Schemas". Logical types stay: they give numbers a unit.
"""

from __future__ import annotations

import json
from typing import Any, Final

_PRIMITIVE: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))


class NoSchema(Exception):
    """A text that is no schema of Avro."""


def canonical_form(schema: bytes | str) -> str:
    """The canonical form of a schema.

    Raises:
        NoSchema: The text is none. Not all that is wrong with one is found here.
    """
    try:
        return json.dumps(_of(json.loads(schema), ""), separators=(",", ":"), ensure_ascii=False)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as wrong:
        raise NoSchema(str(wrong)) from wrong


def _of(schema: Any, namespace: str) -> Any:
    if isinstance(schema, list):
        return [_of(branch, namespace) for branch in schema]
    if isinstance(schema, str):
        return _full(schema, namespace)
    type_ = schema["type"]
    if not isinstance(type_, str):
        return _of(type_, namespace)  # a schema inside braces of its own
    if type_ in _PRIMITIVE:
        return {"type": type_, **logical} if (logical := _logical(schema)) else type_
    if type_ in ("array", "map"):
        inner = "items" if type_ == "array" else "values"
        return {"type": type_, inner: _of(schema[inner], namespace)}
    if type_ not in ("record", "error", "enum", "fixed"):
        return _full(type_, namespace)
    return _named(schema, namespace)


def _named(schema: dict[str, Any], namespace: str) -> dict[str, Any]:
    name = _full(schema["name"], schema.get("namespace", namespace))
    inside = name.rpartition(".")[0]
    form: dict[str, Any] = {"name": name, "type": schema["type"]}
    match schema["type"]:
        case "enum":
            form["symbols"] = list(map(str, schema["symbols"]))
        case "fixed":
            form |= {"size": int(schema["size"]), **_logical(schema)}
        case _:
            form["fields"] = [{"name": str(f["name"]), "type": _of(f["type"], inside)} for f in schema["fields"]]
    return form


def _logical(schema: dict[str, Any]) -> dict[str, Any]:
    return {said: schema[said] for said in ("logicalType", "precision", "scale") if said in schema}


def _full(name: str, namespace: str) -> str:
    return name if name in _PRIMITIVE or "." in name or not namespace else f"{namespace}.{name}"
