"""Upsert: rows are changes of what their keys name; the table has the newest state (SCD 1) or all states (SCD 2).

Of two changes of one key the one with the higher sequence is newer; of two with the same sequence, the later one in
Kafka. Where neither decides, the run refuses. So the table keeps the sequence of each row and its place in Kafka.

A change that arrives late must find what came after it, deletes included. So a table beside this one keeps the keys and
sequences of deletes. A delete is a fact of the upstream table: it may be recorded before the commit that consumes it,
and recording it twice changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.documents.model.refined_modes import OFFSETS, Upsert
from kdi_assets.follow.refine.columns import (
    AT,
    CARRIED,
    EXACT_JSON,
    FROM,
    SEQUENCE,
    TO,
    HasOtherColumns,
    kept_columns,
    other_columns,
    sequence_column,
)
from kdi_assets.follow.refine.envelope import (
    CHANGE_AT,
    CHANGE_DELETES,
    CHANGE_SEQUENCE,
    UNCHANGED,
    coordinates_of,
    ordering,
)
from kdi_assets.follow.refine.inputs import Inputs
from kdi_assets.follow.refine.read import computed_once, with_keys
from kdi_assets.follow.refine.row_errors import NullKeys
from kdi_assets.follow.refine.spark_errors import ORDER_UNKNOWN
from kdi_assets.follow.refine.table_change import ChangeCounts, RowsOfKeys, TableChange, WholeTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, Observation
    from pyspark.sql.window import WindowSpec

DELETES = "_kdi_deletes"
_NEW, _LATE = "_kdi_is_new", "_kdi_late"


def _in_order(mode: Upsert) -> WindowSpec:
    """The changes of a key, the oldest first."""
    from pyspark.sql import Window

    return Window.partitionBy(*mode.keys).orderBy(SEQUENCE, f"{AT}.partition", f"{AT}.offset")


def upsert_change(inputs: Inputs, mode: Upsert, deletes: DataFrame | None) -> tuple[TableChange, DataFrame]:
    """What a refinement changes, and the deletes to record before its commit.

    Args:
        deletes: Keys, ``sequence`` and place of the deletes that are recorded; ``None``: none are.

    Returns:
        The change; and the changes that were read, of which ``deletes_of`` gives the deletes.

    Raises:
        HasOtherColumns: The changes have other columns than the rows of the table.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    if inputs.plan.kind == "rebuild":
        changes = changes_of(inputs.all_rows(), mode)
        return TableChange(_states_of_all(changes, mode), WholeTable()), changes
    unique = (*mode.keys, FROM) if mode.scd_type == 2 else mode.keys
    if not inputs.only_added:
        touched = computed_once(changes_of(inputs.touched_rows(), mode).select(*mode.keys).distinct())
        changes = computed_once(changes_of(with_keys(inputs.all_rows(), touched, mode.keys), mode))
        replaces = RowsOfKeys(touched, unique, inputs.files_with(touched))
        return TableChange(_states_of_all(changes, mode), replaces), changes
    new = changes_of(inputs.new_rows(), mode)
    # To read few rows for each part of one query is cheaper than a job that keeps them.
    new = new if inputs.small_enough and not can_delete(mode) else computed_once(new)
    keys = new.select(*mode.keys).distinct()
    files = inputs.files_with(keys)
    held = with_keys(inputs.rows_in(files), keys, mode.keys)
    if other := other_columns(new.drop(DELETES).schema, _without_ends(held, mode).schema):
        raise HasOtherColumns(", ".join(other))
    known = _known_changes(held, deletes if deletes is None else with_keys(deletes, keys, mode.keys), new, mode)
    both = known.withColumn(_NEW, F.lit(False)).unionByName(new.withColumn(_NEW, F.lit(True)))
    counted = Observation()
    unnamed = F.expr(f"count_if({_NEW} AND ({has_null_key(mode)}))").alias("unnamed")
    late_and_new = F.count_if(_LATE).alias("late"), F.count_if(_NEW).alias("new")
    ordered = _ordered(both, mode).observe(counted, *late_and_new, unnamed)
    states, unknown = _counting_unknown_values(_states(ordered, mode), mode)
    return TableChange(states, RowsOfKeys(keys, unique, files), counted=counted, unknown=unknown), new


def can_delete(mode: Upsert) -> bool:
    """Whether a change can be a delete."""
    return bool(mode.apply_as_deletes or mode.envelope)


def has_null_key(mode: Upsert) -> str:
    """Of a change, in SQL: whether it is unknown what it changes."""
    return " OR ".join(f"`{column}` IS NULL" for column in dict.fromkeys((*mode.keys, SEQUENCE)))


