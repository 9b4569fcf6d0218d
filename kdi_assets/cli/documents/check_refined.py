"""`kdi check` of refined tables: does Spark understand their SQL, over the upstream tables that there are?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kdi_assets.documents.model.refined_modes import Aggregate, Deduplicate, Upsert
from kdi_assets.documents.model.refined_table import RefinedTableSpec, Upstream
from kdi_assets.errors import KdiError, Transient
from kdi_assets.runtime.spark_internals import empty_frame
from kdi_assets.settings import Settings
from kdi_assets.wording import did_you_mean, first_line

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from kdi_assets.cli.documents.spark_findings import SparkFindings
    from kdi_assets.documents.loading.loader import LoadedFolder
    from kdi_assets.documents.loading.yaml_documents import YamlDocument

SQL_OVER_ROWS = "Spark SQL over the columns of the rows"


def check_refined(loaded: LoadedFolder, session: SparkSession, findings: SparkFindings) -> None:
    """Add the mistakes of all refined tables, each after those that it is made of."""
    from kdi_assets.documents.loading.refined_documents import upstream_first

    checker = _Checker(loaded, session, Settings.from_environment().lake)
    for table in upstream_first(loaded.refined.values()):
        document = loaded.refined_documents[table.name]
        try:
            for path, message, right in checker.mistakes(table):
                findings.mistakes.append(document.mistake(_line_field(document, path), message, right))
        except KdiError as refusal:
            if isinstance(refusal, Transient):
                findings.refusals[table.name] = refusal
            findings.unchecked.append(table.name)


def _line_field(document: YamlDocument, path: str) -> str:
    """The field as the document has it: the SQL may lie in a file."""
    in_file = path == "sql" and "attributes.sql_file" in document.lines
    return "sql_file" if in_file else path


Mistake = tuple[str, str, str]
"""Field, what is wrong, and what would be right."""


@dataclass
class _Checker:
    """The columns of the tables that are known so far; ``None``: a table's own document is wrong."""

    loaded: LoadedFolder
    spark: SparkSession
    lake: str
    known: dict[str, StructType | None] = field(default_factory=dict)

    def mistakes(self, table: RefinedTableSpec) -> Iterator[Mistake]:
        """The mistakes of one table."""
        self.known[table.name] = None
        found = {upstream.view: self._columns(upstream) for upstream in table.upstreams}
        missing = [u.table for u in table.upstreams if found[u.view] is None and self._is_nowhere(u.table)]
        for path in missing:
            names = [*self.loaded.streams, *self.loaded.refined]
            close = did_you_mean(path, (name for name in names if name != table.name))
            yield "from", f"no document describes {path}, and no table lies there", close
        if any(columns is None for columns in found.values()):
            return
        frames = {view: empty_frame(self.spark, columns) for view, columns in found.items() if columns}
        yield from self._of_query(table, frames)

    def _is_nowhere(self, path: str) -> bool:
        return path not in self.loaded.streams and path not in self.loaded.refined

    def _columns(self, upstream: Upstream) -> StructType | None:
        """The columns of an upstream table: of the table if it is there, otherwise those of its document."""
        from kdi_assets.delta.log import TableLog
        from kdi_assets.streams.rules.errors import ShapeMistake
        from kdi_assets.streams.rules.shape import analyse
        from kdi_assets.streams.rules.table.table_schema import of_table

        path = upstream.table
        if path not in self.known:
            log = TableLog.open(upstream.table_uri(self.lake))
            stream = self.loaded.streams.get(path)
            if log:
                self.known[path] = of_table(log)
            elif stream:
                try:
                    self.known[path] = analyse(stream, self.spark)
                except ShapeMistake:
                    self.known[path] = None  # reported at the stream's document
            else:
                self.known[path] = None
        return self.known[path]

    def _of_query(self, table: RefinedTableSpec, frames: dict[str, DataFrame]) -> Iterator[Mistake]:
        from kdi_assets.follow.refine.row_errors import DateNotKept, NameOfOurColumn, QueryMistake, RowsNotOneByOne
        from kdi_assets.follow.refine.transform import transform

        try:
            rows = transform(self.spark, table, frames)
        except QueryMistake as refusal:
            yield refusal.field, refusal.detail, "Spark SQL over the tables of `from`"
            return
        except (DateNotKept, NameOfOurColumn, RowsNotOneByOne) as refusal:
            happened, _, run = refusal.message_parts()
            yield "mode", happened.removeprefix(f"{table.name}: ").rstrip("."), run
            return
        expressions = _expressions(table, rows)
        wrong = [(path, said) for path, sql in expressions if (said := _refused(rows, sql, may_ask_clock=False))]
        for path, said in wrong:
            yield path, said, SQL_OVER_ROWS
        if not wrong:
            yield from self._of_rows(table, rows)

    def _of_rows(self, table: RefinedTableSpec, rows: DataFrame) -> Iterator[Mistake]:
        """Of the columns and expressions over the rows as the mode makes them."""
        from pyspark.errors import AnalysisException

        from kdi_assets.follow.refine.columns import wrong_name
        from kdi_assets.follow.refine.transform import field_of_rows

        try:
            made = _as_the_mode_makes_them(table, rows)
        except AnalysisException as refusal:
            yield "mode", first_line(refusal).rstrip("; "), SQL_OVER_ROWS
            return
        if said := wrong_name(made.schema, table.properties):
            field = "mode" if isinstance(table.mode, Aggregate) else field_of_rows(table)
            yield field, said, "AS and a name of letters, digits and '_' for each column"
        self.known[table.name] = made.schema
        for name, expectation in table.expectations.items():
            if said := _refused(made, expectation.sql):
                yield f"expectations.{name}", said, SQL_OVER_ROWS


