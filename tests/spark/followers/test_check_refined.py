"""`kdi check` of refined tables: mistakes in SQL are found over the columns that upstream tables have, or will have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from kdi_assets.cli.documents.check import check

DOCUMENTS = """type: kdi_assets.components.KafkaCluster
attributes: {name: main, bootstrap_servers: "localhost:9092"}
---
type: kdi_assets.components.TopicTable
attributes: {topic: web, table: bronze/web, schema: "id bigint, host string, at string", date: to_date(at)}
---
type: kdi_assets.components.RefinedTable
attributes:
  table: silver/web
  from: bronze/web
  sql: SELECT date, id, host FROM web
  mode: {upsert: {keys: [id], sequence_by: id}}
  partition_by: null
  expectations: {known: {sql: host IS NOT NULL}}
---
type: kdi_assets.components.RefinedTable
attributes:
  table: gold/daily
  from: silver/web
  mode: {aggregate: {by: [date, host], measures: {ids: {count_distinct: id}, last: {max: sequence}}}}
---
type: kdi_assets.components.RefinedTable
attributes:
  table: gold/joined
  from: [gold/daily, {table: made/elsewhere, as: other}]
  sql: SELECT d.date, d.ids, o.name FROM daily d JOIN other o ON o.host = d.host
  mode: replace_dates
"""


@pytest.fixture(autouse=True)
def _table_without_a_document(one_jvm: None, spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDI_LAKE", lake)
    spark.createDataFrame([], "host string, name string").write.format("delta").save(f"{lake}/made/elsewhere")


def checked(folder: Path, text: str) -> Result:
    folder.mkdir(exist_ok=True)
    (folder / "defs.yaml").write_text(text, encoding="utf-8")
    app = typer.Typer()
    app.command()(check)
    return CliRunner().invoke(app, ["--defs", str(folder)])


def test_sql_over_tables_that_are_not_there_yet_is_checked_by_the_documents(tmp_path: Path) -> None:
    result = checked(tmp_path / "defs", DOCUMENTS)

    assert (result.exit_code, result.stdout) == (0, "streams: 1, refined tables: 3, mistakes: 0\n"), result.stdout


def test_a_table_that_is_read_by_its_path_is_a_mistake(tmp_path: Path, lake: str) -> None:
    """Nothing that is new in it would ever arrive."""
    text = DOCUMENTS.replace("JOIN other o", f"JOIN delta.`{lake}/made/elsewhere` o")

    result = checked(tmp_path / "defs", text)

    assert (result.exit_code, "[TABLE_OR_VIEW_NOT_FOUND]" in result.stdout) == (1, True), result.stdout


@pytest.mark.parametrize("sequence", ["source.lsn", "struct(source.ts_ms, source.lsn)"])
def test_the_sequence_of_an_envelope_is_one_of_the_messages(tmp_path: Path, sequence: str) -> None:
    document = f"""type: kdi_assets.components.TopicTable
attributes:
  topic: changes
  table: bronze/changes
  schema: "after struct<id: bigint>, op string, source struct<lsn: bigint, ts_ms: bigint>"
  date: to_date(kafka.timestamp)
---
type: kdi_assets.components.RefinedTable
attributes:
  table: silver/rows
  from: bronze/changes
  mode: {{upsert: {{keys: [id], envelope: debezium, sequence_by: "{sequence}"}}}}
  partition_by: null
