"""Refined tables whose documents change, or would not give what a recomputation gives: computed again, or refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from kdi_assets.documents.model.message_rules import ColumnContract
from kdi_assets.documents.model.refined_modes import Deduplicate
from kdi_assets.documents.model.refined_table import RefinedTableSpec, Upstream
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.audit.audit import audit_refined
from kdi_assets.follow.refine.row_errors import (
    ColumnsFrozen,
    DateNotKept,
    QueryMistake,
    RowsNotComputable,
    RowsNotOneByOne,
    RowsUnmet,
)
from tests.refined import COPY, D1, D2, FIRST, MORE, STATE, SUMS, Lakeside, refined_table


def test_another_definition_computes_all_rows_again(lakeside: Lakeside) -> None:
    lakeside.append(FIRST)
    lakeside.refine(COPY)
    other = replace(COPY, sql="SELECT id, date FROM events WHERE id > 1")

    report = lakeside.refine(other)

    assert (report.kind, report.why) == ("rebuild", "the document computes other rows than before")
    lakeside.assert_as_computed_at_once(other)


def test_a_refined_table_with_frozen_rows_follows_its_upstream_table_under_another_name(lakeside: Lakeside) -> None:
    """Procedure: refine, and remove the first date upstream; rename the upstream table; then rename it once more."""
    lakeside.append([*FIRST, *MORE])
    lakeside.refine(COPY)
    lakeside.expire(D2)
    frozen = lakeside.rows(COPY.table)
    kinds: list[str] = []

    for was, name in (("events", "renamed"), ("renamed", "again")):
        Path(lakeside.uri(f"bronze/{was}")).rename(lakeside.uri(f"bronze/{name}"))
        renamed = replace(COPY, upstreams=(Upstream(f"bronze/{name}", "events"),))
        lakeside.append([(9, "c", 1, "i", D2)], f"bronze/{name}")
        kinds.append(lakeside.refine(renamed).kind)
    audit = audit_refined(renamed, lake=lakeside.lake, session=lambda: lakeside.spark, everything=True)

    assert "rebuild" not in kinds
    assert sum((lakeside.rows(COPY.table) - frozen).values()) == 2
    assert audit.equal and audit.first == D2


@pytest.mark.parametrize(
    ("contract", "sql", "said"),
    [
        ({"new_columns": "freeze"}, "SELECT *, 1 AS one FROM events", "one int is new. `contract.new_columns`"),
        (
            {"types": "freeze"},
            "SELECT id, CAST(bytes AS int) AS bytes, op, date FROM events",
            "host string would be gone",
        ),
    ],
)
def test_columns_that_a_contract_freezes_are_refused_and_the_rows_wait(
    lakeside: Lakeside, contract: dict[str, Any], sql: str, said: str
) -> None:
    """Procedure: another document changes the columns, and so does an upstream column; under freeze, then evolve.
    Pass: refused and nothing committed; the upstream column alone, of which the sql says nothing, is refused too.
    """
    lakeside.append(FIRST)
    lakeside.refine(COPY)
    frozen = replace(COPY, sql=sql, contract=ColumnContract(**contract))
    before = lakeside.rows(COPY.table)

    with pytest.raises(ColumnsFrozen, match=re.escape(said)):
        lakeside.refine(frozen)
    assert lakeside.rows(COPY.table) == before
    lakeside.gain_column()
    if "new_columns" in contract:
        with pytest.raises(ColumnsFrozen, match="more string is new"):
            lakeside.refine(replace(frozen, sql=COPY.sql))
    report = lakeside.refine(replace(frozen, contract=ColumnContract()))

    assert report.kind == "rebuild"
    lakeside.assert_as_computed_at_once(replace(frozen, contract=ColumnContract()))


REFUSED: dict[str, tuple[dict[str, Any], type[KdiError], str]] = {
    "group": ({"sql": "SELECT date, count(*) AS n FROM events GROUP BY date"}, RowsNotOneByOne, "Aggregate"),
    "join": ({"sql": "SELECT a.* FROM events a JOIN events b ON a.id = b.id"}, RowsNotOneByOne, "Join"),
    "join in a CTE": (
        {"sql": "WITH both AS (SELECT a.* FROM events a JOIN events b ON a.id = b.id) SELECT * FROM both"},
        RowsNotOneByOne,
        "Join",
    ),
    "limit": ({"sql": "SELECT * FROM events LIMIT 1"}, RowsNotOneByOne, "Limit"),
    "subquery": ({"sql": "SELECT * FROM events WHERE id = (SELECT max(id) FROM events)"}, RowsNotOneByOne, "subquery"),
    "random": ({"sql": "SELECT *, rand() AS r FROM events"}, RowsNotOneByOne, "deterministic"),
    "clock": ({"sql": "SELECT *, current_timestamp() AS at FROM events"}, QueryMistake, "sql .* asks the clock"),
    "clock in a condition": (
        {"sql": "SELECT * FROM events WHERE date < current_date()", "mode": "replace_dates"},
        QueryMistake,
        "sql .* asks the clock",
    ),
    "clock in the mode": (
        {"mode": {"deduplicate": {"keys": ["id"], "order_by": "unix_date(current_date()) - id"}}},
        QueryMistake,
        "mode .* asks the clock",
    ),
    "date": ({"sql": "SELECT id, date_add(date, 1) AS date FROM events"}, DateNotKept, "date"),
    "date in a CTE": (
        {"sql": "WITH moved AS (SELECT id, date_add(date, 1) AS date FROM events) SELECT * FROM moved"},
        DateNotKept,
        "date",
    ),
    "no date": ({"sql": "SELECT id FROM events"}, QueryMistake, "no column date"),
    "unknown column": ({"sql": "SELECT wrong, date FROM events"}, QueryMistake, "wrong"),
    "function": ({"python": "tests.refined:no_such"}, QueryMistake, "no_such"),
    "function of something else": ({"python": "builtins:repr"}, QueryMistake, "source is unknown"),
    "function without rows": ({"python": "tests.refined:without_rows"}, QueryMistake, "NoneType, and not a DataFrame"),
    "function fails": ({"python": "tests.refined:failing"}, QueryMistake, "KeyError: 'amount'"),
    "expectation": ({"expectations": {"small": {"sql": "bytes < 15", "then": "fail"}}}, RowsUnmet, "2 new rows"),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_what_would_not_stay_equal_to_a_recomputation_is_refused(lakeside: Lakeside, mistake: str) -> None:
    fields, error, said = REFUSED[mistake]
    lakeside.append(FIRST)
    table = refined_table(**{"table": "silver/wrong", "from": "bronze/events", **fields})

    with pytest.raises(error, match=said):
        lakeside.refine(table)

    assert not Path(lakeside.uri("silver/wrong")).exists() or not lakeside.rows("silver/wrong")


DATED = refined_table(**{"table": "silver/dated", "from": "bronze/events", "mode": "replace_dates"})

PARTITIONED = (COPY, SUMS, DATED, replace(COPY, mode=Deduplicate(keys=("id",), order_by="bytes")))


@pytest.mark.parametrize("table", PARTITIONED, ids=lambda t: type(t.mode).__name__)
def test_a_document_that_changes_its_partitions_doubles_no_row(lakeside: Lakeside, table: RefinedTableSpec) -> None:
    """Purpose: a date's rows are replaced by its files; without partitions by date it has none, and none is removed.
    Procedure: refine without partitions; with them; a late row, a DELETE; refine without them and without dates.
    Pass: each time the table is as computed at once, and has the document's partitions.
    """
    lakeside.append(FIRST)
    lakeside.refine(replace(table, partition_by=None))

    late = [(5, "c", 40, "i", D1)]
    steps: tuple[Callable[[], object], ...] = (
        lambda: None,
        lambda: lakeside.append(late),
        lambda: lakeside.sql("DELETE FROM {t} WHERE id = 1"),
    )
    for happens in steps:
        happens()
        lakeside.refine(table)
        lakeside.assert_as_computed_at_once(table)
    assert lakeside.partitions(table.table) == ["date"]
    if table is COPY:
        undated = replace(table, partition_by=None, sql="SELECT id, host FROM events")
        for rows in (FIRST[:1], MORE):
            lakeside.refine(undated)
            lakeside.assert_as_computed_at_once(undated)
            lakeside.append(rows)
        assert lakeside.partitions(table.table) == []


@pytest.mark.parametrize("partitions", [(), ("date", "host")])
def test_an_empty_table_that_someone_made_gets_the_partitions_of_the_document(
    lakeside: Lakeside, partitions: tuple[str, ...]
) -> None:
    """Pass: the rows are those of a recomputation; partitions that are finer than the document's stay."""
    lakeside.append(FIRST)
    events = lakeside.spark.read.format("delta").load(lakeside.uri("bronze/events")).limit(0)
    events.write.format("delta").partitionBy(*partitions).save(lakeside.uri(DATED.table))

    for rows in ([(5, "c", 40, "i", D1)], MORE):
        lakeside.refine(DATED)
        lakeside.append(rows)
    lakeside.refine(DATED)

    lakeside.assert_as_computed_at_once(DATED)
    assert lakeside.partitions(DATED.table) == (list(partitions) or ["date"])