def _counting_unknown_values(states: DataFrame, mode: Upsert) -> tuple[DataFrame, Observation | None]:
    """Count the newest rows that have a value which no message had, as ``rows``; ``None`` if no row can have one."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    if CARRIED not in states.columns:
        return states, None
    unknown = Observation()
    now = "true" if mode.scd_type == 1 else f"{TO} IS NULL"
    lacks = f"coalesce(exists(map_values({CARRIED}), change -> change IS NULL), false)"
    return states.observe(unknown, F.expr(f"count_if({now} AND {lacks})").alias("rows")), unknown


def newest_states(rows: DataFrame, mode: Upsert) -> DataFrame:
    """The rows of the table that a rebuild makes of all rows of the query; lazy, and without any side effect."""
    return _states_of_all(changes_of(rows, mode), mode)


def changes_of(rows: DataFrame, mode: Upsert) -> DataFrame:
    """The kept columns of each change, ``sequence``, its place in Kafka, and whether it deletes.

    Returns:
        Of Debezium's changes also ``carried: map<string, struct<sequence, sequence_at>>``: by column that the change
        does not have the value of, the change that the value is of; here null, because it is unknown yet.
    """
    from pyspark.sql import functions as F

    deletes = F.expr(f"coalesce({mode.apply_as_deletes}, false)") if mode.apply_as_deletes else F.lit(False)
    sequence, at = F.expr(ordering(rows, mode.sequence_by)), coordinates_of(rows)
    if CHANGE_SEQUENCE in rows.columns:
        deletes, sequence, at = F.col(CHANGE_DELETES), F.col(CHANGE_SEQUENCE), F.col(CHANGE_AT)
    made = {SEQUENCE if mode.scd_type == 2 or sequence_column(mode) == SEQUENCE else "", AT}
    kept = [F.col(f"`{c}`") for c in kept_columns(rows.columns, mode) if c not in made]
    columns = [*kept, sequence.alias(SEQUENCE), at.alias(AT), deletes.alias(DELETES)]
    if UNCHANGED not in rows.columns:
        return rows.select(*columns)
    changes = rows.select(*columns, UNCHANGED)
    kind = dict(changes.dtypes)
    nothing = F.lit(None).cast(f"struct<sequence: {kind[SEQUENCE]}, sequence_at: {kind[AT]}>")
    unknown = F.map_from_arrays(F.col(UNCHANGED), F.transform(UNCHANGED, lambda _: nothing))
    return changes.withColumn(CARRIED, unknown).drop(UNCHANGED)


def deletes_of(changes: DataFrame, mode: Upsert) -> DataFrame:
    """Keys, ``sequence`` and place of the deletes among some changes."""
    return changes.where(DELETES).select(*mode.keys, SEQUENCE, AT).distinct()


def _known_changes(rows: DataFrame, deletes: DataFrame | None, like: DataFrame, mode: Upsert) -> DataFrame:
    """The changes that made the rows of the table, and the deletes that are known of them."""
    from pyspark.sql import functions as F

    known = _without_ends(rows, mode).withColumn(DELETES, F.lit(False)).select(*like.columns)
    if mode.scd_type == 2:
        known = known.unionByName(_as_changes(_proven_deletes(rows, mode), like))
    return known if deletes is None else known.unionByName(_as_changes(deletes, like))


def _without_ends(rows: DataFrame, mode: Upsert) -> DataFrame:
    """The rows of the table with the columns of changes."""
    return rows.drop(TO).withColumnRenamed(FROM, SEQUENCE) if mode.scd_type == 2 else rows


def _proven_deletes(rows: DataFrame, mode: Upsert) -> DataFrame:
    """Keys and ``sequence`` of the deletes that ended spans: no span begins there. They may be forgotten otherwise.

    Args:
        rows: All rows of their keys.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    following = F.lead(FROM).over(Window.partitionBy(*mode.keys).orderBy(FROM))
    ended = rows.withColumn("_kdi_next", following).where(f"{TO} IS NOT NULL AND NOT ({TO} <=> _kdi_next)")
    return ended.select(*mode.keys, F.col(TO).alias(SEQUENCE))