"""
    cluster = "\n".join(DOCUMENTS.splitlines()[:3])

    right = checked(tmp_path / "defs", f"{cluster}\n{document}")
    wrong = checked(tmp_path / "defs", f"{cluster}\n{document.replace('source.lsn', 'source.scn')}")

    assert right.exit_code == 0, right.stdout
    assert (wrong.exit_code, "scn" in wrong.stdout) == (1, True), wrong.stdout


@pytest.mark.core
@pytest.mark.parametrize(
    ("right", "wrong", "line", "field", "said"),
    [
        ("SELECT date, id, host", "SELECT date, id, hots", 11, "sql", "`hots`"),
        ("FROM web", "FROM wbe", 11, "sql", "`wbe`"),
        ("sequence_by: id", "sequence_by: di", 12, "mode.upsert.sequence_by", "`di`"),
        ("sequence_by: id", "sequence_by: id DESC", 12, "mode.upsert.sequence_by", "[PARSE_SYNTAX_ERROR]"),
        ("sequence_by: id", "sequence_by: 'id DESC, host'", 12, "mode.upsert.sequence_by", "[PARSE_SYNTAX_ERROR]"),
        ("max: sequence", "max: DISTINCT sequence", 20, "mode.aggregate.measures.last", "[PARSE_SYNTAX_ERROR]"),
        ("count_distinct: id", "count_distinct: 'id, host'", 20, "mode.aggregate.measures.ids", "[PARSE_SYNTAX_ERROR]"),
        ("keys: [id]", "keys: [key]", 12, "mode.upsert.keys.0", "`key`"),
        ("host IS NOT NULL", "host IS NOT NUL", 14, "expectations.known", "NUL"),
        ("by: [date, host]", "by: [date, hots]", 20, "mode.aggregate.by.1", "`hots`"),
        ("count_distinct: id", "count_distinct: idd", 20, "mode.aggregate.measures.ids", "`idd`"),
        ("max: sequence", "max: sequel", 20, "mode.aggregate.measures.last", "`sequel`"),
        ("max: sequence", "max: now()", 20, "mode.aggregate.measures.last", "it asks the clock"),
        ("SELECT date, id, host", "SELECT date, id, now() AS host", 11, "sql", "it asks the clock"),
        ("o.name", "o.nmae", 26, "sql", "nmae"),
        ("d.ids, o.name", "d.ids + 1, o.name", 26, "sql", "Delta stores no column called '(ids + 1)'"),
        ("d.ids, o.name", "d.ids, o.name, struct(1 AS `a b`) AS s", 26, "sql", "Delta stores no column called 's.a b'"),
        ("d.ids, o.name", "d.ids, o.name, d.host AS NAME", 26, "sql", "two columns are called 'NAME'"),
        ("id, host FROM web", "id, host, host AS HOST FROM web", 12, "mode", "[AMBIGUOUS_REFERENCE]"),
        ("max: sequence", "sum: date", 20, "mode", "[DATATYPE_MISMATCH"),
        ("last: {", "la=st: {", 20, "mode", "Delta stores no column called 'la=st'"),
        (
            "table: made/elsewhere",
            "table: made/elsewhre",
            25,
            "from",
            "no table lies there; known: bronze/web",
        ),
        (
            "SELECT date, id, host FROM web",
            "SELECT DISTINCT date, id, host FROM web",
            12,
            "mode",
            "takes new rows one by one",
        ),
        (
            "SELECT date, id, host FROM web",
            "SELECT date, id, host, 1 AS sequence FROM web",
            12,
            "mode",
            "mode upsert makes a column of this name",
        ),
    ],
)
def test_a_mistake_is_found_before_anything_runs(
    tmp_path: Path, right: str, wrong: str, line: int, field: str, said: str
) -> None:
    assert DOCUMENTS.count(right) == 1

    result = checked(tmp_path / "defs", DOCUMENTS.replace(right, wrong))

    first, *_ = result.stdout.splitlines()
    place, _, message = first.partition(" ")
    assert result.exit_code == 1
    assert place.endswith(f"defs.yaml:{line}") and message.startswith(f"{field}: "), result.stdout
    assert said in message


def test_names_that_delta_stores_by_column_mapping_are_no_mistake(tmp_path: Path) -> None:
    mapped = DOCUMENTS.replace("o.name", "o.name AS `a b`") + "  properties: {delta.columnMapping.mode: name}\n"

    result = checked(tmp_path / "defs", mapped)

    assert (result.exit_code, result.stdout) == (0, "streams: 1, refined tables: 3, mistakes: 0\n"), result.stdout


def test_columns_are_traced_to_the_upstream_tables(lake: str, spark: SparkSession) -> None:
    from kdi_assets.follow.refine.refine import refine
    from kdi_assets.operate.monitoring.refined_lineage import refined_lineage
    from tests.refined import Lakeside, refined_table

    side = Lakeside(spark, lake)
    side.append([(1, "a", 2, "i", None)])
    side.append([("a", "A")], "bronze/names", "host string, name string")
    query = (
        "WITH named AS (SELECT e.id, upper(n.name) AS name, e.bytes FROM events e JOIN names n ON n.host = e.host) "
        "SELECT id, concat(name, id) AS label, bytes * 8 AS bits, 1 AS one FROM named"
    )
    fields: dict[str, Any] = {"mode": "replace_dates", "partition_by": None}
    table = refined_table(table="gold/labels", **{"from": ["bronze/events", "bronze/names"]}, sql=query, **fields)
    refine(table, lake=lake, session=lambda: spark)

    lineage = refined_lineage(table, lake, lambda: spark)

    assert lineage == {
        "id": [("bronze/events", "id")],
        "label": [("bronze/events", "id"), ("bronze/names", "name")],
        "bits": [("bronze/events", "bytes")],
    }
