"""Fields that a writer's schema has and the reader's has not: known from the schemas, whatever the messages are."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_PRIMITIVE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def unknown_paths(writer: str, reader: str) -> list[str]:
    """Paths of the fields that are read past, by the texts of two schemas of which one becomes the other.

    A reader's field has the writer's name, or names it among its aliases (Avro specification, "Schema Resolution").
    """
    return list(dict.fromkeys(_Comparing().paths(_Schema(json.loads(writer)), _Schema(json.loads(reader)), "")))


class _Schema:
    """A type, with the names that stand for others in its text."""

    def __init__(self, said: Any, known: dict[str, Any] | None = None) -> None:
        self.known = known if known is not None else dict(_named(said, ""))
        while isinstance(said, str) and said not in _PRIMITIVE:
            said = self.known[said]
        self.said: Any = said

    def of(self, said: Any) -> _Schema:
        return _Schema(said, self.known)

    def branch(self, type_: str) -> Mapping[str, Any] | None:
        """The type itself, or the first of a union, that is of a kind."""
        branches = self.said if isinstance(self.said, list) else [self.said]
        resolved = (self.of(branch).said for branch in branches)
        return next((b for b in resolved if isinstance(b, dict) and b["type"] == type_), None)


class _Comparing:
    def __init__(self) -> None:
        self._seen: list[tuple[int, int]] = []  # records that hold themselves

    def paths(self, writer: _Schema, reader: _Schema, path: str) -> Iterator[str]:
        for kind, inner in (("array", "items"), ("map", "values")):
            if (written := writer.branch(kind)) and (read := reader.branch(kind)):
                yield from self.paths(writer.of(written[inner]), reader.of(read[inner]), f"{path}[]")
        written, read = writer.branch("record"), reader.branch("record")
        if not written or not read or (id(written), id(read)) in self._seen:
            return
        self._seen.append((id(written), id(read)))
        taken = {name: field for field in read["fields"] for name in (field["name"], *field.get("aliases", ()))}
        for field in written["fields"]:
            here = f"{path}.{field['name']}" if path else field["name"]
            if field["name"] not in taken:
                yield here
            else:
                yield from self.paths(writer.of(field["type"]), reader.of(taken[field["name"]]["type"]), here)
        self._seen.pop()


def _named(said: Any, namespace: str) -> Iterator[tuple[str, Any]]:
    """Types by the names that other places of the text may call them."""
    if isinstance(said, list):
        for branch in said:
            yield from _named(branch, namespace)
    elif isinstance(said, dict):
        if "name" in said and said["type"] in ("record", "enum", "fixed", "error"):
            namespace = said.get("namespace", said["name"].rpartition(".")[0] or namespace)
            short = said["name"].rpartition(".")[2]
            yield from ((name, said) for name in {short, said["name"], f"{namespace}.{short}"})
        for inner in (said.get("items"), said.get("values"), *(f["type"] for f in said.get("fields", ()))):
            yield from _named(inner, namespace)
        if isinstance(said["type"], dict | list):
            yield from _named(said["type"], namespace)
