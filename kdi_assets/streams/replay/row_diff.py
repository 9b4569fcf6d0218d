"""Old rows beside new ones: changed, added, removed or moved."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Literal, NamedTuple

from kdi_assets.documents.model.stream import Stream, TopicPartition
from kdi_assets.messages.coordinates import coordinates
from kdi_assets.streams.ledger.dates import day_of
from kdi_assets.streams.rules.table.table_rows import in_table_form

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Change = Literal["same", "changed", "moved", "added", "gone", "missing"]
"""``moved``: to another date. ``missing``: Kafka no longer holds the message, so the row stays."""
CHANGES: tuple[Change, ...] = ("changed", "moved", "added", "gone", "missing", "same")
SHOWN = 3
_EXACT = "map('timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSSXXX', 'timestampNTZFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
"""Options of JSON: without them Spark writes timestamps in milliseconds."""
_ROW = ("partition", "offset", "timestamp", "index")


class Example(NamedTuple):
    """One row before and after, as JSON; empty if there is none.

    Attributes:
        at: Topic partition and offset of its message.
    """

    change: Change
    at: tuple[TopicPartition, int]
    was: str
    now: str


class Moved(NamedTuple):
    """Rows whose date is another one now."""

    was: date
    now: date
    rows: int


def compare(was: DataFrame, now: DataFrame, stream: Stream) -> DataFrame:
    """Join old and new rows by their coordinates; the second of two equal old rows is ``gone``.

    Args:
        was: Rows of the table, all rows of each message.
        now: The rows of the same messages by the present definition; they may have new columns.

    Returns:
        ``change: string, partition: int, offset: bigint, timestamp: timestamp, index: int, was: struct, now: struct``;
        one struct is null if there is no such row. Lazy.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    def side(rows: DataFrame, name: str) -> DataFrame:
        at = F.struct(*coordinates(rows, stream)).alias("_kdi_at")
        named = rows.select(at, F.struct(*(F.col(f"`{column}`") for column in rows.columns)).alias(name))
        return named.select(*(f"_kdi_at.{column}" for column in _ROW), name)

    copies = F.row_number().over(Window.partitionBy(*_ROW).orderBy("partition"))
    old = side(was, "was").withColumn("copy", copies)
    new = side(in_table_form(now.select(*_as_in(was, now)), was.schema, stream), "now").withColumn("copy", F.lit(1))
    # As JSON: Spark does not compare maps, and a column that only one side has counts as null on the other.
    same = f"to_json(was, {_EXACT}) = to_json(now, {_EXACT})"
    change = (
        "CASE WHEN now IS NULL THEN 'gone' WHEN was IS NULL THEN 'added' "
        f"WHEN NOT (was.date <=> now.date) THEN 'moved' WHEN {same} THEN 'same' ELSE 'changed' END"
    )
    # The timestamps are null where the table does not keep them.
    same_row = F.expr(" AND ".join(f"old.{column} <=> new.{column}" for column in (*_ROW, "copy")))
    both = old.alias("old").join(new.alias("new"), same_row, "full")
    at = (F.expr(f"coalesce(old.{column}, new.{column}) AS {column}") for column in _ROW)
    return both.select(F.expr(change).alias("change"), *at, "was", "now")


def _as_in(table: DataFrame, rows: DataFrame) -> list[Column]:
    """The columns of rows in the table's order and case; new columns last."""
    from pyspark.sql import functions as F

    named = {column.lower(): F.col(f"`{column}`") for column in rows.columns}
    known = [named.pop(column.lower()).alias(column) for column in table.columns if column.lower() in named]
    return [*known, *named.values()]


def change_feed(differing: DataFrame) -> DataFrame:
    """The records of the table's change feed: a delete for each old row, an insert for each new one."""
    gone = differing.where("was IS NOT NULL").selectExpr("was.*", "'delete' AS _change_type")
    come = differing.where("now IS NOT NULL").selectExpr("now.*", "'insert' AS _change_type")
    return come.unionByName(gone, allowMissingColumns=True)


def change_counts(compared: DataFrame) -> dict[Change, int]:
    """How many rows have each kind of change."""
    found = {r["change"]: r["count"] for r in compared.groupBy("change").count().collect()}
    return {change: found[change] for change in CHANGES if change in found}


def examples(compared: DataFrame, stream: Stream) -> tuple[Example, ...]:
    """The first few rows of each change."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = Window.partitionBy("change").orderBy("partition", "offset", "index")
    first = compared.where("change <> 'same'").withColumn("number", F.row_number().over(order))
    text = "change", "partition", "offset", "to_json(was) AS was", "to_json(now) AS now"
    found = first.where(f"number <= {SHOWN}").orderBy("change", "number").selectExpr(*text).collect()
    places = ((r, (TopicPartition(stream.topic, r["partition"]), r["offset"])) for r in found)
    return tuple(Example(r["change"], at, r["was"] or "", r["now"] or "") for r, at in places)


def moved(compared: DataFrame) -> tuple[Moved, ...]:
    """Rows by old and new date, the largest count first."""
    from pyspark.sql import functions as F

    was, to = F.expr(day_of("was.date")).alias("date"), F.expr(day_of("now.date")).alias("to")
    days = compared.where("change = 'moved'").groupBy(was, to).count()
    found = days.orderBy(F.desc("count"), "date", "to").collect()
    return tuple(Moved(r["date"], r["to"], r["count"]) for r in found)
