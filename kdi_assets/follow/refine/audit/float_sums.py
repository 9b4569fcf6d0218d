"""Sums of floating-point numbers: the order of additions decides their last digits, so a recomputation has others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.documents.model.refined_modes import Aggregate
from kdi_assets.follow.refine.columns import one_value

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_ROUNDING = "pow(2D, -51)"
"""Two sums of n numbers differ by at most n times 2^-52 times the sum of their absolute values. Twice that is allowed,
because the sum of the absolute values is rounded too."""


def float_sums(mode: Aggregate, schema: StructType) -> dict[str, str]:
    """The columns that have rounded sums, and how far two computations of the same rows may be apart.

    Args:
        schema: Of the refined table.

    Returns:
        By column, Spark SQL of a double, an aggregate over the rows of a group.
    """
    doubles = {f.name for f in schema.fields if f.dataType.typeName() == "double"}
    found = {}
    for name, measure in mode.measures.items():
        of = one_value(measure.of)
        apart = f"(count({of}) * {_ROUNDING} * sum(abs(CAST({of} AS double))))"
        if measure.function == "sum" and name in doubles:
            found[name] = apart
        elif measure.function == "avg" and f"{name}_sum" in doubles:
            # The quotient is rounded once more in each computation.
            found |= {f"{name}_sum": apart, name: f"try_divide(2 * {apart}, count({of}))"}
    return found