@pytest.mark.parametrize(("partition_by", "feed"), [("date", "true"), ("date", "false"), (None, "false")])
def test_a_change_of_columns_reads_as_it_was_written_under_column_mapping(
    lakeside: Lakeside, partition_by: Literal["date"] | None, feed: str
) -> None:
    """Purpose: names in files and in the log must be the same ones, and Delta draws them anew for each new column.
    Procedure: with column mapping, refine, a column more in sql, rows, a column less and one of another type.
    Pass: by Spark, each time the rows of a recomputation, and the report counts them by date; with a change feed the
    last one is a terminal error.
    """
    properties = {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": feed}
    mapped = replace(COPY, partition_by=partition_by, properties=properties)
    wider, other = "id, host, bytes, op, date, struct(upper(host) AS host) AS more", "id, string(bytes) AS bytes, date"
    read = lakeside.spark.read.format("delta").load

    for rows, columns in ((FIRST, "id, host, bytes, op, date"), (MORE, wider), (MORE, wider), (MORE, other)):
        lakeside.append(rows)
        table = replace(mapped, sql=f"SELECT {columns} FROM events")
        if feed == "true" and columns == other:
            with pytest.raises(RowsNotComputable, match="DROP COLUMN"):
                lakeside.refine(table)
            break
        report = lakeside.refine(table)

        expected = read(lakeside.uri("bronze/events")).selectExpr(*columns.split(", "))
        found = read(lakeside.uri(COPY.table))
        assert found.columns == expected.columns
        assert Counter(found.collect()) == Counter(expected.collect())
        assert sum(report.rows_by_date.values()) == (report.rows_added if partition_by else 0)
        assert sum(report.removed_by_date.values()) == (report.rows_removed if partition_by else 0)


def test_what_reads_a_table_whose_partitions_changed_goes_on(lakeside: Lakeside) -> None:
    """Purpose: the change feed cannot be read over a change of partitions."""
    downstream = replace(STATE, upstreams=(Upstream(COPY.table, "events"),))
    lakeside.append(FIRST)
    lakeside.refine(replace(COPY, partition_by=None))
    lakeside.refine(downstream)

    for _ in range(2):
        lakeside.refine(COPY)
        lakeside.refine(downstream)
        lakeside.assert_as_computed_at_once(downstream)
        lakeside.append(MORE)
