"""JSON with every oddity of text, and its unknown fields as Python's own parser finds them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

DDL = (
    "id bigint, text string, who struct<name: string, home: struct<city: string>>, items array<struct<sku: string>>, "
    "by map<string, struct<n: int>>, tags map<string, string>, empty struct<n: int>"
)
FLAT_DDL = "id bigint, text string, `Ünit` string, at timestamp, ok boolean"
Fields = dict[str, Any]
"""Name to the field's value: fields of an object, ``[fields]`` of each element, ``{"*": …}`` of a map's values."""
FIELDS: Fields = {
    "id": 0,
    "text": None,
    "who": {"name": None, "home": {"city": None}},
    "items": [{"sku": None}],
    "by": {"*": {"n": 0}},
    "tags": {"*": None},
    "empty": {"n": 0},
}
FLAT_FIELDS: Fields = {"id": 0, "text": None, "Ünit": None, "at": "2026-01-01T00:00:00Z", "ok": True}
_NAMES = (
    "plan",
    "ID",
    "a.b",
    "",
    'q"q',
    "new\nline",
    "null",
    "x:null",
    'c":',
    "b\\",
    "Ünit",
    "😀",
    "*",
    "items[]",
    "who",
)
_TEXTS = ("", "x", '":', '":null', '": null', '\\":null', "null", '{"a":1}', "a : b", "é", "\t", "tail\\")
_BLANKS = ("", "", "", " ", "  ", "\n\t")


def unknown(text: str, fields: Fields) -> list[str]:
    """The paths of fields of a document that the record does not have, sorted, each once."""
    return sorted(set(_unknown(json.loads(text), fields, "")), key=lambda path: path.encode())


def documents(seed: int, count: int, fields: Fields) -> list[str]:
    """Different texts that decode to a record of these fields."""
    random = Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found[_Writer(random, fields).document()] = None
    return list(found)


def _unknown(value: Any, fields: Any, path: str) -> Iterator[str]:
    if isinstance(fields, list) and isinstance(value, list):
        for item in value:
            yield from _unknown(item, fields[0], f"{path}[]")
    elif isinstance(fields, dict) and isinstance(value, dict):
        for name, inner in value.items():
            below = f"{path}.{name}" if path else name
            if "*" in fields:
                yield from _unknown(inner, fields["*"], f"{path}[]")
            elif name in fields:
                yield from _unknown(inner, fields[name], below)
            elif inner is not None:
                yield below


class _Writer:
    """One document: each has its own style, so that plain ones are among them."""

    def __init__(self, random: Random, fields: Fields) -> None:
        self._random, self._fields = random, fields
        self._blank_before = random.random() < 0.15
        self._blanks = random.random() < 0.4
        self._nulls, self._doubles, self._odd, self._below = (random.choice((0.0, 0.0, 0.3)) for _ in range(4))

    def document(self) -> str:
        return self._object(self._fields, unknown=self._random.choice((0, 1, 2, 4)))

    def _object(self, fields: Fields, *, unknown: int) -> str:
        names = [name for name in fields if self._random.random() < 0.7]
        names += [self._name(fields) for _ in range(unknown)]
        self._random.shuffle(names)
        names += [name for name in names if self._random.random() < self._doubles]
        return "{" + ",".join(self._named(name, self._value(name, fields)) for name in names) + "}"

    def _name(self, fields: Fields) -> str:
        odd = self._random.random() < self._odd
        name = self._random.choice(_NAMES) if odd else f"f{self._random.randrange(9)}"
        return f"{name}?" if name in fields else name

    def _named(self, name: str, value: str) -> str:
        before = self._blank() if self._blank_before else ""
        return f"{self._blank()}{self._string(name)}{before}:{self._blank()}{value}{self._blank()}"

    def _blank(self) -> str:
        return self._random.choice(_BLANKS) if self._blanks else ""

    def _value(self, name: str, fields: Fields) -> str:
        if self._random.random() < self._nulls:
            return "null"
        return self._declared(fields[name]) if name in fields else self._anything(2)

    def _declared(self, fields: Any) -> str:
        match fields:
            case {"*": inner}:
                keys = [self._random.choice(("a", "b", *_NAMES)) for _ in range(self._random.randrange(3))]
                return "{" + ",".join(self._named(key, self._declared(inner)) for key in dict.fromkeys(keys)) + "}"
            case dict():
                return self._object(fields, unknown=self._random.random() < self._below)
            case [inner]:
                return "[" + ",".join(self._declared(inner) for _ in range(self._random.randrange(3))) + "]"
            case None:
                return self._string(self._random.choice(_TEXTS))
        return json.dumps(fields)

    def _anything(self, depth: int) -> str:
        scalars = ("1", "-2.5e3", "true", self._string(self._random.choice(_TEXTS)))
        if depth == 0 or self._random.random() < 0.7:
            return self._random.choice(scalars)
        if self._random.random() < 0.5:
            return f"[{self._anything(depth - 1)},null]"
        return "{" + self._named(self._name({}), self._random.choice(("null", self._anything(depth - 1)))) + "}"

    def _string(self, text: str) -> str:
        told = json.dumps(text, ensure_ascii=self._random.random() < 0.5)
        if self._odd and text.isalnum() and text.isascii() and self._random.random() < 0.3:
            return f'"\\u{ord(text[0]):04x}{told[2:]}'
        return told
