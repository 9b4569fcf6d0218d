"""What the ledger records of an erasure's condition: its columns and operators, and no value."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from kdi_assets.operate.erase.selection import without_values

PERSON = "Ada"


@pytest.mark.parametrize(
    ("condition", "recorded"),
    [
        ("person = 'Ada'", "(person = ?)"),
        ("person = 'O''Brien, Ada' AND id IN (4711, 4.5e3)", "((person = ?) AND (id IN (?, ?)))"),
        ('note LIKE "%a\\"Ada%"', "note LIKE ?"),
        ("day2 = DATE'2026-01-01'", "(day2 = DATE ?)"),
        ("kafka.offset BETWEEN 10 AND 20L", "between(kafka.offset, ?, ?)"),
        ("person = 'A' -- of Ada", "(person = ?)"),
        ("person = /* 'Ada */ 'b'", "(person = ?)"),
        ("`it's` = 'Ada' OR `b'` = 'x'", "((`it's` = ?) OR (`b'` = ?))"),
        (r"person = r'Ada\'", "(person = ?)"),
        (r"person = '\'Ada'", "(person = ?)"),
        ("key = X'416461'", "(key = X?)"),
        ("exists(people, p -> p.name = 'Ada')", "exists(people, lambdafunction((p.name = ?), p))"),
        ("", ""),
    ],
)
def test_the_record_of_an_erasure_has_no_value_of_its_condition(
    spark: SparkSession, condition: str, recorded: str
) -> None:
    said = without_values(condition, spark)

    assert PERSON not in said and "416461" not in said
    assert said == recorded
