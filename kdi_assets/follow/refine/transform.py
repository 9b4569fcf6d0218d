"""Transform: the document's SQL or function over the rows of upstream tables, and what its plan shows about it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.refined_modes import ReplaceDates, Upsert
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.columns import AT, refuse_made_columns
from kdi_assets.follow.refine.envelope import CHANGE_SEQUENCE, has_coordinates, ordering, without_envelope
from kdi_assets.follow.refine.row_errors import DateNotKept, QueryMistake, RowsNotOneByOne
from kdi_assets.follow.refine.spark_errors import NOT_UTF8
from kdi_assets.messages.formats.rules import literal, name
from kdi_assets.messages.formats.unreadable import is_not_utf8
from kdi_assets.runtime.spark_internals import (
    PlanNode,
    columns_of_bytes_as_text,
    columns_of_ctes,
    plan_nodes,
    rows_ask_clock,
)
from kdi_assets.wording import first_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

SQL_ON_PATHS = "spark.sql.runSQLOnFiles"
"""Spark's setting that allows paths in place of tables, as in ``delta.`/path` ``."""
ROW_BY_ROW = frozenset({"Project", "Filter", "SubqueryAlias", "View", "Generate", "WithCTE", "CTERelationDef"})
"""Nodes of Spark's plan whose rows each come from one row, besides the reading of the table."""
ALSO_BY_DATE = frozenset({"Repartition"})
"""And those that only move rows between tasks."""
CLOCK_ASKED = "it asks the clock, which has moved on when the rows are computed again"


