"""Which types a column may become, and which one takes what messages hold."""

from __future__ import annotations

import pytest
from pyspark.sql.types import DataType

from kdi_assets.drain.table_schema import widened, widens

pytestmark = pytest.mark.usefixtures("spark")  # it parses the types


@pytest.mark.parametrize(
    ("narrow", "wide", "may"),
    [
        ("tinyint", "bigint", True),
        ("int", "bigint", True),
        ("bigint", "int", False),
        ("int", "int", False),
        ("int", "double", False),
        ("float", "double", True),
        ("date", "timestamp_ntz", True),
        ("date", "timestamp", False),
        ("decimal(4,2)", "decimal(9,3)", True),
        ("decimal(4,2)", "decimal(5,4)", False),
        ("decimal(4,2)", "decimal(4,2)", False),
        ("string", "bigint", False),
    ],
)
def test_only_what_loses_no_value_is_wider(narrow: str, wide: str, may: bool) -> None:
    assert widens(DataType.fromDDL(narrow), DataType.fromDDL(wide)) is may


@pytest.mark.parametrize(
    ("declared", "told", "becomes"),
    [
        ("int", "bigint", "bigint"),
        ("int", "string", "int"),
        ("int", "decimal(20,0)", "int"),
        ("bigint", "decimal(20,0)", "bigint"),
        ("float", "double", "double"),
        ("decimal(4,2)", "decimal(9,3)", "decimal(9,3)"),
        ("decimal(4,2)", "bigint", "decimal(21,2)"),
        ("decimal(30,20)", "decimal(38,0)", "decimal(30,20)"),
        ("array<int>", "array<bigint>", "array<bigint>"),
        ("array<int>", "array<string>", "array<int>"),
        ("array<struct<n: int, s: string>>", "array<struct<n: bigint, x: int>>", "array<struct<n: bigint, s: string>>"),
        ("map<string, int>", "struct<a: bigint>", "map<string, int>"),
    ],
)
def test_a_type_becomes_one_that_takes_its_own_values_and_the_new_ones(declared: str, told: str, becomes: str) -> None:
    found = widened(DataType.fromDDL(declared), DataType.fromDDL(told))

    assert found == DataType.fromDDL(becomes)
    assert found == DataType.fromDDL(declared) or not widens(found, DataType.fromDDL(declared))
