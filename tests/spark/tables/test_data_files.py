"""Data files that the kernel writes are those of Delta's own write, byte for byte, and so are their statistics."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from kdi_assets.delta import transaction
from kdi_assets.delta.internals import as_json, log_with_own_writer, start_transaction
from kdi_assets.delta.transaction import Staged, delta_log, send_commit, stage_rows
from kdi_assets.runtime.spark import changed_settings
from kdi_assets.runtime.spark_internals import jvm_session, jvm_view, listed, scala_map
from tests.readers import assert_others_read_tables_of

ROWS = 30_000
SMALL_PAGES = {"parquet.page.size": "4096", "parquet.dictionary.page.size": "4096"}
SMALL_ROW_GROUPS = {**SMALL_PAGES, "parquet.block.size": "65536"}


def random(seed: int) -> Callable[[str, int], str]:
    """A number from 0 to ``of`` - 1 by the row and the salt: an expression that gives the same in both writes."""
    return lambda salt, of: f"pmod(xxhash64(id, {seed}, '{salt}'), {of})"


def all_types(spark: SparkSession, seed: int, *, rows: int = ROWS) -> DataFrame:
    """Rows of every type of a table's columns, with nulls, empty values and values that repeat more or less often."""
    r = random(seed)
    text = f"concat('value ', repeat('é', int({r('n', 20)})), {r('v', 3000)})"
    columns = {
        "few": f"concat('', {r('a', 7)})",
        "many": f"concat('text ', {r('b', 1 << 40)})",
        "more_and_more": f"concat('text ', {r('c', 100_000)} * int(id / {rows // 8}))",
        "equal_for_javas_hash": f"concat(IF({r('d', 2)} = 0, 'Aa', 'BB'), IF({r('e', 2)} = 0, 'Aa', 'BB'))",
        "empty": f"IF({r('f', 3)} = 0, '', IF({r('f', 3)} = 1, NULL, {text}))",
        "nothing": "CAST(NULL AS string)",
        "rare": f"IF({r('g', 1000)} = 0, {text}, NULL)",
        "raw": f"IF({r('h', 5)} = 0, NULL, unhex(substring(md5(concat({r('i', 900)})), 1, 2 * int({r('j', 16)}))))",
        "flag": f"IF({r('k', 3)} = 0, NULL, {r('k', 3)} = 1)",
        "tiny": f"CAST({r('l', 100)} AS tinyint)",
        "small": f"CAST({r('m', 10_000)} AS smallint)",
        "whole": f"CAST({r('o', 50_000)} AS int)",
        "large": f"xxhash64(id, {seed})",
        "single": f"CAST({r('p', 1000)} / 7 AS float)",
        "double": f"IF({r('q', 50)} = 0, double('NaN'), {r('q', 5000)} / 7D)",
        "price": f"CAST({r('r', 100_000)} / 100 AS decimal(9, 2))",
        "amount": f"CAST({r('s', 1 << 40)} / 10000 AS decimal(18, 4))",
        "exact": f"CAST({r('t', 1 << 40)} AS decimal(38, 10)) / 7",
        "day": f"date_add(DATE'1969-12-01', int({r('u', 20_000)}))",
        "at": f"timestamp_micros({r('w', 1 << 50)})",
        "local": f"CAST(timestamp_micros({r('x', 1 << 50)}) AS timestamp_ntz)",
        "place": f"IF({r('y', 9)} = 0, NULL, named_struct('city', concat('', {r('z', 40)}), 'street', {text}))",
        "tags": f"IF({r('0', 9)} = 0, NULL, transform(sequence(1, int({r('1', 4)})), i -> concat(i * {r('2', 70)})))",
        "items": f"transform(array(1, 2), i -> named_struct('name', {text}, 'parts', array('', concat('', i))))",
        "by_name": f"map(concat('k', {r('3', 30)}), array({text}, NULL))",
    }
    numbered = spark.range(0, rows, 1, 2)
    return numbered.selectExpr(
        *(f"{sql} AS {name}" for name, sql in columns.items()),
        f"date_add(DATE'2026-01-01', int({r('date', 3)})) AS date",
    )