def transform(spark: SparkSession, table: RefinedTableSpec, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The document's SQL or function over the rows of its upstream tables.

    Args:
        frames: By the table's name in SQL, in the document's order.

    Returns:
        Lazy: nothing runs here. With ``partition_by: date`` it has a column ``date``, of type date.

    Raises:
        QueryMistake: Spark refuses it, it asks the clock, or the column ``date`` is missing or has another type.
        RowsNotOneByOne: The mode takes rows one by one, and the rows of the result depend on each other.
        DateNotKept: The mode needs the date of the upstream row, and the result has another one.
        NameOfOurColumn: The result has a column of a name that the mode upsert makes.
    """
    result = _result(spark, table, frames)
    refuse_clock(table, result, field_of_rows(table))
    if table.by_date and dict(result.dtypes).get("date") != "date":
        detail = f"partition_by is date, and the rows have no column date of type date: {', '.join(result.columns)}"
        raise QueryMistake(table=table.name, field=field_of_rows(table), detail=detail)
    if not isinstance(table.mode, ReplaceDates):
        nodes = plan_nodes(result)
        _refuse_other_rows(table, nodes)
        if table.by_date and not _keeps_date(nodes, next(iter(frames.values()))):
            raise DateNotKept(table=table.name, mode=table.mode_name)
    return _as_changes(table, result, table.mode) if isinstance(table.mode, Upsert) else result


def _as_changes(table: RefinedTableSpec, rows: DataFrame, mode: Upsert) -> DataFrame:
    """The rows of a table that is upserted, out of their envelope.

    Raises:
        QueryMistake: They do not have the envelope's columns or the keys, or text is taken for a sequence.
        NameOfOurColumn: One of them has the name of a column that the mode makes.
    """
    from pyspark.errors import AnalysisException

    try:
        rows = without_envelope(rows, table, mode) if mode.envelope else rows
    except AnalysisException as mistake:
        raise QueryMistake(table=table.name, field="mode.upsert", detail=first_line(mistake)) from mistake
    lower = {column.lower(): column for column in rows.columns}
    for key in mode.keys:
        # For Spark they are one column, for Delta and its readers two names.
        if key not in rows.columns and key.lower() in lower:
            detail = f"no column is called {key}; the column is called {lower[key.lower()]}"
            raise QueryMistake(table=table.name, field="mode.upsert.keys", detail=detail)
    try:
        sql = CHANGE_SEQUENCE if mode.envelope else ordering(rows, mode.sequence_by)
        sequence = rows.selectExpr(f"{sql} AS sequence")
        texts = _text_count(sequence.schema.fields[0].dataType)
    except AnalysisException:  # what computes the rows names it
        texts = 0
    # By a sequence of digits as text, 9 would be newer than 10.
    if texts > mode.sequence_by.lower().count("lpad("):
        detail = (
            f"{mode.sequence_by} is text, which is ordered by letters: '9' comes after '10'. Write "
            f"CAST({mode.sequence_by} AS DECIMAL(38, 0)) or another cast; or lpad({mode.sequence_by}, n, '0') if all "
            "texts have at most n digits"
        )
        raise QueryMistake(table=table.name, field="mode.upsert.sequence_by", detail=detail)
    of_rows = [c for c in rows.columns if c != AT or not has_coordinates(rows, AT)]  # of a table that is upserted
    refuse_made_columns(table.name, of_rows, mode)
    return rows


def _text_count(kind: DataType) -> int:
    """How many texts are in a type."""
    from pyspark.sql.types import ArrayType, StringType, StructType

    match kind:
        case StructType():
            return sum(_text_count(f.dataType) for f in kind.fields)
        case ArrayType():
            return _text_count(kind.elementType)
    return int(isinstance(kind, StringType))


def in_utf8(rows: DataFrame) -> DataFrame:
    """The rows, whose job ends with ``NOT_UTF8`` at the first text that is not; only a cast of bytes makes one."""
    if columns_of_bytes_as_text(rows):
        for field in rows.schema.fields:
            if not_utf8 := is_not_utf8(name(field.name), field.dataType):
                rows = rows.where(f"IF({not_utf8}, raise_error({literal(NOT_UTF8 + name(field.name))}), true)")
    return rows


def refuse_clock(table: RefinedTableSpec, rows: DataFrame, field: str) -> None:
    """Refuse expressions that have another value tomorrow.

    Args:
        field: Of the document, with the expressions.

    Raises:
        QueryMistake: One of them asks the clock.
    """
    if rows_ask_clock(rows):
        raise QueryMistake(table=table.name, field=field, detail=f"{CLOCK_ASKED}; compare with a column")


def function_source(table: RefinedTableSpec) -> str:
    """The source text of the document's function; empty without one.

    Raises:
        QueryMistake: There is no such function, or nobody knows its source.
    """
    if not table.python:
        return ""
    try:
        return _source(_function(table))
    except (OSError, TypeError) as unknown:
        raise QueryMistake(table=table.name, field="python", detail=f"its source is unknown: {unknown}") from unknown


@cache
def _source(function: Callable[..., Any]) -> str:
    """As it was when the function was loaded: Python would read the lines of a file that someone has changed since."""
    return inspect.getsource(function)


def _result(spark: SparkSession, table: RefinedTableSpec, frames: Mapping[str, DataFrame]) -> DataFrame:
    from pyspark.errors import PySparkException

    try:
        if table.python:
            result = _called(table, frames)
            result.schema  # noqa: B018  # analysed now, so that its mistake is named
            return result
        if not table.sql:
            return next(iter(frames.values()))
        for view, frame in frames.items():
            frame.createOrReplaceTempView(view)
        # A table that is read by its path has no bookmark: what is new in it would never arrive.
        spark.conf.set(SQL_ON_PATHS, "false")
        try:
            return spark.sql(table.sql)
        finally:
            spark.conf.unset(SQL_ON_PATHS)
            for view in frames:
                spark.catalog.dropTempView(view)
    except PySparkException as mistake:
        detail = first_line(mistake).rstrip("; ")  # the others are Spark's plan
        raise QueryMistake(table=table.name, field=field_of_rows(table), detail=detail) from mistake


def _called(table: RefinedTableSpec, frames: Mapping[str, DataFrame]) -> DataFrame:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    try:
        result = _function(table)(*frames.values())
    except (KdiError, PySparkException, Py4JError):
        raise
    except Exception as failed:  # whatever the user's code raises
        raise QueryMistake(table=table.name, field="python", detail=_told(failed)) from failed
    if not isinstance(result, DataFrame):
        detail = f"it returned {type(result).__name__}, and not a DataFrame"
        raise QueryMistake(table=table.name, field="python", detail=detail)
    return result


def _told(failed: Exception) -> str:
    return f"{type(failed).__name__}: {failed}"


def _function(table: RefinedTableSpec) -> Callable[..., Any]:
    module, _, name = table.python.partition(":")
    try:
        function: Callable[..., Any] = getattr(import_module(module), name)
    except Exception as failed:  # importing a module runs it
        raise QueryMistake(table=table.name, field="python", detail=_told(failed)) from failed
    return function


def field_of_rows(table: RefinedTableSpec) -> str:
    """The field of the document that gives the rows."""
    return "python" if table.python else "sql" if table.sql else "from"


def _refuse_other_rows(table: RefinedTableSpec, nodes: Sequence[PlanNode]) -> None:
    """Refuse a plan with joins, groups, windows, limits and the like: new rows alone do not give its new rows."""
    for node in nodes:
        if node.has_children and node.name not in ROW_BY_ROW:
            raise RowsNotOneByOne(table=table.name, mode=table.mode_name, found=node.name)
        if node.has_subqueries:
            raise RowsNotOneByOne(table=table.name, mode=table.mode_name, found="a subquery")
        if not node.is_deterministic:
            raise RowsNotOneByOne(table=table.name, mode=table.mode_name, found="a function that is not deterministic")


def is_made_by_date(result: DataFrame, upstream: DataFrame) -> bool:
    """Whether each row of the result is made of upstream rows of its own date alone: one by one, or in groups of it."""
    nodes = plan_nodes(result)
    of_date = _ids_of_date(nodes)
    alone = all(
        not node.has_children or node.name in ROW_BY_ROW | ALSO_BY_DATE or not of_date.isdisjoint(node.grouped_by or ())
        for node in nodes
    )
    return alone and not nodes[0].has_subqueries and _keeps_date(nodes, upstream)


def _keeps_date(nodes: Sequence[PlanNode], upstream: DataFrame) -> bool:
    return "date" in upstream.columns and _date_id(plan_nodes(upstream)) in _ids_of_date(nodes)


def _ids_of_date(nodes: Sequence[PlanNode]) -> set[int | None]:
    """The ids of the column ``date``: of the result, and in the queries of WITH that it comes from."""
    column, of_ctes = _date_id(nodes), columns_of_ctes(nodes)
    found = {column}
    while column in of_ctes:
        column = of_ctes[column]
        found.add(column)
    return found


def _date_id(nodes: Sequence[PlanNode]) -> int | None:
    return next((number for name, number in nodes[0].columns if name.lower() == "date"), None)
