"""The refined tables of a folder's documents: SQL files are read, and what tables are made of is checked."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from kdi_assets.documents.loading.errors import DocumentMistake
from kdi_assets.documents.loading.folder import display_path
from kdi_assets.documents.loading.validation import validate_document
from kdi_assets.documents.loading.yaml_documents import YamlDocument
from kdi_assets.documents.model.refined_table import NEEDS_BY_DATE, RefinedTableSpec


def read_refined_table(document: YamlDocument) -> RefinedTableSpec | list[DocumentMistake]:
    """The refined table that a document describes, with its SQL file as SQL; or every mistake in it."""
    table = validate_document(RefinedTableSpec, document)
    if isinstance(table, RefinedTableSpec) and table.sql_file:
        table = _with_file(table, document)
    return table


def _with_file(table: RefinedTableSpec, document: YamlDocument) -> RefinedTableSpec | list[DocumentMistake]:
    path = Path(document.file).parent / table.sql_file
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "is not UTF-8"
        return [document.mistake("sql_file", f"{display_path(path)}: {why}", "a path from the folder of this document")]
    if not text.strip():
        return [document.mistake("sql_file", f"{display_path(path)} is empty", "a file with Spark SQL")]
    return replace(table, sql=text)


def cycle_mistakes(
    tables: Mapping[str, RefinedTableSpec], documents: Mapping[str, YamlDocument]
) -> Iterator[DocumentMistake]:
    """A mistake for each circle of tables that are made of each other, at the first table of it.

    Args:
        documents: By the name of the table.
    """
    left = {name: upstream_names(table) for name, table in tables.items()}
    while circle := _circle(left):
        first = circle.index(min(circle))
        around = [*circle[first:], *circle[:first]]
        message = "is made of itself: " + " from ".join([*around, around[0]])
        yield documents[around[0]].mistake("from", message, "tables that do not need this one")
        left = {name: upstream - set(circle) for name, upstream in left.items() if name not in circle}


def keep_mistakes(
    tables: Mapping[str, RefinedTableSpec], documents: Mapping[str, YamlDocument], keeping: Collection[str]
) -> Iterator[DocumentMistake]:
    """A mistake for each table that is made of a table that does not keep all dates, and needs rows of other dates.

    Args:
        documents: By the name of the table.
        keeping: The paths of the tables with `keep`.
    """
    for name, table in tables.items():
        found = sorted(upstream_names(table).intersection(keeping))
        if found and (why := table.needs_other_dates):
            field, right = ("from", "one table") if table.is_computed_by_date else ("mode", NEEDS_BY_DATE)
            message = f"{why}, and {found[0]}, of which it is made, has `keep`: it would lose rows"
            yield documents[name].mistake(field, message, f"{right}; or no `keep` there")


def upstream_first(tables: Collection[RefinedTableSpec]) -> list[RefinedTableSpec]:
    """The tables, each after those that it is made of; otherwise by name."""
    by_name = {table.name: table for table in sorted(tables, key=lambda table: table.name)}
    needs = {name: upstream_names(table) & by_name.keys() for name, table in by_name.items()}
    return [by_name[name] for name in TopologicalSorter(needs).static_order()]


def upstream_names(table: RefinedTableSpec) -> set[str]:
    """The paths of the tables that it is made of."""
    return {upstream.table for upstream in table.upstreams}


def _circle(upstream: Mapping[str, set[str]]) -> list[str]:
    """The tables of a circle, each followed by one that it is made of; empty if there is none."""
    try:
        TopologicalSorter(upstream).prepare()
    except CycleError as found:
        return list(reversed(found.args[1]))[1:]
    return []
