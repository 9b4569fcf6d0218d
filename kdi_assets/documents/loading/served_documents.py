"""The served tables of a folder's documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from kdi_assets.documents.loading.errors import AmbiguousStream, UnknownStream
from kdi_assets.documents.model.served_table import DuckDb, Postgres, ServedTableSpec


def written_name(attributes: Mapping[str, Any]) -> str:
    """The name of the served table that a document without mistakes describes."""
    into = attributes["into"]
    if "postgres" in into:
        return "/".join(Postgres(table=into["postgres"]["table"], schema=into["postgres"].get("schema", "public")).path)
    return "/".join(DuckDb(**into["duckdb"]).path)


def select_served(tables: Mapping[str, ServedTableSpec], names: Iterable[str]) -> list[ServedTableSpec]:
    """The served tables with these names, each once.

    Args:
        tables: By name, as from ``load_folder``.
        names: A target's path, its last part if only one served table has it, or a Delta table's path: then all that
            are served from it.

    Raises:
        UnknownStream: No served table has the name.
        AmbiguousStream: Several have it as the last part of their paths.
    """
    selected: dict[str, ServedTableSpec] = {}
    for name in names:
        exact = [table for table in tables.values() if name in (table.name, table.table)]
        found = exact or [table for table in tables.values() if table.name.endswith(f"/{name}")]
        if not found:
            raise UnknownStream(name=name, known=tuple(sorted(tables)), what="served table")
        if not exact and len(found) > 1:
            raise AmbiguousStream(name=name, candidates=tuple(sorted(t.name for t in found)))
        selected |= {table.name: table for table in found}
    return list(selected.values())
