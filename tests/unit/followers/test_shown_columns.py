"""The columns that Dagster shows of a refined table: measures, and not what they are computed from."""

from __future__ import annotations

from datetime import date

import dagster as dg
import pyarrow as pa
from deltalake import write_deltalake

from kdi_assets.components.column_facts import refined_facts
from tests.refined import refined_table

DAY = date(2026, 1, 1)


def test_sums_and_counts_of_averages_and_sketches_are_not_shown(lake: str) -> None:
    measures = {"n": "count", "mean": {"avg": "bytes"}, "about": {"approx_count_distinct": "id"}}
    aggregate = {"aggregate": {"by": ["date"], "measures": measures}}
    table = refined_table(**{"table": "gold/t", "from": "silver/s", "mode": aggregate})
    numbers = ("n", "mean_sum", "mean_count", "about_sketch", "mean", "about")
    rows = pa.table({"date": pa.array([DAY], pa.date32()), **{name: [1] for name in numbers}})
    write_deltalake(table.table_uri(lake), rows, partition_by=["date"])

    facts = refined_facts(table, lake, version=0, days=[DAY])

    schema = facts.of_table["dagster/column_schema"]
    assert isinstance(schema, dg.TableSchema)
    described = {column.name: column.description for column in schema.columns}
    measured = {"n": "= count(*)", "mean": "= avg(bytes)", "about": "= approx_count_distinct(id)"}
    assert described == {"date": None, **measured}
    assert facts.by_date == {DAY: {"dagster/partition_row_count": 1, "files": 1}}
