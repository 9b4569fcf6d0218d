"""Texts of Avro schemas: joined into one (``from_avro`` takes one), with full names, canonical, and compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from kdi_assets.messages.formats.registry.schema import Schema

NAMED = ("record", "error", "enum", "fixed")
PRIMITIVE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
WITHIN = {"array": "items", "map": "values"}


class NoSchema(Exception):
    """A text is no Avro schema."""


def in_one_text(schema: Schema) -> str:
    """The schema's text, with each type that it refers to defined at its first use.

    A text without references stays as it is. A name that no text defines stays, and Avro's parser refuses it.

    Raises:
        ValueError: A text is not JSON.

    Source: Avro specification, "Names": a name without dots is in the namespace around it.
    """
    if not schema.references:
        return schema.text
    elsewhere: dict[str, Any] = {}
    for reference in schema.references:
        for name, definition in definitions(json.loads(reference.text)):
            elsewhere.setdefault(name, definition)
    return json.dumps(_TextWriter(elsewhere).written(json.loads(schema.text), ""), ensure_ascii=False)


def with_full_names(text: str) -> Any:
    """The schema's JSON in Python; each named type is defined once and then referred to by its full name.

    Raises:
        ValueError: The text is not JSON.
    """
    return _TextWriter({}).written(json.loads(text), "")


def canonical_form(text: bytes | str) -> str:
    """Equal for all schemas that encode a datum as the same bytes with the same meaning.

    Raises:
        NoSchema: The text is not a schema. Not every mistake is found here.

    Source: Avro specification, "Parsing Canonical Form for Schemas". Unlike there, logical types stay: they are units.
    """
    try:
        schema = json.loads(text)
        names = [name for name, _ in definitions(schema)]
        if len(set(names)) < len(names):
            raise NoSchema(f"it defines a type twice: {', '.join(names)}")
        form = json.dumps(_bare(_TextWriter({}).written(schema, "")), separators=(",", ":"), ensure_ascii=False)
        form.encode()  # JSON may have half a character, and no text of Arrow or Java can
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as wrong:
        raise NoSchema(str(wrong)) from wrong
    return form


def _bare(type_: Any) -> Any:
    """A type with full names, without attributes that change neither its bytes nor their meaning."""
    if isinstance(type_, list):
        return [_bare(branch) for branch in type_]
    if isinstance(type_, str):
        return type_
    kind = type_["type"]
    logical = {key: type_[key] for key in ("logicalType", "precision", "scale") if key in type_}
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
    """Every named type that a text defines: its full name, and its definition with the namespace."""
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
    """Writes types with full names; a type is defined at its first use only."""

    def __init__(self, elsewhere: dict[str, Any]) -> None:
        self._elsewhere = elsewhere
        self._defined: set[str] = set()

    def written(self, type_: Any, namespace: str) -> Any:
        """A type at any place of the text."""
        if isinstance(type_, str):
            return self._by_name(type_, namespace)
        if isinstance(type_, list):
            return [self.written(branch, namespace) for branch in type_]
        kind = type_["type"]
        if kind in NAMED:
            return self._definition(type_, namespace)
        if isinstance(kind, str) and kind in WITHIN:
            return {**type_, WITHIN[kind]: self.written(type_[WITHIN[kind]], namespace)}
        # Attributes of a primitive type count (a logical type); Avro's parser takes none beside a name.
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


_UNITS = (
    "date",
    *(f"{kind}-{unit}" for kind in ("time", "timestamp", "local-timestamp") for unit in ("millis", "micros", "nanos")),
)


def unknown_paths(writer: str, reader: str) -> list[str]:
    """Paths of the writer's fields that the reader's schema lacks.

    A reader's field has the writer's name, or has it among its aliases (Avro specification, "Schema Resolution").
    """
    return list(dict.fromkeys(path for path, _, read in _pairs(writer, reader) if read is None))


def other_meanings(writer: str, reader: str) -> list[str]:
    """Paths of numbers that would change: Avro resolves types, but compares neither units nor scales."""
    both = ((path, _meaning(written), _meaning(read)) for path, written, read in _pairs(writer, reader) if read)
    return list(dict.fromkeys(path for path, written, read in both if written and read and written != read))


class _Schema:
    """A type, and the definitions that its text refers to by name."""

    def __init__(self, node: Any, known: Mapping[str, Any]) -> None:
        self.known = known
        while isinstance(node, str) and node not in PRIMITIVE:
            node = known[node]
        self.node: Any = node

    @classmethod
    def read(cls, text: str) -> _Schema:
        node = with_full_names(text)
        return cls(node, dict(definitions(node)))

    def of(self, node: Any) -> _Schema:
        return _Schema(node, self.known)

    @property
    def branches(self) -> Iterator[Any]:
        """The branches of a union, or the type itself."""
        return (self.of(branch).node for branch in (self.node if isinstance(self.node, list) else [self.node]))

    def branch(self, type_: str) -> Mapping[str, Any] | None:
        """The first branch of this kind."""
        return next((b for b in self.branches if isinstance(b, dict) and b["type"] == type_), None)


_Pair = tuple[str, _Schema, _Schema | None]


def _pairs(writer: str, reader: str) -> Iterator[_Pair]:
    """Every path of the writer, with its type there and in the reader; ``None`` if the reader lacks it."""
    return _below(_Schema.read(writer), _Schema.read(reader), "", ())


def _below(writer: _Schema, reader: _Schema, path: str, around: tuple[object, ...]) -> Iterator[_Pair]:
    """The pairs at a path; ``around``: the records around it, because a record may contain itself."""
    yield path, writer, reader
    for kind, inner in (("array", "items"), ("map", "values")):
        if (written := writer.branch(kind)) and (read := reader.branch(kind)):
            yield from _below(writer.of(written[inner]), reader.of(read[inner]), f"{path}[]", around)
    written, read = writer.branch("record"), reader.branch("record")
    if not written or not read or (names := (*_name(written), *_name(read))) in around:
        return
    taken = {name: field for field in read["fields"] for name in (field["name"], *field.get("aliases", ()))}
    for field in written["fields"]:
        here, type_ = f"{path}.{field['name']}" if path else field["name"], writer.of(field["type"])
        if field["name"] not in taken:
            yield here, type_, None
        else:
            yield from _below(type_, reader.of(taken[field["name"]]["type"]), here, (*around, names))


def _name(named: Mapping[str, Any]) -> tuple[object, object]:
    return named.get("namespace"), named["name"]


def _meaning(schema: _Schema) -> tuple[str, int] | None:
    """Unit of a time or scale of a decimal; ``None`` for other types."""
    for branch in schema.branches:
        logical = branch.get("logicalType") if isinstance(branch, dict) else None
        if logical in _UNITS:
            return str(logical), 0
        if logical == "decimal":
            return "decimal", int(branch.get("scale", 0))
    return None