def _as_changes(deletes: DataFrame, like: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    columns = [
        F.col(f"`{f.name}`") if f.name in deletes.columns else F.lit(None).cast(f.dataType).alias(f.name)
        for f in like.schema.fields
        if f.name != DELETES
    ]
    return deletes.select(*columns, F.lit(True).alias(DELETES))


def _states_of_all(changes: DataFrame, mode: Upsert) -> DataFrame:
    """The rows of the table that all changes of their keys make.

    Where only the newest sequence of a key matters, Spark drops the older changes before it orders the others: of many
    changes of a key, few are sorted and shuffled.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if mode.scd_type == 1 and mode.sequence_by not in OFFSETS and CARRIED not in changes.columns:
        newest = Window.partitionBy(*mode.keys).orderBy(F.col(SEQUENCE).desc())
        changes = changes.withColumn("_kdi_rank", F.rank().over(newest)).where("_kdi_rank = 1").drop("_kdi_rank")
    return _states(_ordered(changes, mode), mode)


def _ordered(changes: DataFrame, mode: Upsert) -> DataFrame:
    """The changes, each with the sequence of the next one of its key; ends the job if some have no order.

    Args:
        changes: All changes of their keys that count; with ``_kdi_is_new``, whether this refinement read them.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    if _NEW not in changes.columns:
        changes = changes.withColumn(_NEW, F.lit(True))
    # One specification for all, also where the order makes no difference: Spark sorts and buffers the rows once.
    in_order = _in_order(mode)
    of_key = in_order.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    known_until = F.max(F.expr(f"IF({_NEW}, NULL, {SEQUENCE})")).over(of_key)
    found = {
        "_kdi_next": F.lead(SEQUENCE).over(in_order),
        "_kdi_last": F.lead(F.lit(True)).over(in_order).isNull(),
        _LATE: F.col(_NEW) & F.coalesce(F.col(SEQUENCE) < known_until, F.lit(False)),
    }
    if mode.sequence_by in OFFSETS:
        # Offsets of two topic partitions have no order: which of two changes is newer is nowhere.
        found["_kdi_least"] = F.min(f"{AT}.partition").over(of_key)
        unordered = F.expr(f"_kdi_least <> {AT}.partition")
    else:
        values = [c for c in changes.columns if c not in (SEQUENCE, AT, CARRIED, _NEW, DELETES)]
        # Column by column: Spark would make a struct of them before the shuffle, and sort rows of twice the size.
        before = [F.lag(F.col(f"`{c}`")).over(in_order).alias(c) for c in (SEQUENCE, AT, DELETES, *values)]
        found |= {"_kdi_before": F.struct(*before), "_kdi_newest": F.max(SEQUENCE).over(of_key)}
        unordered = _unordered(mode, values)
    keys = ", ".join(f"`{key}`" for key in mode.keys)
    told = f"to_json(named_struct('keys', struct({keys}), 'at', {AT}, 'sequence', string({SEQUENCE})))"
    refused = F.expr(f"CAST(raise_error(concat('{ORDER_UNKNOWN}', {told})) AS BOOLEAN)")
    # Changes without a key are no changes of one key: they are counted, and refused by their number.
    of_one_key = ~F.expr(has_null_key(mode))
    return changes.withColumns(found).where(F.when(of_one_key & unordered, refused).otherwise(True))


def _unordered(mode: Upsert, values: Sequence[str]) -> Column:
    """The change before has the same sequence, lies elsewhere in Kafka, and does not say the same.

    Without history only the newest sequence of a key matters: the table does not have the others. A delete says nothing
    but its keys: the end of a span in the table is one whose other columns are not known.

    Args:
        values: The columns that say something.
    """
    from pyspark.sql import functions as F

    before = F.col("_kdi_before")
    matters = F.col(SEQUENCE) == F.col("_kdi_newest") if mode.scd_type == 1 else F.lit(True)
    elsewhere = ~F.coalesce(before[AT]["partition"] == F.col(f"{AT}.partition"), F.lit(False))
    now = F.to_json(F.struct(*(F.col(f"`{c}`") for c in values)), EXACT_JSON)
    then = F.to_json(F.struct(*(before[c].alias(c) for c in values)), EXACT_JSON)
    says, said = (F.when(~deletes, json) for deletes, json in ((F.col(DELETES), now), (before[DELETES], then)))
    return matters & (before[SEQUENCE] == F.col(SEQUENCE)) & elsewhere & ~says.eqNullSafe(said)


def _states(ordered: DataFrame, mode: Upsert) -> DataFrame:
    """The rows of the table that ordered changes make."""
    from pyspark.sql import functions as F

    ordered = _with_carried_values(ordered, mode) if CARRIED in ordered.columns else ordered
    working = [c for c in ordered.columns if c.startswith("_kdi_") and c != DELETES]
    if mode.scd_type == 1:
        return ordered.where(f"_kdi_last AND NOT {DELETES}").drop(*working, DELETES)
    # Of changes with one sequence the last one counts; no time is between them.
    spans = ordered.where(f"_kdi_last OR _kdi_next <> {SEQUENCE}")
    spans = spans.withColumn(TO, F.col("_kdi_next")).withColumnRenamed(SEQUENCE, FROM)
    return spans.where(f"NOT {DELETES}").drop(*working, DELETES)


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


def counts_of(change: TableChange, table: str) -> ChangeCounts:
    """What was counted while the rows were computed.

    Raises:
        NullKeys: New changes have a null key or sequence.
    """
    if change.counted is None:
        return ChangeCounts()
    found = change.counted.get
    if found["unnamed"]:
        raise NullKeys(table=table, rows=int(found["unnamed"]))
    unknown = int(change.unknown.get["rows"]) if change.unknown else 0
    return ChangeCounts(int(found["new"]), int(found["late"]), unknown)