def by_delta(spark: SparkSession, rows: DataFrame, uri: str, **options: Any) -> Staged:
    """The same write with Delta's own log."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(transaction, "log_with_own_writer", lambda _, log: log)
        return stage_rows(spark, rows, uri, **options)


def written(staged: Staged, uri: str) -> list[tuple[str, bytes]]:
    """What is in the log and on the disk for each file, but for its name and its time."""
    found = []
    for add in (as_json(action)["add"] for action in listed(staged.actions)):
        content = (Path(uri) / add.pop("path")).read_bytes()
        add.pop("modificationTime")
        found.append((json.dumps({**add, "stats": json.loads(add["stats"])}, sort_keys=True), content))
    return sorted(found)


def table_for(rows: DataFrame, uri: str, **properties: str) -> str:
    rows.limit(0).write.format("delta").partitionBy("date").options(**properties).save(uri)
    return uri


def assert_equal_files(spark: SparkSession, rows: DataFrame, uri: str, **options: Any) -> list[bytes]:
    ours, deltas = (written(write(spark, rows, uri, **options), uri) for write in (stage_rows, by_delta))
    assert [log for log, _ in ours] == [log for log, _ in deltas]
    assert [content for _, content in ours] == [content for _, content in deltas]
    return [content for _, content in ours]


@pytest.mark.parametrize("parquet", [{}, SMALL_PAGES, SMALL_ROW_GROUPS], ids=["default", "pages", "row groups"])
def test_files_and_statistics_are_those_of_deltas_write(
    spark: SparkSession, lake: str, parquet: Mapping[str, str]
) -> None:
    """Purpose: the kernel's dictionary numbers, sizes and gives up as Parquet's; any difference is in the bytes.
    Procedure: columns of all types, of few and of many values; pages and row groups as by default, and many small ones.
    """
    rows = all_types(spark, seed := 20261129 + len(parquet))
    uri = table_for(rows, f"{lake}/all")

    with changed_settings(spark, parquet):
        files = assert_equal_files(spark, rows, uri)

    footers = [pq.read_metadata(pa.BufferReader(content)) for content in files]
    assert len(files) == 6, f"two tasks, three dates; seed {seed}"
    assert any(footer.num_row_groups > 1 for footer in footers) == ("parquet.block.size" in parquet)
    assert "PLAIN_DICTIONARY" in encodings(footers[0])["few"]
    assert "PLAIN_DICTIONARY" not in encodings(footers[0])["many"]


def encodings(footer: pq.FileMetaData) -> dict[str, set[str]]:
    group = footer.row_group(0)
    columns = (group.column(i) for i in range(group.num_columns))
    return {column.path_in_schema: set(column.encodings) for column in columns}


def test_a_dictionary_that_becomes_too_large_in_the_middle_of_a_column_is_given_up(
    spark: SparkSession, lake: str
) -> None:
    """Purpose: pages before it keep their numbers, and the dictionary page has just the values that these use."""
    first_few_then_many = spark.range(0, 90_000, 1, 1).selectExpr(
        "IF(id < 30000, concat('value ', id % 50), concat('a much longer value than those before it ', id)) AS text",
        "DATE'2026-01-01' AS date",
    )
    uri = table_for(first_few_then_many, f"{lake}/overflow")

    (content,) = assert_equal_files(spark, first_few_then_many, uri)

    assert encodings(pq.read_metadata(pa.BufferReader(content)))["text"] >= {"PLAIN_DICTIONARY", "PLAIN"}
    assert pq.read_table(pa.BufferReader(content))["text"].to_pylist() == [
        r.text for r in first_few_then_many.collect()
    ]


def test_columns_without_a_dictionary_and_files_of_limited_size_are_as_deltas(spark: SparkSession, lake: str) -> None:
    rows = all_types(spark, 7)
    uri = table_for(rows, f"{lake}/all")
    files = transaction.FileSize(shuffled_bytes=1 << 30, max_rows=4_000)

    contents = assert_equal_files(spark, rows.coalesce(1), uri, distinct=("few", "place.city"), files=files)

    assert len(contents) > 6
    for content in contents:
        assert not pq.read_metadata(pa.BufferReader(content)).row_group(0).column(0).has_dictionary_page


def test_what_delta_does_in_a_write_it_still_does(spark: SparkSession, lake: str) -> None:
    """Purpose: names by column mapping, generated columns and constraints are Delta's, whoever writes the file."""
    rows = all_types(spark, 11, rows=2_000)
    mapped = f"{lake}/mapped"
    spark.sql(
        f"CREATE TABLE delta.`{mapped}` (few string, whole int, next int GENERATED ALWAYS AS (whole + 1), date date) "
        "USING delta PARTITIONED BY (date) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    few = rows.select("few", "whole", "date")

    files = assert_equal_files(spark, few, mapped)
    spark.sql(f"ALTER TABLE delta.`{mapped}` ADD CONSTRAINT small CHECK (whole < 10)")

    assert all(
        name.startswith("col-") for content in files for name in encodings(pq.read_metadata(pa.BufferReader(content)))
    )
    with pytest.raises(Exception, match="DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"):
        stage_rows(spark, few, mapped)


def test_other_readers_read_the_files(spark: SparkSession, lake: str) -> None:
    rows = all_types(spark, 5).drop("local")  # delta-rs has no table with times without a zone by default
    uri = table_for(rows, f"{lake}/all")
    with changed_settings(spark, SMALL_PAGES):
        staged = stage_rows(spark, rows, uri)
    send_commit(spark, start_transaction(spark, delta_log(spark, uri)), staged, "")

    found = spark.read.format("delta").load(uri)

    assert found.count() == ROWS
    assert found.drop("by_name").exceptAll(rows.drop("by_name")).isEmpty()
    assert_others_read_tables_of(Path(lake))


SPARK, KERNEL = "org.apache.spark", "kdi.parquet"


@pytest.mark.parametrize(
    ("columns", "parquet", "writer"),
    [
        ("few string, date date", {}, KERNEL),
        ("few string, date date", SMALL_ROW_GROUPS, KERNEL),
        ("few string, date date", {"parquet.enable.dictionary#few": "false"}, KERNEL),
        ("few string, date date", {"parquet.bloom.filter.enabled#few": "true"}, SPARK),
        ("few string, date date", {"parquet.writer.version": "PARQUET_2_0"}, SPARK),
        ("few string, date date", {"parquet.crypto.factory.class": "com.example.Keys"}, SPARK),
        ("few array<struct<any: variant>>, date date", {}, SPARK),
    ],
)
def test_what_the_kernel_does_not_know_is_written_by_spark(
    spark: SparkSession, lake: str, columns: str, parquet: Mapping[str, str], writer: str
) -> None:
    """Purpose: settings of Parquet for a whole session, and types that Spark writes in its own way, stay in force."""
    uri = f"{lake}/few"
    spark.sql(f"CREATE TABLE delta.`{uri}` ({columns}) USING delta PARTITIONED BY (date)")
    log = log_with_own_writer(spark, delta_log(spark, uri))
    snapshot, hadoop = log.unsafeVolatileSnapshot(), jvm_session(spark).sessionState().newHadoopConf()
    for setting, value in parquet.items():
        hadoop.set(setting, value)
    job = jvm_view(spark).org.apache.hadoop.mapreduce.Job.getInstance(hadoop)

    found = log.fileFormat(snapshot.protocol(), snapshot.metadata()).prepareWrite(
        jvm_session(spark), job, scala_map(spark, {}), snapshot.metadata().schema()
    )

    assert str(found.getClass().getName()).startswith(writer)
