"""The served tables of a folder's documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kdi_assets.config.errors import DocumentMistake, UnknownServedTable
from kdi_assets.config.validation import validate_document
from kdi_assets.config.yaml_documents import YamlDocument
from kdi_assets.stream.served_table import DuckDb, Postgres, ServedTableSpec


def read_served_tables(
    documents: Sequence[YamlDocument], mistakes: list[DocumentMistake]
) -> dict[str, ServedTableSpec]:
    """The served tables that documents describe, by name; what is wrong is added to the mistakes."""
    found: dict[str, ServedTableSpec] = {}
    places: dict[str, str] = {}
    for document in documents:
        served = validate_document(ServedTableSpec, document)
        if isinstance(served, list):
            mistakes += served
        elif served.name in found:
            message = f"{served.name} is served by the document at {places[served.name]} already"
            mistakes.append(document.mistake("into", message, "another table or schema"))
        else:
            found[served.name], places[served.name] = served, document.place("into")
    return found


def written_name(attributes: Mapping[str, Any]) -> str:
    """The name of the served table that a document without mistakes describes."""
    into = attributes["into"]
    if "postgres" in into:
        return "/".join(Postgres(table=into["postgres"]["table"], schema=into["postgres"].get("schema", "public")).path)
    return "/".join(DuckDb(**into["duckdb"]).path)


def select_served(tables: Mapping[str, ServedTableSpec], names: Iterable[str]) -> list[ServedTableSpec]:
    """The served tables with these names, each once.

    Args:
        tables: By name, as from ``load_served``.
        names: A target's path, its last part if only one served table has it, or a Delta table's path: then all that
            are served from it.

    Raises:
        UnknownServedTable: None has the name, or several have it as the last part of their paths.
    """
    selected: dict[str, ServedTableSpec] = {}
    for name in names:
        exact = [table for table in tables.values() if name in (table.name, table.table)]
        found = exact or [table for table in tables.values() if table.name.endswith(f"/{name}")]
        if not found or (not exact and len(found) > 1):
            raise UnknownServedTable(name=name, known=tuple(sorted(t.name for t in found) or sorted(tables)))
        selected |= {table.name: table for table in found}
    return list(selected.values())
