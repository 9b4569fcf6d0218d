"""Roots of lakes: where the tables lie that refined and served tables read, and where each may have been before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from kdi_assets.documents.loading.table_paths import BESIDE_REFINED_TABLE, BESIDE_STREAM
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream import Stream

AnyTable = TypeVar("AnyTable", Stream, RefinedTableSpec)


def own_lakes(streams: Mapping[str, Stream], refined: Mapping[str, RefinedTableSpec]) -> dict[str, str]:
    """The root of each table that has one of its own, and of the tables beside it, by path."""
    found: dict[str, str] = {}
    for tables, beside in ((streams, BESIDE_STREAM), (refined, BESIDE_REFINED_TABLE)):
        for table in tables.values():
            paths = (table.table, *(f"{table.table}_{name}" for name in beside)) if table.lake else ()
            found |= dict.fromkeys(paths, table.lake)
    return found


def with_other_lakes(tables: Mapping[str, AnyTable], lakes: Mapping[str, str]) -> dict[str, AnyTable]:
    """The tables; each knows all roots that documents name, because it may have been below one of them before.

    Args:
        lakes: ``own_lakes``.
    """
    roots = tuple(dict.fromkeys(lakes.values()))
    return {name: replace(table, other_lakes=roots) for name, table in tables.items()}


def with_upstream_lakes(
    tables: Mapping[str, RefinedTableSpec], lakes: Mapping[str, str]
) -> dict[str, RefinedTableSpec]:
    """The tables; each knows the roots of the tables that it reads."""
    return {
        name: replace(table, upstreams=tuple(replace(u, lake=lakes.get(u.table, "")) for u in table.upstreams))
        for name, table in tables.items()
    }
