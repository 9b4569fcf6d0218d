"""A JSON Schema and the schemas that it refers to; nothing is fetched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag, urljoin

from kdi_assets.messages.formats.json_schema.violations import ValidatorParts, built
from kdi_assets.messages.formats.registry.schema import Referenced, Schema
from kdi_assets.wording import first_line

if TYPE_CHECKING:
    from jsonschema_rs import Registry, Validator

NOWHERE = "file:///"
"""The base address of a schema without an id; relative references are resolved against it."""
IDS = ("$id", "id")  # the latter until draft 4
_MISSING = {"$comment": "a schema refers to this, and it is missing"}


@dataclass
class SchemaRefused(Exception):
    """A text is not JSON Schema, or refers to a schema that is missing."""

    message: str


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """A schema, as text.

    Attributes:
        label: Its name in error messages: the file, or version and subject.
        references: The schemas that it refers to, by the names that it uses.
    """

    label: str
    text: str
    references: tuple[Referenced, ...] = ()


def registered(schema: Schema, label: str) -> JsonSchema:
    """A schema of the registry."""
    return JsonSchema(label, schema.text, schema.references)


@lru_cache(maxsize=256)
def validator(schema: JsonSchema) -> Validator:
    """The validator of the draft that the schema names; raises ``SchemaRefused`` if it is not JSON Schema."""
    try:
        return built(*validator_parts(schema))
    except ValueError as refused:
        raise SchemaRefused(f"not JSON Schema: {first_line(refused)}") from refused


def validator_parts(schema: JsonSchema) -> ValidatorParts:
    """What a worker needs for the validator; raises ``SchemaRefused`` if a text is not JSON."""
    texts = Texts(schema)
    return ValidatorParts(texts.root, texts.base, [*texts.by_address.items()] if schema.references else [])


def is_valid(schema: JsonSchema) -> bool:
    """Whether the schema has a validator."""
    try:
        validator(schema)
    except SchemaRefused:
        return False
    return True


@lru_cache(maxsize=256)
def property_names(schema: JsonSchema) -> frozenset[str]:
    """The names of all properties in a schema, at any depth."""
    texts = Texts(schema)
    found = [node for text in (texts.root, *texts.by_address.values()) for node in nodes(text)]
    named = [node.get(key) for node in found for key in ("properties", "required")]
    return frozenset(str(name) for names in named if isinstance(names, dict | list) for name in names)


@dataclass(frozen=True, slots=True)
class Place:
    """A schema within a text.

    Attributes:
        base: The address of the text.
        at: The place in error messages.
        met: The references that led here; one that comes again is recursive.
    """

    node: Any
    base: str
    at: str = "#"
    met: frozenset[str] = frozenset()

    def inside(self, *steps: str | int) -> Place:
        """The place below, by keys and indexes."""
        node = self.node
        for step in steps:
            node = node[step]
        return Place(node, self.base, "/".join([self.at, *map(str, steps)]), self.met)


class Texts:
    """A schema and the schemas that it refers to, parsed, by address."""

    def __init__(self, schema: JsonSchema) -> None:
        """Parse them; raises ``SchemaRefused`` if one is not JSON."""
        self.root = _parsed(schema.text, schema.label)
        self.base = _joined(NOWHERE, _id(self.root))
        others = [(r.name, _parsed(r.text, r.name)) for r in schema.references]
        # A name is relative to the schema that uses it, and the registry does not say which schema that is.
        bases = {NOWHERE, self.base, *(_joined(self.base, _id(other)) for _, other in others)}
        bases |= {_joined(base, name) for base in bases for name, _ in others}
        self.by_address = {urldefrag(_joined(base, name)).url: other for base in bases for name, other in others}

    def refuse_malformed(self) -> None:
        """Raise ``SchemaRefused`` if a text is JSON but no JSON Schema, or names an unknown draft."""
        import jsonschema_rs

        nothing_else = jsonschema_rs.Registry([])
        for text in [self.root, *self.by_address.values()]:
            try:
                jsonschema_rs.meta.validate(text, registry=nothing_else)
            except jsonschema_rs.ValidationError as refused:
                at = "/".join(["#", *map(str, refused.instance_path)])
                raise SchemaRefused(f"{at} is not JSON Schema: {refused.message}") from refused
            except jsonschema_rs.ReferencingError as unknown:
                raise SchemaRefused(f"$schema does not name a known draft: {text['$schema']}") from unknown

    def top(self) -> Place:
        """The schema itself."""
        return Place(self.root, self.base, met=frozenset([self.base]))

    def referred(self, place: Place, reference: str) -> Place:
        """The place that a reference leads to; raises ``SchemaRefused`` if it is missing or contains this place."""
        from jsonschema_rs import ReferencingError

        address = _joined(place.base, reference).rstrip("#")
        if address in place.met:
            raise SchemaRefused(f"{place.at} contains itself, and a table has a fixed depth ({reference})")
        try:
            found = self._known.resolver(place.base).lookup(reference)
        except ReferencingError as refused:
            raise SchemaRefused(f"{place.at} refers to {reference}, which does not exist") from refused
        if found.contents == _MISSING:
            raise SchemaRefused(f"{place.at} refers to {reference}, which is not among the schema's references")
        at = reference if urldefrag(reference).fragment else f"{reference.rstrip('#')}#"
        return Place(found.contents, found.resolver.base_uri, at, place.met | {address})

    @cached_property
    def _known(self) -> Registry:
        import jsonschema_rs

        texts = [(self.base, self.root), *self.by_address.items()]
        try:
            return jsonschema_rs.Registry(texts, retriever=lambda address: _MISSING)
        except ValueError as refused:
            raise SchemaRefused(f"not JSON Schema: {refused}") from refused


def _parsed(text: str, label: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as refused:
        raise SchemaRefused(f"{label} is not JSON: {refused}") from refused
    except RecursionError as refused:
        raise SchemaRefused(f"{label} is nested too deep to be read") from refused


def _joined(base: str, name: str) -> str:
    """The address of a name in a text at ``base``; raises ``SchemaRefused`` if the name is not an address."""
    try:
        return urljoin(base, name)
    except ValueError as refused:
        raise SchemaRefused(f"{name!r} is not an address: {refused}") from refused


def _id(text: Any) -> str:
    named = [text[key] for key in IDS if isinstance(text.get(key), str)] if isinstance(text, dict) else []
    return urldefrag(_joined("", named[0])).url if named else ""


def nodes(text: Any) -> Iterator[dict[str, Any]]:
    """All objects in a text, at any depth."""
    if isinstance(text, dict):
        yield text
    for part in text.values() if isinstance(text, dict) else text if isinstance(text, list) else ():
        yield from nodes(part)
