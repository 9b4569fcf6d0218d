"""Where a writer's schema and a reader's differ although the one becomes the other: known from their texts alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kdi_assets.formats.avro.schema_text import PRIMITIVE, definitions, with_full_names

_UNITS = (
    "date",
    *(f"{kind}-{unit}" for kind in ("time", "timestamp", "local-timestamp") for unit in ("millis", "micros", "nanos")),
)


def unknown_paths(writer: str, reader: str) -> list[str]:
    """Paths of the fields that are read past, by the texts of two schemas of which one becomes the other.

    A reader's field has the writer's name, or names it among its aliases (Avro specification, "Schema Resolution").
    """
    return list(dict.fromkeys(path for path, _, read in _pairs(writer, reader) if read is None))


def other_meanings(writer: str, reader: str) -> list[str]:
    """Paths of numbers that would come out as other ones: Avro resolves types, and looks at no unit and no scale."""
    both = ((path, _meaning(written), _meaning(read)) for path, written, read in _pairs(writer, reader) if read)
    return list(dict.fromkeys(path for path, written, read in both if written and read and written != read))


class _Schema:
    """A type, with the names that stand for others in its text."""

    def __init__(self, said: Any, known: Mapping[str, Any]) -> None:
        self.known = known
        while isinstance(said, str) and said not in PRIMITIVE:
            said = known[said]
        self.said: Any = said

    @classmethod
    def read(cls, text: str) -> _Schema:
        said = with_full_names(text)
        return cls(said, dict(definitions(said)))

    def of(self, said: Any) -> _Schema:
        return _Schema(said, self.known)

    @property
    def branches(self) -> Iterator[Any]:
        """Those of a union, or the type itself."""
        return (self.of(branch).said for branch in (self.said if isinstance(self.said, list) else [self.said]))

    def branch(self, type_: str) -> Mapping[str, Any] | None:
        """The type itself, or the first of a union, that is of a kind."""
        return next((b for b in self.branches if isinstance(b, dict) and b["type"] == type_), None)


_Pair = tuple[str, _Schema, _Schema | None]


def _pairs(writer: str, reader: str) -> Iterator[_Pair]:
    """Every path that is written, with what it is there and what it is read as; ``None`` if it is read past."""
    return _below(_Schema.read(writer), _Schema.read(reader), "", ())


def _below(writer: _Schema, reader: _Schema, path: str, around: tuple[object, ...]) -> Iterator[_Pair]:
    """The pairs at a path; ``around``: the records that it lies in, which may hold themselves."""
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
    """Unit of a time, or scale of a decimal; ``None`` of what is neither."""
    for branch in schema.branches:
        logical = branch.get("logicalType") if isinstance(branch, dict) else None
        if logical in _UNITS:
            return str(logical), 0
        if logical == "decimal":
            return "decimal", int(branch.get("scale", 0))
    return None
