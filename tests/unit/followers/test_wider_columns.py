"""Which types of columns have all values of others: frozen rows are cast to these alone."""

from __future__ import annotations

import pytest
from pyspark.sql import types as t

from kdi_assets.follow.refine.columns import are_only_wider

NESTED = t.StructType([t.StructField("x", t.IntegerType()), t.StructField("y", t.FloatType())])
WIDER = t.StructType([t.StructField("x", t.LongType()), t.StructField("y", t.DoubleType())])
OTHER_ORDER = t.StructType([t.StructField("y", t.FloatType()), t.StructField("x", t.IntegerType())])


def of(kind: t.DataType, *more: str) -> t.StructType:
    return t.StructType([t.StructField("n", kind), *(t.StructField(name, t.DateType()) for name in ("date", *more))])


@pytest.mark.parametrize(
    ("before", "now", "wider"),
    [
        (t.ByteType(), t.LongType(), True),
        (t.LongType(), t.IntegerType(), False),
        (t.LongType(), t.DoubleType(), False),
        (t.IntegerType(), t.StringType(), False),
        (t.FloatType(), t.DoubleType(), True),
        (t.DecimalType(10, 2), t.DecimalType(12, 4), True),
        (t.DecimalType(10, 2), t.DecimalType(10, 4), False),
        (t.DecimalType(10, 2), t.DecimalType(12, 1), False),
        (NESTED, WIDER, True),
        (t.ArrayType(NESTED), t.ArrayType(WIDER), True),
        (NESTED, OTHER_ORDER, False),
        (NESTED, t.StructType(NESTED.fields[:1]), False),
    ],
    ids=str,
)
def test_a_type_is_wider_if_it_has_all_values_of_the_other_one(
    before: t.DataType, now: t.DataType, wider: bool
) -> None:
    assert are_only_wider(of(now), of(before)) == wider


def test_a_column_more_or_less_is_no_wider_type() -> None:
    kind = t.LongType()

    assert are_only_wider(of(kind), of(kind))
    assert not are_only_wider(of(kind, "more"), of(kind))
    assert not are_only_wider(of(kind), of(kind, "more"))
