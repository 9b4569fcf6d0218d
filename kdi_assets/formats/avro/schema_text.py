"""The texts of Avro schemas: in one, for ``from_avro`` takes no other; with full names; in a form to compare."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kdi_assets.formats.registry.schema import Schema

NAMED = ("record", "error", "enum", "fixed")
PRIMITIVE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
WITHIN = {"array": "items", "map": "values"}


class NoSchema(Exception):
    """A text that is no schema of Avro."""


def in_one_text(schema: Schema) -> str:
    """The schema with each type that it refers to defined where it is met first.

    A text that refers to nothing is answered as it is. What no text defines stays a name: Avro's parser names it.

    Raises:
        ValueError: A text is not JSON.

    Source: Avro specification, "Names": a name without dots is of the namespace around it.
    """
    if not schema.references:
        return schema.text
    elsewhere: dict[str, Any] = {}
    for reference in schema.references:
        for name, definition in definitions(json.loads(reference.text)):
            elsewhere.setdefault(name, definition)
    return json.dumps(_TextWriter(elsewhere).written(json.loads(schema.text), ""), ensure_ascii=False)


def with_full_names(text: str) -> Any:
    """The schema as Python has its JSON, each type that has a name defined once, and then named in full.

    Raises:
        ValueError: The text is not JSON.
    """
    return _TextWriter({}).written(json.loads(text), "")


def canonical_form(text: bytes | str) -> str:
    """Equal for all schemas that write a datum as the same bytes, and mean the same by them.

    Raises:
        NoSchema: The text is none. Not all that is wrong with one is found here.

    Source: Avro specification, "Parsing Canonical Form for Schemas". Logical types stay: they give numbers a unit.
    """
    try:
        schema = json.loads(text)
        names = [name for name, _ in definitions(schema)]
        if len(set(names)) < len(names):
            raise NoSchema(f"it defines a type twice: {', '.join(names)}")
        return json.dumps(_bare(_TextWriter({}).written(schema, "")), separators=(",", ":"), ensure_ascii=False)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as wrong:
        raise NoSchema(str(wrong)) from wrong


def _bare(type_: Any) -> Any:
    """A type with full names, without what says nothing of its bytes or of their meaning."""
    if isinstance(type_, list):
        return [_bare(branch) for branch in type_]
    if isinstance(type_, str):
        return type_
    kind = type_["type"]
    logical = {said: type_[said] for said in ("logicalType", "precision", "scale") if said in type_}
    if kind in PRIMITIVE:
        return {"type": kind, **logical} if logical else kind
    if kind in WITHIN:
        return {"type": kind, WITHIN[kind]: _bare(type_[WITHIN[kind]])}
    form = {"name": _full(type_["name"], type_["namespace"]), "type": kind}
    match kind:
        case "enum":
            return form | {"symbols": list(map(str, type_["symbols"]))}
        case "fixed":
            return form | {"size": int(type_["size"]), **logical}
    return form | {"fields": [{"name": str(f["name"]), "type": _bare(f["type"])} for f in type_["fields"]]}


def definitions(type_: Any, namespace: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every named type that a text defines, by its full name, with its own namespace written in it."""
    if isinstance(type_, list):
        for branch in type_:
            yield from definitions(branch, namespace)
    if not isinstance(type_, dict):
        return
    if type_.get("type") in NAMED:
        full = _full_name_of(type_, namespace)
        namespace = full.rpartition(".")[0]
        yield full, {**type_, "name": full.rpartition(".")[2], "namespace": namespace}
    for field in type_.get("fields", ()):
        yield from definitions(field["type"], namespace)
    for key in ("type", "items", "values"):
        yield from definitions(type_.get(key), namespace)


class _TextWriter:
    """Writes types with full names; remembers what is defined, for a name can be defined only once."""

    def __init__(self, elsewhere: dict[str, Any]) -> None:
        self._elsewhere = elsewhere
        self._defined: set[str] = set()

    def written(self, type_: Any, namespace: str) -> Any:
        """A type as it may stand anywhere in the text."""
        if isinstance(type_, str):
            return self._by_name(type_, namespace)
        if isinstance(type_, list):
            return [self.written(branch, namespace) for branch in type_]
        kind = type_["type"]
        if kind in NAMED:
            return self._definition(type_, namespace)
        if isinstance(kind, str) and kind in WITHIN:
            return {**type_, WITHIN[kind]: self.written(type_[WITHIN[kind]], namespace)}
        # What is said beside a primitive counts (a logical type); beside a name, Avro's parser takes nothing.
        return type_ if kind in PRIMITIVE else self.written(kind, namespace)

    def _by_name(self, name: str, namespace: str) -> Any:
        if name in PRIMITIVE:
            return name
        for full in (_full(name, namespace), name):
            if full in self._defined:
                return full
            if full in self._elsewhere:
                return self._definition(self._elsewhere[full], "")
        return _full(name, namespace)

    def _definition(self, type_: dict[str, Any], namespace: str) -> Any:
        full = _full_name_of(type_, namespace)
        if full in self._defined:
            return full
        self._defined.add(full)
        inner = full.rpartition(".")[0]
        written = {**type_, "name": full.rpartition(".")[2], "namespace": inner}
        if "fields" in type_:
            written["fields"] = [{**field, "type": self.written(field["type"], inner)} for field in type_["fields"]]
        return written


def _full_name_of(type_: dict[str, Any], namespace: str) -> str:
    return _full(type_["name"], type_.get("namespace", namespace))


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
