"""States: the rows that the changes of keys make, in their order; the newest ones (SCD 1) or all of them (SCD 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.documents.model.refined_modes import OFFSETS, Upsert
from kdi_assets.documents.model.source_struct import SOURCE_STRUCTS
from kdi_assets.follow.refine.columns import AT, CARRIED, EXACT_JSON, FROM, SEQUENCE, TO, kept_columns
from kdi_assets.follow.refine.spark_errors import ORDER_UNKNOWN
from kdi_assets.follow.refine.table_change import OLD
from kdi_assets.runtime.spark_internals import referenced_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.window import WindowSpec

DELETES, IS_NEW, LATE, TOUCHED = "_kdi_deletes", "_kdi_is_new", "_kdi_late", "_kdi_touched"
"""Of a change: whether it deletes, was read by this refinement, and is older than a known one of its key; and whether
any change of its key is new."""
_OF_OFFSET = ("offset", "index", "count")
"""Fields of a place that say nothing of two topic partitions."""


def _in_order(mode: Upsert) -> WindowSpec:
    """The changes of a key, the oldest first."""
    from pyspark.sql import Window

    return Window.partitionBy(*mode.keys).orderBy(SEQUENCE, AT)


def is_by_offset(spark: SparkSession, sql: str) -> bool:
    """Whether an order is the offset, in whatever form: it orders the rows of one topic partition alone."""
    if sql in OFFSETS or "offset" not in sql.lower():
        return sql in OFFSETS
    names = {name.lower().replace("`", "") for name in referenced_names(spark, sql)}
    places = (*(struct.name for struct in SOURCE_STRUCTS), AT)
    return bool(names) and any(names <= {place, *(f"{place}.{field}" for field in _OF_OFFSET)} for place in places)


def has_null_key(mode: Upsert) -> str:
    """Of a change, in SQL: whether it is unknown what it changes."""
    return " OR ".join(f"`{column}` IS NULL" for column in dict.fromkeys((*mode.keys, SEQUENCE)))


def states_of_all(changes: DataFrame, mode: Upsert) -> DataFrame:
    """The rows of the table that all changes of their keys make.

    Where only the newest sequence of a key matters, Spark drops the older changes before it orders the others: of many
    changes of a key, few are sorted and shuffled.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    by_offset = is_by_offset(changes.sparkSession, mode.sequence_by)
    if mode.scd_type == 1 and not by_offset and CARRIED not in changes.columns:
        newest = Window.partitionBy(*mode.keys).orderBy(F.col(SEQUENCE).desc())
        changes = changes.withColumn("_kdi_rank", F.rank().over(newest)).where("_kdi_rank = 1").drop("_kdi_rank")
    return rows_of_states(states_of(ordered_changes(changes, mode), mode))


def ordered_changes(changes: DataFrame, mode: Upsert) -> DataFrame:
    """The changes, each with the sequence of the next one of its key; ends the job if some have no order.

    Args:
        changes: All changes of their keys that count; with ``_kdi_is_new``, whether this refinement read them.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if IS_NEW not in changes.columns:
        changes = changes.withColumn(IS_NEW, F.lit(True))
    # One specification for all, also where the order makes no difference: Spark sorts and buffers the rows once.
    in_order = _in_order(mode)
    of_key = in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    known_until = F.max(F.expr(f"IF({IS_NEW}, NULL, {SEQUENCE})")).over(of_key)
    found = {
        "_kdi_next": F.lead(SEQUENCE).over(in_order),
        "_kdi_last": F.lead(F.lit(True)).over(in_order).isNull(),
        LATE: F.col(IS_NEW) & F.coalesce(F.col(SEQUENCE) < known_until, F.lit(False)),
    }
    if OLD in changes.columns:
        found |= _old_forms(mode, of_key)
    values = [c for c in changes.columns if c not in (SEQUENCE, AT, IS_NEW, DELETES, OLD)]
    # Column by column: Spark would make a struct of them before the shuffle, and sort rows of twice the size.
    before = [F.lag(F.col(f"`{c}`")).over(in_order).alias(c) for c in (SEQUENCE, AT, DELETES, *values)]
    found |= {"_kdi_before": F.struct(*before), "_kdi_newest": F.max(SEQUENCE).over(of_key)}
    unordered = _unordered(mode, values)
    if is_by_offset(changes.sparkSession, mode.sequence_by):
        # Offsets of two topic partitions have no order: which of two changes is newer is nowhere.
        found["_kdi_least"] = F.min(f"{AT}.partition").over(of_key)
        unordered = unordered | F.expr(f"_kdi_least <> {AT}.partition")
    keys = ", ".join(f"`{key}`" for key in mode.keys)
    told = f"to_json(named_struct('keys', struct({keys}), 'at', {AT}, 'sequence', string({SEQUENCE})))"
    refused = F.expr(f"CAST(raise_error(concat('{ORDER_UNKNOWN}', {told})) AS BOOLEAN)")
    # Changes without a key are no changes of one key: they are counted, and refused by their number.
    of_one_key = ~F.expr(has_null_key(mode))
    return changes.withColumns(found).where(F.when(of_one_key & unordered, refused).otherwise(True))


def _old_forms(mode: Upsert, of_key: WindowSpec) -> dict[str, Column]:
    """The row that the table had of each change's state, and whether any change of the key is new."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    of_sequence = Window.partitionBy(*mode.keys).orderBy(SEQUENCE).rangeBetween(Window.currentRow, Window.currentRow)
    of_state = of_key if mode.scd_type == 1 else of_sequence
    return {OLD: F.first(OLD, ignorenulls=True).over(of_state), TOUCHED: F.max(IS_NEW).over(of_key)}