def _expressions(table: RefinedTableSpec, rows: DataFrame) -> Iterator[tuple[str, str]]:
    """What the mode evaluates over the rows of the query, by field."""
    from kdi_assets.follow.refine.columns import one_value
    from kdi_assets.follow.refine.envelope import CHANGE_SEQUENCE, ordering

    match table.mode:
        case Aggregate(by, measures):
            yield from ((f"mode.aggregate.by.{n}", f"`{column}`") for n, column in enumerate(by))
            yield from ((f"mode.aggregate.measures.{name}", one_value(m.of)) for name, m in measures.items())
        case Deduplicate(keys, order_by):
            yield from ((f"mode.deduplicate.keys.{n}", f"`{column}`") for n, column in enumerate(keys))
            yield "mode.deduplicate.order_by", ordering(rows, order_by)
        case Upsert() as mode:
            yield from ((f"mode.upsert.keys.{n}", f"`{column}`") for n, column in enumerate(mode.keys))
            # Of an envelope it is already a column of the rows.
            yield "mode.upsert.sequence_by", CHANGE_SEQUENCE if mode.envelope else ordering(rows, mode.sequence_by)
            yield from ((f"mode.upsert.column_list.{n}", f"`{c}`") for n, c in enumerate(mode.column_list))
            if mode.apply_as_deletes:
                yield "mode.upsert.apply_as_deletes", mode.apply_as_deletes


def _as_the_mode_makes_them(table: RefinedTableSpec, rows: DataFrame) -> DataFrame:
    from kdi_assets.follow.refine.audit.audit import rows_by_mode

    return rows_by_mode(table, rows)


def _refused(rows: DataFrame, sql: str, *, may_ask_clock: bool = True) -> str:
    """Why Spark does not understand an expression over the rows, or why we refuse it; empty if it is right."""
    from pyspark.errors import AnalysisException, ParseException

    from kdi_assets.follow.refine.transform import CLOCK_ASKED
    from kdi_assets.runtime.spark_internals import rows_ask_clock

    try:
        selected = rows.selectExpr(sql)  # analysed here
    except (AnalysisException, ParseException) as refusal:
        return first_line(refusal).rstrip("; ")
    return CLOCK_ASKED if not may_ask_clock and rows_ask_clock(selected) else ""
