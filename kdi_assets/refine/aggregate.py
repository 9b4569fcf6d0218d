"""Aggregate: groups of rows and their measures; of new rows alone, or of whole groups.

A measure is kept in a form that new rows can be added to: an average as sum and count, a count of distinct values as a
sketch. The measure itself is computed from that form, in the same way whether a group was extended or computed at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.refine.inputs import Inputs, in_dates
from kdi_assets.refine.table_change import Everything, OfDates, OfKeys, TableChange
from kdi_assets.stream.refined_table import MERGEABLE, Aggregate, Function

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STATE: dict[Function, dict[str, tuple[str, str]]] = {
    "count": {"": ("count({of})", "sum({c})")},
    "sum": {"": ("sum({of})", "sum({c})")},
    "min": {"": ("min({of})", "min({c})")},
    "max": {"": ("max({of})", "max({c})")},
    "avg": {"_sum": ("sum({of})", "sum({c})"), "_count": ("count({of})", "sum({c})")},
    "count_distinct": {"": ("count(DISTINCT {of})", "")},
    "approx_count_distinct": {"_sketch": ("hll_sketch_agg({of})", "hll_union_agg({c})")},
}
"""By function and suffix of a column: how it is computed of rows, and how of the same column of parts of a group."""
_OF_STATE: dict[Function, str] = {
    "avg": "try_divide({c}_sum, {c}_count)",
    "approx_count_distinct": "hll_sketch_estimate({c}_sketch)",
}
"""How a measure is computed of its columns, if it is not one of them."""


def aggregate_change(inputs: Inputs, mode: Aggregate) -> TableChange:
    """What a refinement changes in the groups."""
    if inputs.plan.kind == "rebuild":
        return TableChange(groups(inputs.all_rows(), mode), Everything())
    if inputs.plan.kind == "dates":
        return TableChange(groups(inputs.rows_of(inputs.plan.dates), mode), OfDates(inputs.plan.dates))
    if inputs.only_added and all(m.function in MERGEABLE for m in mode.measures.values()):
        return _extended_groups(inputs, mode)
    return _groups_again(inputs, mode)


def groups(rows: DataFrame, mode: Aggregate) -> DataFrame:
    """The groups of some rows: the columns of ``by``, then those of each measure."""
    return _with_measures(_state_of_rows(rows, mode), mode)


def _state_of_rows(rows: DataFrame, mode: Aggregate) -> DataFrame:
    from pyspark.sql import functions as F

    columns = [F.expr(of_rows.format(of=of)).alias(name) for name, of, of_rows, _ in _columns(mode)]
    return rows.groupBy(*mode.by).agg(*columns)


def _with_measures(state: DataFrame, mode: Aggregate) -> DataFrame:
    measured = [
        f"{_OF_STATE[m.function].format(c=name)} AS {name}"
        for name, m in mode.measures.items()
        if m.function in _OF_STATE
    ]
    return state.selectExpr("*", *measured)


def _columns(mode: Aggregate) -> list[tuple[str, str, str, str]]:
    """Of each column that is kept: name, measured expression, how it is computed of rows, how of parts."""
    return [
        (f"{name}{suffix}", measure.of, *how)
        for name, measure in mode.measures.items()
        for suffix, how in _STATE[measure.function].items()
    ]


def _extended_groups(inputs: Inputs, mode: Aggregate) -> TableChange:
    """Add new rows to their groups; no upstream row is read again."""
    from pyspark.sql import functions as F

    added = _state_of_rows(inputs.new_rows(), mode)
    dates = inputs.dates if "date" in mode.by and inputs.table.by_date else None
    kept = inputs.table_rows().where(in_dates(dates) if dates is not None else "true")
    names = [name for name, *_ in _columns(mode)]
    old = with_keys(kept, added, mode.by).select(*mode.by, *names)
    types = dict(kept.dtypes)
    columns = [
        # Of a sum, the sum has a wider type again.
        F.expr(f"CAST({of_parts.format(c=name)} AS {types[name]})").alias(name)
        for name, _, _, of_parts in _columns(mode)
    ]
    parts = old.unionByName(added.select(*mode.by, *names))
    merged = _with_measures(parts.groupBy(*mode.by).agg(*columns), mode)
    return TableChange(merged, OfKeys(added.select(*mode.by), dates))


def _groups_again(inputs: Inputs, mode: Aggregate) -> TableChange:
    """Compute the touched groups of all their upstream rows."""
    touched = inputs.touched_rows().select(*mode.by).distinct()
    dates = inputs.dates if "date" in mode.by and inputs.table.by_date else None
    rows = inputs.rows_of(dates) if dates is not None else inputs.all_rows()
    return TableChange(groups(with_keys(rows, touched, mode.by), mode), OfKeys(touched, dates))


def with_keys(rows: DataFrame, keys: DataFrame, by: tuple[str, ...], *, others: bool = False) -> DataFrame:
    """The rows with some keys, or all others; null equals null.

    Args:
        keys: Has the columns of ``by``; each combination once.
    """
    from pyspark.sql import functions as F

    named = keys.select(*(F.col(f"`{column}`").alias(f"_kdi_key_{i}") for i, column in enumerate(by)))
    same = " AND ".join(f"`{column}` <=> _kdi_key_{i}" for i, column in enumerate(by))
    return rows.join(named, F.expr(same), "left_anti" if others else "left_semi")
