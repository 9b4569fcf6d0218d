"""The documents as YAML text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from kdi_assets.documents.loading.loader import TOPIC_TABLE
from kdi_assets.tools.predecessor.connections import ImportedConnection
from kdi_assets.tools.predecessor.message_fields import ddl_lines
from kdi_assets.tools.predecessor.transforms import TranslatedColumns

HEAD = "# Made by `kdi import-kdi` from a command line of kafka-delta-ingest."


def connection_document(connection: ImportedConnection) -> str:
    """The document of a cluster or registry; secrets are variables in it."""
    attributes = connection.attributes
    lines = [f"{name}: {_value(value)}" for name, value in attributes.items() if name != "properties"]
    if properties := attributes.get("properties"):
        lines += ["properties:", *(f"  {_value(name)}: {_value(value)}" for name, value in properties.items())]
    return _document(connection.type, lines)


def stream_document(attributes: Mapping[str, Any], columns: TranslatedColumns, *, lake: str, of_schema: bool) -> str:
    """The document of a stream.

    Args:
        attributes: Fields that are not of the transforms; ``topic`` and ``table`` are the first.
        of_schema: Whether the record is that of a schema and is not declared.
    """
    lines = [f"{name}: {_value(value)}" for name, value in attributes.items()]
    lines[1] += f"  # below KDI_LAKE, {_one_line(lake)}"
    if not of_schema:
        lines += ["schema: |", *(f"  {line}" for line in ddl_lines(columns.fields.record))]
    if columns.columns:
        lines.append("columns:")
    for target, sql in columns.columns.items():
        lines.append(f"  {_value(target)}: {_value(sql)}{_comment(columns.sources.get(target))}")
    lines.append(f"date: {_value(columns.date)}{_comment(columns.sources.get('date'))}")
    lines.append(f"coordinates: {_value(columns.coordinates)}")
    if left_out := columns.fields.left_out:
        lines += [
            "# Expressions read these fields, and the table does not have them.",
            f"mask: {_value(dict.fromkeys(left_out, 'drop'))}",
            "dead_letter_payload: keep",
        ]
    return _document(TOPIC_TABLE, lines)


def _document(type_: str, lines: list[str]) -> str:
    return "\n".join([HEAD, f"type: {type_}", "attributes:", *(f"  {line}" for line in lines), ""])


def _value(value: object) -> str:
    """A value on one line, quoted if necessary."""
    if isinstance(value, str):
        return yaml.safe_dump({"a": value}, allow_unicode=True, width=2**20).removeprefix("a: ").rstrip("\n")
    return _in_braces(value)


def _in_braces(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_in_braces(name)}: {_in_braces(inner)}" for name, inner in value.items()) + "}"
    flow = yaml.safe_dump([value], default_flow_style=True, allow_unicode=True, width=2**20).strip()
    return flow.removeprefix("[").removesuffix("]")


def _comment(source: str | None) -> str:
    return f"  # {_one_line(source)}" if source else ""


def _one_line(text: str) -> str:
    return " ".join("".join(_printable(text)).split())


def _printable(text: str) -> Iterator[str]:
    yield from (c if c.isprintable() else " " for c in text)
