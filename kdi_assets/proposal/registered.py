"""What a schema registry says of the schemas that messages name."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

from kdi_assets.errors import KdiError
from kdi_assets.formats.registry.schemas import Schemas
from kdi_assets.stream import SchemaRegistry


def described(registry: SchemaRegistry, ids: Collection[int], *, home: Path) -> Mapping[int, str] | str:
    """Each schema in a few words, or why nothing is known of any.

    Args:
        home: Where answers of registries are kept.
    """
    try:
        found = Schemas(registry, home=home).by_ids(ids)
    except KdiError as refused:
        return f"registry {registry.name} did not say what these schemas are: {refused.parts()[0]}"
    unknown = f"unknown to registry {registry.name}"
    return {n: f"{schema.type}{_name(schema.text)}" if schema else unknown for n, schema in found.items()}


def _name(text: str) -> str:
    """The name that a schema of Avro or JSON gives itself."""
    try:
        schema = json.loads(text)
    except ValueError:
        return ""
    if not isinstance(schema, dict):
        return ""
    name = schema.get("name") or schema.get("title")
    if not isinstance(name, str) or not name.isprintable():
        return ""
    space = schema.get("namespace")
    return f" {space}.{name}" if isinstance(space, str) and space.isprintable() and "." not in name else f" {name}"
