"""Statistics of a new table, and what readers other than Spark find by filters."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import cast

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from kdi_assets.documents.model.message_format import Avro, Csv, Files, Format, Json, Parquet, SchemaFile
from kdi_assets.documents.model.message_rules import Explode
from kdi_assets.streams.rules.table.statistics import columns_with_statistics
from tests.judged import stream_of

COORDINATES = "kafka struct<topic: string, partition: int, offset: bigint, timestamp: timestamp>"
TABLE = (
    "id bigint, s string, small decimal(20,6), tiny decimal(20,7), d double, some struct<f: float, n: int>, "
    f"a array<int>, {COORDINATES}, date date"
)
FORMATS: list[tuple[Format, set[str]]] = [
    (Json(), {"id", "small", "d", "some.f", "some.n"}),
    (Csv(), {"id", "small", "d", "some.f", "some.n"}),
    (Files(Json(), "paths", ("/x",)), {"id", "small", "d", "some.f", "some.n"}),
    (Files(Parquet(), "paths", ("/x",)), {"id", "small", "some.n"}),
    (Avro(SchemaFile("r.avsc", "{}")), {"id", "small", "some.n"}),
]


def _struct(ddl: str) -> StructType:
    return cast(StructType, StructType.fromDDL(ddl))


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("format_", "columns"), FORMATS)
def test_no_statistics_of_what_other_readers_take_for_another_number(format_: Format, columns: set[str]) -> None:
    """Decimals of more than six fraction digits, and binary fractions where they may be NaN."""
    paths = columns_with_statistics(stream_of("", format=format_), _struct(TABLE))

    assert [".".join(p) for p in paths[:3]] == ["kafka.partition", "kafka.offset", "kafka.timestamp"]
    assert {".".join(p) for p in paths[3:]} == columns


@pytest.mark.usefixtures("spark")
def test_nor_of_binary_fractions_that_expressions_make() -> None:
    schema = _struct("d double, e double, some struct<f: float, g: float>, x double, n int")
    columns = {"E": "d / 2", "some.f": "float('NaN')"}
    made = stream_of("", columns=columns, explode=Explode("x", "array(d)"))
    same = stream_of("", columns=columns, explode=Explode("x", "some.xs"))

    found = [[".".join(p) for p in columns_with_statistics(stream, schema)] for stream in (made, same)]

    assert found == [["d", "some.g", "n"], ["d", "some.g", "x", "n"]]


ROWS = """
    SELECT CAST(id AS BIGINT) AS id, CAST(tiny AS DECIMAL(20,8)) AS tiny, CAST(small AS DECIMAL(20,6)) AS small, d
    FROM VALUES (1, 0, 0, 1D), (2, 5, 5, 10D), (3, 0.00000001, 0.000001, double('NaN')) AS t(id, tiny, small, d)
"""


def test_delta_rs_and_duckdb_find_by_filters_what_spark_finds(spark: SparkSession, tmp_path: Path) -> None:
    """Procedure: write a file with 0, with numbers that Delta's log has as 1E-8, and with NaN; ask for greater ones.

    Pass: each reader finds the rows, as Spark does; with statistics of all columns delta-rs finds none.
    """
    rows = spark.sql(ROWS).coalesce(1)
    stream = stream_of("", format=Avro(SchemaFile("r.avsc", "{}")))
    columns = ",".join(".".join(p) for p in columns_with_statistics(stream, rows.schema))
    ours, all_columns = str(tmp_path / "ours"), str(tmp_path / "all")
    rows.write.format("delta").option("delta.dataSkippingStatsColumns", columns).save(ours)
    rows.write.format("delta").save(all_columns)

    def by_delta_rs(uri: str, column: str) -> list[int]:
        value = 5.0 if column == "d" else Decimal(5)
        return sorted(
            DeltaTable(uri).to_pyarrow_table(columns=["id"], filters=[(column, ">=", value)])["id"].to_pylist()
        )

    def by_duckdb(uri: str, column: str) -> list[int]:
        table = DeltaTable(uri).to_pyarrow_dataset()
        with duckdb.connect() as database:
            database.register("t", table)
            found = database.sql(f"SELECT id FROM t WHERE {column} BETWEEN 5 AND 100 ORDER BY id").fetchall()
        return [number for (number,) in found]

    assert columns == "id,small"
    for column in ("tiny", "small", "d"):
        assert (column, by_delta_rs(ours, column), by_duckdb(ours, column)) == (column, [2], [2])
        found = [
            row["id"] for row in spark.read.format("delta").load(ours).where(f"{column} BETWEEN 5 AND 100").collect()
        ]
        assert found == [2]
    assert by_delta_rs(all_columns, "tiny") == by_delta_rs(all_columns, "d") == []
