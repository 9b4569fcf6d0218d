"""Columns and row counts of a table at one version, read from its log; no JVM, no data file."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import date
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import dagster as dg

from kdi_assets.delta.column_types import type_text
from kdi_assets.delta.storage import open_delta_table
from kdi_assets.documents.model.refined_modes import Aggregate
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.messages.formats.comments import column_tags
from kdi_assets.streams.ledger.dates import as_dates

if TYPE_CHECKING:
    from deltalake import DeltaTable

DATE_COLUMN = "date"
ROW_COUNT = "dagster/partition_row_count"


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """Dagster's metadata of a table at one version, and of some of its dates."""

    of_table: Mapping[str, Any] = field(default_factory=dict)
    by_date: Mapping[date, Mapping[str, Any]] = field(default_factory=dict)


def column_facts(stream: Stream, lake: str, *, version: int, days: Collection[date]) -> ColumnFacts:
    """The facts of a stream's table, with descriptions of the columns that the document adds."""
    return table_facts(stream.table_uri(lake), version=version, days=days, descriptions=_column_descriptions(stream))


def refined_facts(table: RefinedTableSpec, lake: str, *, version: int, days: Collection[date]) -> ColumnFacts:
    """The facts of a refined table, without the columns that only its next refinement reads."""
    uri, mode = table.table_uri(lake), table.mode
    if not isinstance(mode, Aggregate):
        return table_facts(uri, version=version, days=days)
    measures = {name: f"= {m.function}({'*' if m.of == '1' else m.of})" for name, m in mode.measures.items()}
    hidden = [f"{name}{suffix}" for name, m in mode.measures.items() for suffix in m.suffixes]
    return table_facts(uri, version=version, days=days, descriptions=measures, hidden=hidden)


def table_facts(
    uri: str,
    *,
    version: int,
    days: Collection[date],
    descriptions: Mapping[str, str] = MappingProxyType({}),
    hidden: Collection[str] = (),
) -> ColumnFacts:
    """Location, columns, and files and rows of ``days``, at ``version``.

    Args:
        hidden: Columns to leave out.


    The location alone if ``deltalake`` cannot open the table (widened types, unknown features) or the storage fails:
    the rows are committed, and missing metadata must not fail the run.
    """
    from deltalake.exceptions import DeltaError

    location = {"dagster/uri": uri}
    try:
        table = open_delta_table(uri, version)
        schema = column_schema(table, descriptions=descriptions, hidden=hidden)
        by_date = date_facts(table, days) if days else {}
        return ColumnFacts({**location, "dagster/column_schema": schema}, by_date)
    except (DeltaError, OSError, KdiError):  # KdiError: there are no credentials any more
        return ColumnFacts(location)


def _column_descriptions(stream: Stream) -> dict[str, str]:
    """Descriptions of the columns that the document adds to the record."""
    exploded = {stream.explode.name: f"one element of {stream.explode.sql}"} if stream.explode else {}
    written = {**exploded, **{path: f"= {sql}" for path, sql in stream.columns.items() if "." not in path}}
    coordinates = {} if "." in stream.coordinates else {stream.coordinates: "the message's coordinates and timestamp"}
    return {**written, **coordinates, DATE_COLUMN: f"the row's date (UTC): {stream.date_expression}"}


def column_schema(
    table: DeltaTable, *, descriptions: Mapping[str, str], hidden: Collection[str] = ()
) -> dg.TableSchema:
    """The table's columns with Spark's names of types and their tags; without a description, with the comment in the
    table."""
    fields = json.loads(table.schema().to_json())["fields"]
    return dg.TableSchema(
        [
            dg.TableColumn(
                name=f["name"],
                type=type_text(f["type"]),
                description=descriptions.get(f["name"]) or f["metadata"].get("comment"),
                tags=column_tags(f),
                constraints=dg.TableColumnConstraints(nullable=f["nullable"]),
            )
            for f in fields
            if f["name"] not in hidden
        ]
    )


def date_facts(table: DeltaTable, days: Collection[date]) -> dict[date, dict[str, int]]:
    """Files and rows of dates by the log's statistics; no rows for a date with a file without statistics.

    Empty if the table is not partitioned by date: somebody replaced it, and the next run refuses it.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if DATE_COLUMN not in table.metadata().partition_columns:
        return {}
    actions: Any = table.get_add_actions(flatten=True)
    files = pa.table(actions).select([f"partition.{DATE_COLUMN}", "num_records"]).rename_columns(["day", "rows"])
    files = files.set_column(0, "day", as_dates(files["day"]))
    files = files.filter(pc.is_in(files["day"], pa.array(list(days), pa.date32())))
    # A sum with an unknown in it is unknown. Arrow's own functions: in Python, 20,000 files took a second of CPU.
    counts: list[Any] = [("rows", "sum", pc.ScalarAggregateOptions(skip_nulls=False)), ([], "count_all")]
    found = files.group_by("day").aggregate(counts).rename_columns({"rows_sum": ROW_COUNT, "count_all": "files"})
    return {row.pop("day"): {name: n for name, n in row.items() if n is not None} for row in found.to_pylist()}
