"""A refined table over a table that the test writes, and the comparison with a full recomputation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING, Any

from deltalake import CommitProperties, DeltaTable, Transaction
from pydantic import TypeAdapter

from kdi_assets.delta.markers import days_of, kept_from_id
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.entry import RefineEntry
from kdi_assets.follow.refine.refine import refine

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENTS = "id bigint, host string, bytes bigint, op string, date date"


def refined_table(**fields: Any) -> RefinedTableSpec:
    """A refined table as a document describes it."""
    table: RefinedTableSpec = TypeAdapter(RefinedTableSpec).validate_python(fields)
    return table


D1, D2 = date(2026, 1, 1), date(2026, 1, 2)
FIRST = [(1, "a", 10, "i", D1), (2, "b", 20, "i", D1), (3, "a", 30, "i", D2)]
MORE = [(4, "a", 5, "i", D2), (1, "b", 7, "u", D2)]
COPY = refined_table(**{"table": "silver/copy", "from": "bronze/events"})
SUMS = refined_table(
    **{
        "table": "gold/sums",
        "from": "bronze/events",
        "mode": {"aggregate": {"by": ["date", "host"], "measures": {"n": "count", "total": {"sum": "bytes"}}}},
    }
)
STATE = refined_table(
    **{
        "table": "silver/state",
        "from": "bronze/events",
        "partition_by": None,
        "mode": {"upsert": {"keys": ["id"], "sequence_by": "bytes", "apply_as_deletes": "op = 'd'"}},
    }
)
"""Three tables over events: their rows, sums by date and host, and the newest of each id."""


def failing(events: DataFrame) -> DataFrame:
    """A document's function with a mistake."""
    raise KeyError("amount")


def without_rows(events: DataFrame) -> None:
    """A document's function that returns nothing."""


@dataclass(frozen=True)
class Lakeside:
    """Tables of one test's lake, and what refines them."""

    spark: SparkSession
    lake: str

    def append(
        self, rows: Sequence[tuple[Any, ...]], table: str = "bronze/events", schema: str = EVENTS, *, txn: str = ""
    ) -> None:
        """Add rows to an upstream table; the first call creates it, with a change feed.

        Args:
            txn: A transaction id of the commit.
        """
        frame = self.spark.createDataFrame(list(rows), schema)
        writer = frame.write.format("delta").mode("append")
        if "date" in frame.columns:
            writer = writer.partitionBy("date")
        with_feed = {"delta.enableChangeDataFeed": "true"}
        with_feed |= {"txnAppId": txn, "txnVersion": "1"} if txn else {}
        writer.options(**with_feed).save(self.uri(table))

    def sql(self, statement: str, table: str = "bronze/events") -> None:
        """Run a statement, with ``{t}`` for the table."""
        self.spark.sql(statement.format(t=f"delta.`{self.uri(table)}`"))

    def expire(self, first: date, table: str = "bronze/events") -> None:
        """Remove the files of the dates before ``first``, as the upkeep of a stream's table does."""
        opened = DeltaTable(self.uri(table))
        kept = [Transaction(kept_from_id(str(opened.metadata().id)), days_of(first))]
        opened.delete(f"date < '{first}'", commit_properties=CommitProperties(app_transactions=kept))

    def gain_column(self) -> None:
        """Add a column to the events, and a row that has it."""
        self.sql("ALTER TABLE {t} ADD COLUMNS (more string)")
        self.sql("INSERT INTO {t} VALUES (8, 'e', 80, 'i', DATE'2026-01-02', 'x')")

    def uri(self, table: str) -> str:
        return f"{self.lake}/{table}"

    def refine(self, table: RefinedTableSpec, **options: Any) -> RefineEntry:
        """Refine what is new; the version of the entry is -1 if nothing was."""
        return refine(table, lake=self.lake, session=lambda: self.spark, **options).entry

    def rows(self, table: str) -> Counter[tuple[Any, ...]]:
        """The rows of a table, as delta-rs reads them; without sketches, whose bytes have the order of their values."""
        read = DeltaTable(self.uri(table)).to_pyarrow_table().to_pylist()
        return Counter(
            tuple(sorted((name, _plain(value)) for name, value in row.items() if not name.endswith("_sketch")))
            for row in read
        )

    def version(self, table: str) -> int:
        return DeltaTable(self.uri(table)).version()

    def partitions(self, table: str) -> list[str]:
        """The columns that the table is partitioned by."""
        return list(DeltaTable(self.uri(table)).metadata().partition_columns)

    def files(self, table: str) -> frozenset[str]:
        """The table's files."""
        return frozenset(DeltaTable(self.uri(table)).file_uris())

    def assert_as_computed_at_once(self, table: RefinedTableSpec) -> None:
        """The table has the rows that another table, made now of all upstream rows, has."""
        again = replace(table, table=f"{table.table}_again_{self.version(table.table)}")
        self.refine(again)
        ours, theirs = self.rows(table.table), self.rows(again.table)
        assert ours == theirs, f"missing {theirs - ours}; too many {ours - theirs}"


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return tuple(sorted((k, _plain(v)) for k, v in value.items()))
    return tuple(map(_plain, value)) if isinstance(value, list | tuple) else value
