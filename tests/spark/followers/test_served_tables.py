"""Served tables: a database follows a Delta table, version by version, whatever happens to either of them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from shutil import copytree

import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.served_table import Postgres
from kdi_assets.follow.serve.errors import KeysNotUnique, RowsDisagree, ServedFromElsewhere
from tests.tables.served import ROWS, ServedDelta

pytestmark = pytest.mark.usefixtures("interpreted_module")
Steps = list[tuple[list[str], tuple[str, int, int]]]
"""Statements, and the kind, upserts and deletes of the run after them."""


@pytest.mark.core
def test_a_database_follows_several_versions_and_a_restore_and_a_second_run_finds_nothing(numbers: ServedDelta) -> None:
    """Pass: after a load, three versions at once, and a RESTORE the rows are those of the Delta table."""
    several = [
        "INSERT INTO {t} VALUES (100, 1, 'a\"b,c')",
        "UPDATE {t} SET id = 500 WHERE id = 50",
        "DELETE FROM {t} WHERE id BETWEEN 90 AND 94",
    ]
    steps: Steps = [
        ([], ("load", 100, 0)),
        (several, ("changes", 2, 6)),
        # A RESTORE changes the rows of the files that it takes back: one of two.
        (["RESTORE {t} TO VERSION AS OF 1"], ("changes", 50, 2)),
        ([], ("nothing", 0, 0)),
    ]

    for statements, expected in steps:
        assert _served_after(numbers, statements) == expected, statements


def test_a_database_follows_every_kind_of_change(numbers: ServedDelta) -> None:
    """Pass: new rows, updates with deletes, a key that moves, a row that comes again, one that came and went, an
    OPTIMIZE; the counts are those of the changes alone.
    """
    steps: Steps = [
        ([], ("load", 100, 0)),
        (["INSERT INTO {t} VALUES (100, 1, 'a\"b,c'), (101, NULL, ''), (102, 3, 'x\n\\.\ny\tz')"], ("changes", 3, 0)),
        (["UPDATE {t} SET n = -n WHERE id < 10", "DELETE FROM {t} WHERE id BETWEEN 90 AND 94"], ("changes", 10, 5)),
        (["UPDATE {t} SET id = 500 WHERE id = 50"], ("changes", 1, 1)),
        (["DELETE FROM {t} WHERE id = 7", "INSERT INTO {t} VALUES (7, 70, 'again')"], ("changes", 1, 0)),
        (["INSERT INTO {t} VALUES (900, 1, 'gone')", "DELETE FROM {t} WHERE id = 900"], ("changes", 0, 0)),
        (["OPTIMIZE {t}"], ("nothing", 0, 0)),
    ]

    for statements, expected in steps:
        assert _served_after(numbers, statements) == expected, statements


def _served_after(numbers: ServedDelta, statements: list[str]) -> tuple[str, int, int]:
    """Kind, upserts and deletes of the run after the statements; its rows are those of the Delta table."""
    for statement in statements:
        numbers.sql(statement)
    report = numbers.serve()
    numbers.assert_served()
    return report.kind, report.upserted, report.deleted


def test_two_rows_with_one_key_are_refused_also_when_all_rows_are_compared(numbers: ServedDelta) -> None:
    """Pass: the database keeps its rows, and a second comparison does not give the other row."""
    numbers.serve()
    before = numbers.rows()
    numbers.sql("INSERT INTO {t} VALUES (1, -1, 'twice')")

    for _ in range(2):
        with pytest.raises(KeysNotUnique):
            numbers.serve(rebuild=True)

    assert numbers.rows() == before


def test_a_new_column_is_added_and_columns_of_the_document_are_the_only_ones(
    spark: SparkSession, lake: str, url: str
) -> None:
    served = ServedDelta.create(spark, lake, url)
    chosen = ServedDelta(spark, lake, url, served.served)
    served.sql(ROWS % 10)
    served.serve()
    served.sql("ALTER TABLE {t} ADD COLUMN price decimal(10, 2)")
    served.sql("UPDATE {t} SET price = 1.5 WHERE id = 3")

    report = served.serve()

    assert report.columns_added == ("price",)
    served.assert_served()
    types = "SELECT format_type(atttypid, atttypmod) AS type FROM pg_attribute WHERE attname = 'price' AND attnum > 0"
    assert {row["type"] for row in served.query(types)} == {"numeric(10,2)"}
    object.__setattr__(chosen.served, "columns", ("id", "price"))
    report = chosen.serve()
    assert (report.kind, report.why) == ("load", "the document has other keys or columns")
    assert chosen.rows()[(3,)] == {"id": 3, "price": Decimal("1.50")}


def test_a_delta_table_that_was_renamed_is_followed_and_another_one_is_compared(numbers: ServedDelta) -> None:
    """Pass: the renamed one is read by its changes; another one at a new path is told from a changed document."""
    numbers.serve()
    renamed = replace(numbers, served=replace(numbers.served, table="gold/renamed"))
    other = replace(numbers, served=replace(numbers.served, table="gold/other"))
    Path(numbers.uri).rename(renamed.uri)
    renamed.sql("INSERT INTO {t} VALUES (100, 1, 'new')")
    copytree(renamed.uri, other.uri)
    other.sql("CREATE OR REPLACE TABLE {t} USING delta AS SELECT * FROM {t}")

    followed, again = renamed.serve(), renamed.serve()
    compared = other.serve()

    assert (followed.kind, followed.upserted, again.kind) == ("changes", 1, "nothing")
    assert (compared.kind, compared.why) == ("difference", "the Delta table was replaced by another one")
    other.assert_served()


def test_a_key_that_had_two_rows_between_two_runs_does_not_keep_the_wrong_one(numbers: ServedDelta) -> None:
    """The last change of the key removes its old row, and the changes do not tell which row stayed."""
    numbers.serve()
    numbers.sql("INSERT INTO {t} VALUES (5, 500, 'new')")
    numbers.sql("DELETE FROM {t} WHERE id = 5 AND n = 5")
    numbers.sql("INSERT INTO {t} VALUES (1000, 0, 'came')")
    numbers.sql("DELETE FROM {t} WHERE id = 1000")  # a key that came and went is nothing to mend

    with pytest.raises(RowsDisagree, match="0 keys had to have a row to delete, and 1 did"):
        numbers.serve()

    assert numbers.serve(rebuild=True).kind == "difference"
    numbers.assert_served()


def test_without_a_change_feed_or_after_lost_history_all_rows_are_compared(
    spark: SparkSession, lake: str, url: str
) -> None:
    """Pass: only rows that differ are written; views on the table and rights stay."""
    numbers = ServedDelta.create(spark, lake, url, feed=False)
    numbers.sql(ROWS % 100)
    numbers.serve()
    numbers.query("CREATE VIEW test.small AS SELECT * FROM {t} WHERE id < 10")
    numbers.sql("UPDATE {t} SET n = 0 WHERE id < 5")
    numbers.sql("DELETE FROM {t} WHERE id > 95")

    report = numbers.serve()

    assert (report.kind, report.upserted, report.deleted) == ("difference", 4, 4)
    assert "no change feed" in report.why
    numbers.assert_served()
    numbers.sql("CREATE OR REPLACE TABLE {t} USING delta AS SELECT id, id * 2 AS n, 'x' AS name FROM range(20)")
    report = numbers.serve()
    assert (report.kind, report.why) == ("difference", "the Delta table was replaced by another one")
    assert numbers.query("SELECT count(*) AS rows FROM test.small") == [{"rows": 10}]
    numbers.assert_served()


def test_a_restore_to_other_columns_replaces_the_table(numbers: ServedDelta) -> None:
    numbers.sql("ALTER TABLE {t} ADD COLUMN more int")
    numbers.serve()
    numbers.sql("RESTORE {t} TO VERSION AS OF 1")

    report = numbers.serve()

    assert report.kind == "load"
    numbers.assert_served()


def test_several_tables_of_a_schema_are_apart(numbers: ServedDelta, spark: SparkSession, lake: str, url: str) -> None:
    other = ServedDelta.create(spark, lake, url, table="gold/others")
    object.__setattr__(other.served, "into", Postgres(table="others", schema="test", url=url))
    other.sql(ROWS % 7)

    numbers.serve()
    other.serve()

    assert (len(numbers.rows()), len(other.rows())) == (100, 7)
    assert len(numbers.query("SELECT FROM test.kdi_served")) == 2


def test_rows_of_another_environment_are_replaced_by_a_rebuild_only(
    numbers: ServedDelta, spark: SparkSession, lake: str, url: str
) -> None:
    """Procedure: two lakes have a table at one path and one database; a row as older releases left it is no refusal."""
    numbers.serve()
    other = ServedDelta.create(spark, f"{lake}/staging", url)
    other.sql(ROWS % 7)

    with pytest.raises(ServedFromElsewhere):
        other.serve()
    numbers.assert_served()
    assert other.serve(rebuild=True).kind == "difference"
    other.assert_served()
    other.query("UPDATE test.kdi_served SET source = 'gold/numbers'")
    assert numbers.serve().kind == "difference"
    numbers.assert_served()
