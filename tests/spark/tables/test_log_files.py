"""The files of a table by its log are those that Delta itself lists, at each version."""

from __future__ import annotations

import json
import shutil
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.delta.files import TableAt
from kdi_assets.delta.log import TableLog
from kdi_assets.delta.log_files import files_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

D1, D2 = date(2026, 1, 1), date(2026, 1, 2)


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A table with dates, updates, deletes by vectors, an OPTIMIZE, a RESTORE, and checkpoints between."""
    uri = str(tmp_path_factory.mktemp("lake") / "table")
    properties = "'delta.checkpointInterval' = '4', 'delta.enableRowTracking' = 'true'"
    spark.sql(f"""CREATE TABLE delta.`{uri}` (id BIGINT, host STRING, date DATE) USING delta PARTITIONED BY (date)
        TBLPROPERTIES ({properties}, 'delta.enableChangeDataFeed' = 'true')""")
    for first in (0, 100, 200):
        _append(spark, uri, first)
    spark.sql(f"ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    for statement in (
        "DELETE FROM {table} WHERE id % 10 = 3",
        "DELETE FROM {table} WHERE id % 10 = 4",  # the same files get other vectors
        "UPDATE {table} SET host = 'other' WHERE id = 7",
        "OPTIMIZE {table} WHERE date = DATE'2026-01-01'",
        "RESTORE {table} TO VERSION AS OF 5",
        "DELETE FROM {table} WHERE date = DATE'2026-01-02'",
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "ALTER TABLE {table} RENAME COLUMN host TO name",
    ):
        spark.sql(statement.format(table=f"delta.`{uri}`"))
    return uri


def _append(spark: SparkSession, uri: str, first: int) -> None:
    dates = f"IF(id % 2 = 0, DATE'{D1}', DATE'{D2}') AS date"
    rows = spark.range(first, first + 100).selectExpr("id", "concat('host ', id) AS host", dates)
    rows.repartition(2).write.format("delta").mode("append").partitionBy("date").save(uri)


def _same_form(add: dict[str, Any]) -> str:
    return json.dumps({name: value for name, value in add.items() if value not in (None, {})}, sort_keys=True)


def test_the_files_and_their_vectors_are_deltas_at_every_version(spark: SparkSession, table: str) -> None:
    newest = TableLog.existing(table).version
    assert {f.name for f in Path(table, "_delta_log").glob("*.checkpoint.parquet")} and newest >= 12

    for version in range(newest + 1):
        at = TableAt.open(spark, table, version)
        delta = [json.loads(add.json())["add"] for add in at.snapshot.allFiles().collectAsList()]
        ours = [json.loads(add.json())["add"] for add in at.files()]

        assert files_at(table, version) is not None
        assert sorted(map(_same_form, ours)) == sorted(map(_same_form, delta)), f"version {version}"


def test_files_are_chosen_by_date(spark: SparkSession, table: str) -> None:
    at = TableAt.open(spark, table, 3)

    (chosen,) = {str(add.path()).partition("/")[0] for add in at.files_of_dates([D1])}

    assert chosen == f"date={D1}"
    assert at.files_of_dates([]) == ()
    assert sorted(r.id for r in at.rows_of(at.files_of_dates([D1])).collect()) == list(range(0, 300, 2))


def test_files_are_chosen_by_date_where_files_have_other_names_for_columns(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "mapped")
    spark.sql(f"""CREATE TABLE delta.`{uri}` (id BIGINT, host STRING, date DATE) USING delta PARTITIONED BY (date)
        TBLPROPERTIES ('delta.columnMapping.mode' = 'name')""")
    _append(spark, uri, 0)
    at = TableAt.open(spark, uri, 1)

    assert "date" not in str(at.files()[0].json())
    assert sorted(r.id for r in at.rows_of(at.files_of_dates([D1])).collect()) == list(range(0, 100, 2))


def test_files_are_chosen_by_name(spark: SparkSession, table: str) -> None:
    at = TableAt.open(spark, table, 3)
    wanted = [str(add.path()) for add in at.files()][1:3]

    found = at.files_named([path.rpartition("/")[2] for path in wanted])

    assert sorted(str(add.path()) for add in found) == sorted(wanted)


def test_rows_that_a_vector_hides_stay_hidden(spark: SparkSession, table: str) -> None:
    at = TableAt.open(spark, table, 6)

    ids = [row.id for row in at.rows_of(at.files()).collect()]

    assert sorted(ids) == [n for n in range(300) if n % 10 not in (3, 4)]


def test_what_this_reader_cannot_tell_is_left_to_delta(spark: SparkSession, table: str, tmp_path: Path) -> None:
    """A torn or damaged checkpoint, one in parts, and a missing commit: ``None``, and the files are Delta's."""
    uri = str(tmp_path / "table")
    shutil.copytree(table, uri)
    log = Path(uri, "_delta_log")
    whole, part = (log / f"{4:020}.checkpoint.{name}parquet" for name in ("", "0000000001.0000000001."))
    content = whole.read_bytes()

    whole.write_bytes(content[:-20])
    assert files_at(uri, 5) is None

    whole.write_bytes(content[:4] + bytes(200) + content[204:])
    assert files_at(uri, 5) is None

    whole.unlink()
    part.write_bytes(content)
    assert files_at(uri, 5) is None
    at = TableAt.open(spark, uri, 5)
    assert len(at.files()) == at.snapshot.allFiles().count() > 0

    (log / f"{2:020}.json").unlink()
    assert files_at(uri, 3) is None


def test_paths_with_signs_are_as_the_log_has_them(spark: SparkSession, tmp_path: Path) -> None:
    uri = str(tmp_path / "table with space")
    rows = spark.sql("SELECT 'a b/%c' AS host, 1 AS id")
    rows.write.format("delta").partitionBy("host").save(uri)
    at = TableAt.open(spark, uri, 0)

    (ours,), (delta,) = at.files(), at.snapshot.allFiles().collectAsList()

    assert str(ours.path()) == str(delta.path()) and "%" in str(ours.path())
    assert at.rows_of([ours]).collect()[0].host == "a b/%c"
