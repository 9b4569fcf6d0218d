"""The files of a Delta table as Delta's own actions: rows of some of them, and their replacement in one commit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from kdi_assets.delta.internals import (
    as_json,
    files_from_json,
    files_where,
    has_change_feed,
    metadata_of,
    partition_columns,
    path_of,
    removals,
    rows_of_files,
    schema_text,
    set_metadata,
    snapshot_at,
    start_transaction,
    transaction_ids,
    version_of,
    write_files,
)
from kdi_assets.delta.log_files import Add, files_at
from kdi_assets.delta.transaction import Staged, delta_log, physical_name
from kdi_assets.runtime.spark_internals import listed, scala_seq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

CHANGE = "_change_type"
FILE = "_kdi_file"
MOST_FILES = 1_000
"""Each is an object that Python makes in the JVM; of more, a Spark job makes them all."""


def rows_at(spark: SparkSession, uri: str, version: int) -> DataFrame:
    """All rows of a table at a version."""
    return spark.read.format("delta").option("versionAsOf", version).load(uri)


@dataclass(frozen=True, slots=True)
class CountedRows:
    """Rows by the statistics of files.

    Attributes:
        rows: ``None`` if another writer left a file without statistics.
        by_date: Rows by date; empty for a table without date partitions.
    """

    rows: int | None
    by_date: Mapping[date, int]


@dataclass(frozen=True)
class TableAt:
    """A Delta table at one version, as Delta's own objects; what it says of itself is asked for once."""

    spark: SparkSession
    uri: str
    log: Any
    snapshot: Any

    @classmethod
    def open(cls, spark: SparkSession, uri: str, version: int) -> TableAt:
        """The table at a version that its log still has."""
        log = delta_log(spark, uri)
        return cls(spark, uri, log, snapshot_at(spark, log, version))

    @cached_property
    def schema(self) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self._schema_text))

    def rows_of(self, adds: Collection[Any]) -> DataFrame:
        """The rows of some files, which need not be in this version any more."""
        return rows_of_files(self.spark, self.log, self.snapshot, adds)

    def files(self) -> tuple[Any, ...]:
        """Delta's actions of the files."""
        return self._files(lambda add: True, "true")

    def few_files(self) -> list[Any] | None:
        """Delta's actions of the files, without a Spark job; ``None`` if that is impossible, or they are many."""
        found = files_at(self.uri, version_of(self.snapshot))
        return None if found is None or len(found) > MOST_FILES else self.from_log(found)

    def files_of_dates(self, dates: Collection[date]) -> tuple[Any, ...]:
        """The files of some dates, of a table that is partitioned by ``date``."""
        if not self.is_partitioned_by_date:  # no file would have any of the dates, and no row would be replaced
            raise AssertionError(f"{self.uri}: it is not partitioned by date")
        column, days = self.date_column, {str(day) for day in dates}
        some = ", ".join(f"'{day}'" for day in sorted(days))
        condition = f"partitionValues['{column}'] IN ({some})"
        return self._files(lambda add: add["partitionValues"].get(column) in days, condition) if days else ()

    def files_before(self, day: date) -> tuple[Any, ...]:
        """The files of older dates, of a table that is partitioned by ``date``, as DATE or as text."""
        column, text = self.date_column, day.isoformat()
        condition = f"partitionValues['{column}'] < '{text}'"  # as text, dates of one form have the same order
        return self._files(lambda add: (add["partitionValues"].get(column) or text) < text, condition)

    def files_named(self, names: Collection[str]) -> tuple[Any, ...]:
        """The files with these names, which are paths' last parts."""
        some = ", ".join(f"'{name}'" for name in sorted(names))
        condition = f"substring_index(path, '/', -1) IN ({some})"
        return self._files(lambda add: add["path"].rpartition("/")[2] in names, condition) if names else ()

    def _files(self, wanted: Callable[[Add], bool], condition: str) -> tuple[Any, ...]:
        """The files that are wanted, or by Spark those that meet the same condition."""
        found = files_at(self.uri, version_of(self.snapshot), wanted)
        if found is None or len(found) > MOST_FILES:
            return files_where(self.snapshot, condition)
        return tuple(self.from_log(found))

    def from_log(self, adds: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Delta's actions of ``add`` actions as the log has them."""
        return files_from_json(self.spark, adds)

    def counted(self, adds: Collection[Any]) -> CountedRows:
        """The rows of some files by their statistics."""
        return count_rows([as_json(add)["add"] for add in adds], self.date_column)

    @cached_property
    def partition_columns(self) -> list[str]:
        return partition_columns(metadata_of(self.snapshot))

    @property
    def is_partitioned_by_date(self) -> bool:
        """A partition column ``date`` of type date, and not of text."""
        types = {field.name: field.dataType.simpleString() for field in self.schema.fields}
        return "date" in self.partition_columns and types["date"] == "date"

    @property
    def transaction_ids(self) -> frozenset[str]:
        """All transaction ids that the log knows."""
        return transaction_ids(self.snapshot)

    @property
    def has_change_feed(self) -> bool:
        return has_change_feed(self.spark, metadata_of(self.snapshot))

    @property
    def date_column(self) -> str:
        """What the table's files call the column ``date``."""
        return physical_name("date", self._schema_text)

    @cached_property
    def _schema_text(self) -> str:
        return schema_text(metadata_of(self.snapshot))


def count_rows(adds: Sequence[Mapping[str, Any]], date_column: str) -> CountedRows:
    """The rows of ``add`` actions by their statistics."""
    by_date: Counter[date] = Counter()
    total: int | None = 0
    for add in adds:
        stats = json.loads(add.get("stats") or "{}")
        rows = stats.get("numRecords")
        if rows is not None and (vector := add.get("deletionVector")):
            rows -= vector["cardinality"]
        total = None if total is None or rows is None else total + rows
        if (day := add["partitionValues"].get(date_column)) and rows is not None:
            by_date[date.fromisoformat(day)] += rows
    return CountedRows(total, dict(sorted(by_date.items())))


def replace_files(
    table: TableAt,
    rows: DataFrame,
    *,
    removed: Collection[Any] = (),
    metadata: Any = None,
    one_task: bool = False,
) -> tuple[Staged, CountedRows]:
    """Write rows into files that are in no version of the table, and remove others in the same commit.

    Args:
        rows: The table's columns and types, or those of ``metadata``. With a column ``_change_type``: rows where it is
            null are those of the new files, the others those of the change feed. Without it, Delta derives the feed
            from the files: all rows of removed files are deletes, all rows of new ones inserts.
        removed: Delta's actions of the files that the commit removes.
        metadata: Delta's new metadata of the table, if it changes.
        one_task: One task writes all rows, without a shuffle.

    Returns:
        Everything that the commit needs, and the rows of the new files.
    """
    spark = table.spark
    written, metadata = write_rows(table, rows, metadata=metadata, one_task=one_task)
    actions = listed(written)
    parsed = [as_json(action) for action in actions]
    adds = [action["add"] for action in parsed if "add" in action]
    date_column = table.date_column if metadata is None else physical_name("date", schema_text(metadata))
    counted = count_rows(adds, date_column)
    staged = Staged(
        actions=scala_seq(spark, [*actions, *removals(removed)]),
        files=tuple(
            unquote((action.get("add") or action["cdc"])["path"]) for action in parsed if action.keys() & {"add", "cdc"}
        ),
        rows_by_date=counted.by_date,
        bytes=sum(add["size"] for add in adds),
        data_files=len(adds),
        metadata=metadata,
        replaces=frozenset(map(path_of, removed)),
    )
    return staged, counted


def write_rows(table: TableAt, rows: DataFrame, *, metadata: Any = None, one_task: bool = False) -> tuple[Any, Any]:
    """Write rows into new files; arguments as of ``replace_files``.

    Returns:
        Delta's actions of the files, and of those of the change feed; and the new metadata as the commit must have it.
        With column mapping, Delta draws the names in the files when it takes the metadata, and anew each time.
    """
    spark = table.spark
    transaction = start_transaction(spark, table.log, table.snapshot)
    if metadata is not None:
        set_metadata(transaction, metadata)
        metadata = metadata_of(transaction)
    if CHANGE in rows.columns and not table.has_change_feed:
        rows = rows.where(f"{CHANGE} IS NULL").drop(CHANGE)
    # Tasks hand each other the rows of a date: without it each task would write a file of its own for each date.
    options = {"optimizeWrite": str(not one_task).lower()}
    return write_files(spark, transaction, rows.coalesce(1) if one_task else rows, options=options), metadata