def _unordered(mode: Upsert, values: Sequence[str]) -> Column:
    """The change before has the same sequence, is not before in its topic partition, and does not say the same.

    It lies in another one, or in the same message, whose rows have no order without a number for each.

    Without history only the newest sequence of a key matters: the table does not have the others. A delete says nothing
    but its keys: the end of a span in the table is one whose other columns are not known.

    Args:
        values: The columns that say something, and ``carried`` if there is one.
    """
    from pyspark.sql import functions as F

    before = F.col("_kdi_before")
    matters = F.col(SEQUENCE) == F.col("_kdi_newest") if mode.scd_type == 1 else F.lit(True)
    same_partition = before[AT]["partition"] == F.col(f"{AT}.partition")
    comes_before = F.coalesce(same_partition & (before[AT] != F.col(AT)), F.lit(False))
    now = _content({c: F.col(f"`{c}`") for c in values})
    then = _content({c: before[c] for c in values})
    says, said = (F.when(~deletes, json) for deletes, json in ((F.col(DELETES), now), (before[DELETES], then)))
    return matters & (before[SEQUENCE] == F.col(SEQUENCE)) & ~comes_before & ~says.eqNullSafe(said)


def _content(values: dict[str, Column]) -> Column:
    """What a change says, as JSON. In the table it has former values of the columns it lacks: it did not say these."""
    from pyspark.sql import functions as F

    if CARRIED in values:
        lacks = F.array_sort(F.coalesce(F.map_keys(values[CARRIED]), F.array().cast("array<string>")))
        own = {c: F.when(~F.array_contains(lacks, c), value) for c, value in values.items() if c != CARRIED}
        values = {**own, CARRIED: lacks}
    return F.to_json(F.struct(*(value.alias(c) for c, value in values.items())), EXACT_JSON)


def states_of(ordered: DataFrame, mode: Upsert) -> DataFrame:
    """The newest state of each key, or all states, as ordered changes make them; deletes included."""
    from pyspark.sql import functions as F

    ordered = _with_carried_values(ordered, mode) if CARRIED in ordered.columns else ordered
    if mode.scd_type == 1:
        return ordered.where("_kdi_last")
    # Of changes with one sequence the last one counts; no time is between them.
    spans = ordered.where(f"_kdi_last OR _kdi_next <> {SEQUENCE}")
    return spans.withColumn(TO, F.col("_kdi_next")).withColumnRenamed(SEQUENCE, FROM)


def rows_of_states(states: DataFrame) -> DataFrame:
    """The rows of the table that are states."""
    return states.where(f"NOT {DELETES}").drop(*(c for c in states.columns if c.startswith("_kdi_")))


def _with_carried_values(ordered: DataFrame, mode: Upsert) -> DataFrame:
    """The changes with the former values of the columns that they do not have the values of.

    The former value is that of the newest change before that has it, which may be a row of the table that carries it
    from there. After a delete there is none: the column is null, and ``carried`` has no change for it.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    columns = [c for c in kept_columns(ordered.columns, mode) if c not in (*mode.keys, SEQUENCE, AT, CARRIED)]
    columns = [c for c in columns if not c.startswith("_kdi_")]
    so_far = _in_order(mode).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    own = F.struct(F.col(SEQUENCE).alias("sequence"), F.col(AT).alias("sequence_at"))
    unknown = F.coalesce(F.map_keys(CARRIED), F.array().cast("array<string>"))
    values, origins = {}, []
    for column in columns:
        lacks = F.array_contains(unknown, column)
        origin = F.when(lacks & ~F.col(DELETES), F.col(CARRIED)[column]).otherwise(own)
        found = F.max_by(
            F.struct(F.col(f"`{column}`").alias("value"), origin.alias("origin"), F.col(DELETES).alias("gone")),
            origin,
        ).over(so_far)
        there = found.isNotNull() & ~found["gone"]
        values[column] = F.when(lacks & there, found["value"]).when(lacks, F.lit(None)).otherwise(F.col(f"`{column}`"))
        origins.append((column, F.when(there, found["origin"])))
    carried = F.map_from_entries(F.array(*(F.struct(F.lit(c).alias("key"), o.alias("value")) for c, o in origins)))
    of_unknown = F.map_filter(carried, lambda key, _: F.array_contains(unknown, key))
    return ordered.withColumns({**values, CARRIED: F.when(F.size(unknown) > 0, of_unknown)})
