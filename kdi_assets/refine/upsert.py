"""Upsert: rows are changes of what their keys name; the table has the newest state (SCD 1) or all states (SCD 2).

A change that arrives late must find what came after it, deletes included. So the table keeps the sequence of each row,
and a table beside it keeps the keys and sequences of deletes. A delete is a fact of the upstream table: it may be
recorded before the commit that consumes it, and recording it twice changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.refine.columns import EXACT_JSON, FROM, SEQUENCE, TO, kept_columns, made_columns, sequence_column
from kdi_assets.refine.inputs import Inputs
from kdi_assets.refine.read import kept_at_hand, with_keys
from kdi_assets.refine.table_change import Everything, OfKeys, TableChange
from kdi_assets.stream.refined_table import Upsert

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELETES, _CONTENT = "_kdi_deletes", "_kdi_content"


def upsert_change(inputs: Inputs, mode: Upsert, deletes: DataFrame | None) -> tuple[TableChange, DataFrame]:
    """What a refinement changes, and the deletes to record before its commit.

    Args:
        deletes: Keys and ``sequence`` of the deletes that are recorded; ``None``: none are.

    Returns:
        The change; and the changes that were read, of which ``deletes_of`` gives the deletes.
    """
    if inputs.plan.kind == "rebuild":
        changes = _changes(inputs.all_rows(), mode)
        return TableChange(_states(changes, mode), Everything()), changes
    unique = (*mode.keys, FROM) if mode.scd_type == 2 else mode.keys
    if not inputs.only_added:
        touched = kept_at_hand(_changes(inputs.touched_rows(), mode).select(*mode.keys).distinct())
        changes = kept_at_hand(_changes(with_keys(inputs.all_rows(), touched, mode.keys), mode))
        replaces = OfKeys(touched, unique, inputs.files_with(touched))
        return TableChange(_states(changes, mode), replaces), changes
    new = kept_at_hand(_changes(inputs.new_rows(), mode))
    keys = new.select(*mode.keys).distinct()
    files = inputs.files_with(keys)
    held = with_keys(inputs.rows_in(files), keys, mode.keys)
    known = _known_changes(held, new, mode)
    if mode.scd_type == 2:
        known = known.unionByName(_as_changes(_proven_deletes(held, mode), new))
    if deletes is not None:
        known = known.unionByName(_as_changes(with_keys(deletes, keys, mode.keys), new))
    return TableChange(_states(known.unionByName(new), mode), OfKeys(keys, unique, files)), new


def newest_states(rows: DataFrame, mode: Upsert) -> DataFrame:
    """The rows of the table that a rebuild makes of all rows of the query; lazy, and without any side effect."""
    return _states(_changes(rows, mode), mode)


def _changes(rows: DataFrame, mode: Upsert) -> DataFrame:
    """The kept columns of each change, ``sequence``, and whether it deletes."""
    from pyspark.sql import functions as F

    made, own = made_columns(mode), sequence_column(mode)
    columns = [F.col(f"`{c}`") for c in kept_columns(rows.columns, mode) if not (c == own and c.lower() in made)]
    deletes = F.expr(f"coalesce({mode.apply_as_deletes}, false)") if mode.apply_as_deletes else F.lit(False)
    return rows.select(*columns, F.expr(mode.sequence_by).alias(SEQUENCE), deletes.alias(DELETES))


def deletes_of(changes: DataFrame, mode: Upsert) -> DataFrame:
    """Keys and ``sequence`` of the deletes among some changes."""
    return changes.where(DELETES).select(*mode.keys, SEQUENCE).distinct()


def _known_changes(rows: DataFrame, like: DataFrame, mode: Upsert) -> DataFrame:
    """The changes that made the rows of the table, without deletes."""
    from pyspark.sql import functions as F

    if mode.scd_type == 2:
        rows = rows.withColumnRenamed(FROM, SEQUENCE)
    return rows.withColumn(DELETES, F.lit(False)).select(*like.columns)


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


def _states(changes: DataFrame, mode: Upsert) -> DataFrame:
    """The rows of the table that some changes make; ``changes`` has all changes of its keys that count."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    content = F.to_json(F.struct(*(F.col(f"`{c}`") for c in changes.columns)), EXACT_JSON)
    # Two changes with the same sequence: a delete wins, else the content decides, so that reruns keep the same one.
    newest_first = (F.col(SEQUENCE).desc(), F.col(DELETES).desc(), F.col(_CONTENT).desc())
    by = (*mode.keys, SEQUENCE) if mode.scd_type == 2 else mode.keys
    number = F.row_number().over(Window.partitionBy(*by).orderBy(*newest_first))
    ranked = changes.withColumn(_CONTENT, content).withColumn("_kdi_number", number)
    of_table = ranked.where("_kdi_number = 1").drop("_kdi_number", _CONTENT)
    if mode.scd_type == 1:
        return of_table.where(f"NOT {DELETES}").drop(DELETES)
    following = F.lead(SEQUENCE).over(Window.partitionBy(*mode.keys).orderBy(SEQUENCE))
    spans = of_table.withColumn(TO, following).withColumnRenamed(SEQUENCE, FROM)
    return spans.where(f"NOT {DELETES}").drop(DELETES)
