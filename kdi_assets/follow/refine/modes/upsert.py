"""Upsert: rows are changes of what their keys name; the table has the newest state (SCD 1) or all states (SCD 2).

Of two changes of one key the one with the higher sequence is newer; of two with the same sequence, the later one in
Kafka. Where neither decides, the run refuses. So the table keeps the sequence of each row and its place in Kafka.

A change that arrives late must find what came after it, deletes included. So a table beside this one keeps the keys and
sequences of deletes. A delete is a fact of the upstream table: it may be recorded before the commit that consumes it,
and recording it twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from kdi_assets.delta.internals import bytes_of
from kdi_assets.documents.model.refined_modes import Upsert
from kdi_assets.follow.refine.columns import (
    AT,
    CARRIED,
    FROM,
    SEQUENCE,
    TO,
    HasOtherColumns,
    kept_columns,
    one_value,
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
from kdi_assets.follow.refine.inputs import Inputs, is_small
from kdi_assets.follow.refine.modes.states import (
    DELETES,
    IS_NEW,
    LATE,
    TOUCHED,
    has_null_key,
    ordered_changes,
    rows_of_states,
    states_of,
    states_of_all,
)
from kdi_assets.follow.refine.read import computed_once, in_one_task, with_keys
from kdi_assets.follow.refine.row_counts import RowCounts
from kdi_assets.follow.refine.row_errors import NullKeys
from kdi_assets.follow.refine.table_change import (
    NEW,
    OLD,
    ChangeCounts,
    RowsOfFiles,
    RowsOfKeys,
    TableChange,
    WholeTable,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_LATE, _NEW, _WITHOUT_KEY = 1, 2, 4
"""Bits of the kinds of changes that are counted."""


def upsert_change(inputs: Inputs, mode: Upsert, deletes: DataFrame | None) -> tuple[TableChange, DataFrame]:
    """What a refinement changes, and the deletes to record before its commit.

    Args:
        deletes: Keys, ``sequence`` and place of the deletes that are recorded; ``None``: none are.

    Returns:
        The change; and the changes that were read, of which ``deletes_of`` gives the deletes.

    Raises:
        HasOtherColumns: The changes have other columns than the rows of the table.
    """
    if inputs.plan.kind == "rebuild":
        changes = changes_of(inputs.all_rows(), mode)
        return TableChange(states_of_all(changes, mode), WholeTable()), changes
    unique = (*mode.keys, FROM) if mode.scd_type == 2 else mode.keys
    if not inputs.only_added:
        touched = computed_once(changes_of(inputs.touched_rows(), mode).select(*mode.keys).distinct())
        changes = computed_once(changes_of(with_keys(inputs.all_rows(), touched, mode.keys), mode))
        replaces = RowsOfKeys(touched, unique, inputs.files_with(touched))
        return TableChange(states_of_all(changes, mode), replaces), changes
    new = changes_of(inputs.new_rows(), mode)
    # To read few rows for each part of one query is cheaper than a job that keeps them.
    new = new if inputs.small_enough and not can_delete(mode) else computed_once(new)
    return _merged(inputs, mode, deletes, new), new


def _merged(inputs: Inputs, mode: Upsert, deletes: DataFrame | None, new: DataFrame) -> TableChange:
    """New changes, and the rows of their keys, in one order. All rows of few files are ordered, without a join."""
    from pyspark.sql import functions as F

    keys = new.select(*mode.keys).distinct()
    files = inputs.files_with(keys)
    rows, all_of_files = inputs.rows_in(files), is_small(map(bytes_of, files))
    held = in_one_task(rows) if all_of_files else with_keys(rows, keys, mode.keys)
    if other := other_columns(new.drop(DELETES).schema, _without_ends(held, mode).schema):
        raise HasOtherColumns(", ".join(other))
    known = _known_changes(held, deletes if deletes is None else with_keys(deletes, keys, mode.keys), new, mode)
    both = known.withColumn(IS_NEW, F.lit(False)).unionByName(
        new.withColumn(IS_NEW, F.lit(True)), allowMissingColumns=True
    )
    # Not the recorded deletes as well: nothing bounds their size.
    both = in_one_task(both) if all_of_files and inputs.small_enough and deletes is None else both
    counted = RowCounts(rows.sparkSession)
    facts = {_LATE: LATE, _NEW: IS_NEW, _WITHOUT_KEY: f"{IS_NEW} AND ({has_null_key(mode)})"}
    bits = " + ".join(f"IF({fact}, {bit}L, 0L)" for bit, fact in facts.items())
    ordered = counted.counting(ordered_changes(both, mode), bits)
    states, unknown = _counting_unknown_values(states_of(ordered, mode), mode)
    row = F.struct(*(F.col(f"`{column}`") for column in held.columns))
    form = F.when(~F.col(TOUCHED), F.col(OLD)).when(~F.col(DELETES), row)
    forms = states.select(OLD, form.alias(NEW))
    if not all_of_files:
        kept = with_keys(rows, keys, mode.keys, others=True)
        forms = forms.unionByName(kept.select(row.alias(OLD), row.alias(NEW)))
    changed = rows_of_states(states.where(TOUCHED))
    return TableChange(changed, RowsOfFiles(forms, files), counted=counted, unknown=unknown)


def can_delete(mode: Upsert) -> bool:
    """Whether a change can be a delete."""
    return bool(mode.apply_as_deletes or mode.envelope)


def _counting_unknown_values(states: DataFrame, mode: Upsert) -> tuple[DataFrame, RowCounts | None]:
    """Count the newest rows that have a value which no message had, under 1; ``None`` if no row can have one."""
    if CARRIED not in states.columns:
        return states, None
    unknown = RowCounts(states.sparkSession)
    now = f"{TOUCHED} AND NOT {DELETES}" + ("" if mode.scd_type == 1 else f" AND {TO} IS NULL")
    lacks = f"coalesce(exists(map_values({CARRIED}), change -> change IS NULL), false)"
    return unknown.counting(states, f"IF({now} AND {lacks}, 1L, NULL)"), unknown


def newest_states(rows: DataFrame, mode: Upsert) -> DataFrame:
    """The rows of the table that a rebuild makes of all rows of the query; lazy, and without any side effect."""
    return states_of_all(changes_of(rows, mode), mode)


def changes_of(rows: DataFrame, mode: Upsert) -> DataFrame:
    """The kept columns of each change, ``sequence``, its place in Kafka, and whether it deletes.

    Returns:
        Of Debezium's changes also ``carried: map<string, struct<sequence, sequence_at>>``: by column that the change
        does not have the value of, the change that the value is of; here null, because it is unknown yet.
    """
    from pyspark.sql import functions as F

    deletes = F.expr(f"coalesce({one_value(mode.apply_as_deletes)}, false)") if mode.apply_as_deletes else F.lit(False)
    sequence, at = F.expr(ordering(rows, mode.sequence_by)), coordinates_of(rows)
    if CHANGE_SEQUENCE in rows.columns:
        deletes, sequence, at = F.col(CHANGE_DELETES), F.col(CHANGE_SEQUENCE), F.col(CHANGE_AT)
    made = {SEQUENCE if mode.scd_type == 2 or sequence_column(mode) == SEQUENCE else "", AT}
    kept = [F.col(f"`{c}`") for c in kept_columns(rows.columns, mode) if c not in made]
    columns = [*kept, _without_nulls(sequence, rows).alias(SEQUENCE), at.alias(AT), deletes.alias(DELETES)]
    if UNCHANGED not in rows.columns:
        return rows.select(*columns)
    changes = rows.select(*columns, UNCHANGED)
    kind = dict(changes.dtypes)
    nothing = F.lit(None).cast(f"struct<sequence: {kind[SEQUENCE]}, sequence_at: {kind[AT]}>")
    unknown = F.map_from_arrays(F.col(UNCHANGED), F.transform(UNCHANGED, lambda _: nothing))
    return changes.withColumn(CARRIED, unknown).drop(UNCHANGED)


def _without_nulls(sequence: Column, rows: DataFrame) -> Column:
    """The sequence; null if a field of it is, which would come before all others and lose to them without a word."""
    from pyspark.sql import functions as F

    (column,) = rows.select(sequence).schema.fields
    known = list(_known(sequence, column.dataType))
    return F.when(reduce(and_, known), sequence) if len(known) > 1 else sequence


def _known(value: Column, kind: DataType) -> Iterator[Column]:
    """Whether a value is known, and each field in it."""
    from pyspark.sql.types import StructType

    yield value.isNotNull()
    for field in kind.fields if isinstance(kind, StructType) else ():
        yield from _known(value[field.name], field.dataType)


def deletes_of(changes: DataFrame, mode: Upsert) -> DataFrame:
    """Keys, ``sequence`` and place of the deletes among some changes."""
    return changes.where(DELETES).select(*mode.keys, SEQUENCE, AT).distinct()


def _known_changes(rows: DataFrame, deletes: DataFrame | None, like: DataFrame, mode: Upsert) -> DataFrame:
    """The changes that made the rows of the table, beside these rows; and the deletes that are known of them."""
    from pyspark.sql import functions as F

    old = rows.select("*", F.struct("*").alias(OLD), F.lit(False).alias(DELETES))
    known = _without_ends(old, mode).select(*like.columns, OLD)
    if mode.scd_type == 2:
        proven = _proven_deletes(rows, mode)
        if deletes is not None:  # a recorded one has its place as well
            proven = with_keys(proven, deletes.select(*mode.keys, SEQUENCE), (*mode.keys, SEQUENCE), others=True)
        known = known.unionByName(_as_changes(proven, like), allowMissingColumns=True)
    return known if deletes is None else known.unionByName(_as_changes(deletes, like), allowMissingColumns=True)


def _without_ends(rows: DataFrame, mode: Upsert) -> DataFrame:
    """The rows of the table with the columns of changes."""
    return rows.drop(TO).withColumnRenamed(FROM, SEQUENCE) if mode.scd_type == 2 else rows


def _proven_deletes(rows: DataFrame, mode: Upsert) -> DataFrame:
    """Keys and ``sequence`` of the deletes that ended spans: no span begins there. They may be forgotten otherwise.

    Args:
        rows: All rows of the keys that change. Of others perhaps only some: what is found of these is not used.
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


def counts_of(change: TableChange, table: str) -> ChangeCounts:
    """What was counted while the rows were computed.

    Raises:
        NullKeys: New changes have a null key or sequence.
    """
    if change.counted is None:
        return ChangeCounts()
    found = change.counted.by_kind()
    late, new, without_key = (
        sum(rows for bits, rows in found.items() if bits & bit) for bit in (_LATE, _NEW, _WITHOUT_KEY)
    )
    if without_key:
        raise NullKeys(table=table, rows=without_key)
    unknown = change.unknown.by_kind().get(1, 0) if change.unknown else 0
    return ChangeCounts(new, late, unknown)
