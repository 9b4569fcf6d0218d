"""A JSON Schema with all that it refers to: nothing is ever fetched for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag, urljoin

from kdi_assets.formats.registry.schema import Referenced, Schema

if TYPE_CHECKING:
    from jsonschema_rs import Registry, Validator

NOWHERE = "file:///"
"""Where a schema lies that does not say: names without an address are beside it."""
IDS = ("$id", "id")  # the latter until draft 4
_NOT_THERE = {"$comment": "what a schema refers to, and nobody has"}


@dataclass
class SchemaRefused(Exception):
    """Something is no JSON Schema, or refers to what is not there."""

    message: str


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """A schema, as text.

    Attributes:
        called: What mistakes call it: its file, or version and subject.
        references: What it refers to, by the names that it has for them.
    """

    called: str
    text: str
    references: tuple[Referenced, ...] = ()


def registered(schema: Schema, called: str) -> JsonSchema:
    """What a registry keeps."""
    return JsonSchema(called, schema.text, schema.references)


@lru_cache(maxsize=256)
def validator(schema: JsonSchema) -> Validator:
    """What tells whether a document is as the schema says; that of the draft which the schema names.

    Raises:
        SchemaRefused: It is no JSON Schema.
    """
    import jsonschema_rs

    texts = Texts(schema)
    try:
        registry = jsonschema_rs.Registry([*texts.by_address.items()]) if schema.references else None
        return jsonschema_rs.validator_for(texts.root, registry=registry, base_uri=texts.base, offline=True)
    except ValueError as refused:
        raise SchemaRefused(f"no JSON Schema: {str(refused).splitlines()[0]}") from refused


@lru_cache(maxsize=256)
def property_names(schema: JsonSchema) -> frozenset[str]:
    """The names of all properties that a schema speaks of, wherever it does."""
    texts = Texts(schema)
    nodes = [node for text in (texts.root, *texts.by_address.values()) for node in _nodes(text)]
    named = [node.get(key) for node in nodes for key in ("properties", "required")]
    return frozenset(str(name) for names in named if isinstance(names, dict | list) for name in names)


@dataclass(frozen=True, slots=True)
class Place:
    """A schema within a text.

    Attributes:
        base: The address of the text.
        at: How mistakes name the place.
        met: The references that led here; whoever meets one of them again is recursive.
    """

    node: Any
    base: str
    at: str = "#"
    met: frozenset[str] = frozenset()

    def inside(self, *steps: str | int) -> Place:
        """A part of it."""
        node = self.node
        for step in steps:
            node = node[step]
        return Place(node, self.base, "/".join([self.at, *map(str, steps)]), self.met)


class Texts:
    """A schema and what it refers to, parsed, by their addresses."""

    def __init__(self, schema: JsonSchema) -> None:
        """Parse them.

        Raises:
            SchemaRefused: One is no JSON.
        """
        self.root = _parsed(schema.text, schema.called)
        self.base = _joined(NOWHERE, _id(self.root))
        others = [(r.name, _parsed(r.text, r.name)) for r in schema.references]
        # A name is relative to whoever uses it, and who that is, a registry does not say.
        bases = {NOWHERE, self.base, *(_joined(self.base, _id(other)) for _, other in others)}
        bases |= {_joined(base, name) for base in bases for name, _ in others}
        self.by_address = {urldefrag(_joined(base, name)).url: other for base in bases for name, other in others}

    def refuse_malformed(self) -> None:
        """Refuse what is JSON and no JSON Schema.

        Raises:
            SchemaRefused: One of the texts is none, or of a draft that nobody knows.
        """
        import jsonschema_rs

        nothing_else = jsonschema_rs.Registry([])
        for text in [self.root, *self.by_address.values()]:
            try:
                jsonschema_rs.meta.validate(text, registry=nothing_else)
            except jsonschema_rs.ValidationError as refused:
                at = "/".join(["#", *map(str, refused.instance_path)])
                raise SchemaRefused(f"{at} is no JSON Schema: {refused.message}") from refused
            except jsonschema_rs.ReferencingError as unknown:
                raise SchemaRefused(f"$schema is no draft that is known: {text['$schema']}") from unknown

    def top(self) -> Place:
        """The schema itself."""
        return Place(self.root, self.base, met=frozenset([self.base]))

    def referred(self, place: Place, reference: str) -> Place:
        """What a place refers to.

        Raises:
            SchemaRefused: It is not there, or that is where the place lies in.
        """
        from jsonschema_rs import ReferencingError

        address = _joined(place.base, reference).rstrip("#")
        if address in place.met:
            raise SchemaRefused(f"{place.at} is part of itself, and no table is as deep as that ({reference})")
        try:
            found = self._known.resolver(place.base).lookup(reference)
        except ReferencingError as refused:
            raise SchemaRefused(f"{place.at} refers to {reference}, which is not there") from refused
        if found.contents == _NOT_THERE:
            raise SchemaRefused(f"{place.at} refers to {reference}, which is not among the schema's references")
        at = reference if urldefrag(reference).fragment else f"{reference.rstrip('#')}#"
        return Place(found.contents, found.resolver.base_uri, at, place.met | {address})

    @cached_property
    def _known(self) -> Registry:
        import jsonschema_rs

        texts = [(self.base, self.root), *self.by_address.items()]
        try:
            return jsonschema_rs.Registry(texts, retriever=lambda address: _NOT_THERE)
        except ValueError as refused:
            raise SchemaRefused(f"no JSON Schema: {refused}") from refused


def _parsed(text: str, called: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as refused:
        raise SchemaRefused(f"{called} is no JSON: {refused}") from refused
    except RecursionError as refused:
        raise SchemaRefused(f"{called} is nested too deep to be read") from refused


def _joined(base: str, name: str) -> str:
    """The address of a name that stands in a text at ``base``.

    Raises:
        SchemaRefused: It can be none.
    """
    try:
        return urljoin(base, name)
    except ValueError as refused:
        raise SchemaRefused(f"{name!r} is no address: {refused}") from refused


def _id(text: Any) -> str:
    named = [text[key] for key in IDS if isinstance(text.get(key), str)] if isinstance(text, dict) else []
    return urldefrag(_joined("", named[0])).url if named else ""


def _nodes(text: Any) -> Iterator[dict[str, Any]]:
    if isinstance(text, dict):
        yield text
    for part in text.values() if isinstance(text, dict) else text if isinstance(text, list) else ():
        yield from _nodes(part)
