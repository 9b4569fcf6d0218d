"""`kdi sql` runs one statement with Delta, and shows rows or what Spark refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from kdi_assets.cli.app import app_for
from kdi_assets.cli.errors import QueryInterrupted, StatementFailed, StatementInterrupted, StatementRefused
from kdi_assets.errors import AGAIN, KdiError

pytestmark = pytest.mark.usefixtures("one_jvm")


def run(statement: str, *options: str) -> Result:
    return CliRunner().invoke(app_for(()), ["sql", statement, *options])


def test_a_property_of_a_table_is_set_and_shown(spark: SparkSession, tmp_path: Path) -> None:
    table = f"delta.`{tmp_path / 'orders'}`"
    spark.range(2).write.format("delta").save(str(tmp_path / "orders"))

    changed = run(f'ALTER TABLE {table} SET TBLPROPERTIES (delta.deletedFileRetentionDuration = "interval 9 days")')
    shown = run(f"SHOW TBLPROPERTIES {table} (delta.deletedFileRetentionDuration)", "--json")

    assert (changed.exit_code, shown.exit_code) == (0, 0)
    assert json.loads(shown.stdout)["value"] == "interval 9 days"


def test_rows_are_a_table_of_text_in_which_nothing_controls_the_terminal() -> None:
    shown = run("SELECT id, named_struct('a', id) AS id, '\\u001b[2J' AS text FROM range(2)")

    assert shown.stdout.splitlines() == ["id  id   text", "0   {0}  \\x1b[2J", "1   {1}  \\x1b[2J"]


def test_programs_get_raw_values_and_every_column() -> None:
    columns = "7 AS id, named_struct('a', true) AS id, CAST(NULL AS int) AS none, 2.5D AS id_2, array(1) AS ID"

    shown = run(f"SELECT {columns}", "--json")

    assert json.loads(shown.stdout) == {"id": 7, "id_2_": {"a": True}, "none": None, "id_2": 2.5, "ID_5": [1]}


def test_json_has_every_digit() -> None:
    shown = run("SELECT 12345678901234567.891BD AS d, TIMESTAMP_NTZ'2026-01-02 03:04:05.123456' AS t", "--json")

    assert shown.stdout == '{"d":12345678901234567.891,"t":"2026-01-02T03:04:05.123456"}\n'


def test_a_long_result_says_that_it_is_cut() -> None:
    shown = run("SELECT id FROM range(1001)")

    assert len(shown.stdout.splitlines()) == 1001
    assert "the first 1,000 rows" in shown.stderr


@pytest.mark.parametrize("statement", ["SELEC 1", "SELECT nothing", "SELECT * FROM delta.`/nowhere`", "DROP nothing"])
def test_what_spark_refuses_is_said_in_one_line(statement: str) -> None:
    refused = run(statement)

    assert isinstance(refused.exception, StatementRefused)
    assert "\n" not in refused.exception.message_parts()[0]


def test_a_value_that_does_not_fit_is_for_someone_to_decide() -> None:
    failed = run("SELECT CAST(text AS int) FROM (SELECT concat('x', id) AS text FROM range(2))")

    assert isinstance(failed.exception, StatementFailed)
    assert "CAST_INVALID_INPUT" in failed.exception.detail


def test_rows_that_break_a_constraint_leave_the_table_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    table = f"delta.`{tmp_path / 'orders'}`"
    spark.range(1, 3).write.format("delta").save(str(tmp_path / "orders"))
    assert run(f"ALTER TABLE {table} ADD CONSTRAINT positive CHECK (id > 0)").exit_code == 0

    failed = run(f"INSERT INTO {table} SELECT id FROM range(2)")

    assert isinstance(failed.exception, StatementFailed)
    assert spark.read.format("delta").load(str(tmp_path / "orders")).count() == 2


@pytest.mark.parametrize(
    ("statement", "error", "run_next"),
    [("USE default", StatementInterrupted, "DESCRIBE HISTORY"), ("SELECT 1", QueryInterrupted, AGAIN)],
)
def test_of_what_may_pass_it_is_said_whether_the_statement_may_be_committed(
    monkeypatch: pytest.MonkeyPatch, statement: str, error: type[KdiError], run_next: str
) -> None:
    def reset(*_: object, **__: object) -> None:
        raise OSError("connection reset by peer")

    monkeypatch.setattr("kdi_assets.cli.operate.sql._print_rows", reset)

    interrupted = run(statement)

    assert isinstance(interrupted.exception, error)
    assert run_next in interrupted.exception.message_parts()[2]
