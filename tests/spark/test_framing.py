"""Frames in Spark SQL: the same verdicts as in Python, and no bytes that end a query."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from kdi_assets.formats.framing import Frame, frame_sql, split_frame
from tests.framed import FRAMES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Parts = tuple[str | None, int | None, bytes | None]


def by_spark(spark: SparkSession, values: list[bytes | None]) -> list[Parts]:
    frame = frame_sql("value")
    messages = spark.createDataFrame([(value,) for value in values], "value binary")
    parts = messages.selectExpr(f"{frame.reason} AS reason", f"{frame.schema_id} AS id", f"{frame.payload} AS payload")
    return [
        (row.reason, None, None) if row.reason or row.payload is None else (row.reason, row.id, bytes(row.payload))
        for row in parts.collect()
    ]


def by_python(value: bytes) -> Parts:
    found = split_frame(value)
    return (None, found.schema_id, found.payload) if isinstance(found, Frame) else (found, None, None)


@pytest.mark.core
def test_each_message_has_its_parts_and_any_bytes_are_judged_as_in_python(
    spark: SparkSession, pytestconfig: pytest.Config
) -> None:
    seed = pytestconfig.getoption("--seed")
    random = Random(seed)
    values = [random.choice((b"", b"\x00", b"\x00\x00")) + random.randbytes(random.randrange(9)) for _ in range(2000)]

    found = by_spark(spark, [*FRAMES, *values])

    assert dict(zip(FRAMES, found, strict=False)) == FRAMES
    differing = [value for value, parts in zip(values, found[len(FRAMES) :], strict=True) if parts != by_python(value)]
    assert differing == [], f"seed {seed}"
