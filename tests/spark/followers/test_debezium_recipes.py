"""What the page and `kdi new` say of other sources, and of values in another form, is right as it is written."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kdi_assets.tools.scaffold.changes import SEQUENCES
from kdi_assets.tools.scaffold.connect_schema import decimal_of, read_value
from tests.conftest import CHECKOUT
from tests.formats.sampled import proposed, read_back, text_of
from tests.refined import Lakeside, refined_table

PAGE = (CHECKOUT / "docs" / "refined-tables.md").read_text().split("### Values in another form")[1].split("### ")[0]
STATEMENTS = re.findall(r"^```sql\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
ROWS = dict(re.findall(r"^\| ([A-Z][\w, ]+) \| `([^`]+)`", PAGE, re.MULTILINE))
PLACE = "kafka struct<partition: int, offset: bigint>"
CHANGES = "bronze/customer_changes"


def in_base64(number: int) -> str:
    """As Connect's JSON has the unscaled value of a decimal: the fewest bytes of a two's complement."""
    return base64.b64encode(number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)).decode()


@pytest.mark.parametrize(("digits", "scale"), [(1, 0), (9, 9), (12, 2), (18, 0), (19, 3), (38, 0), (38, 20), (38, 38)])
def test_decimals_are_read_from_their_bytes(spark: SparkSession, digits: int, scale: int) -> None:
    random = Random(f"{digits} {scale}")
    most = 10**digits - 1
    numbers = {0, 1, -1, 127, 128, -128, -129, 255, 256, most, -most, 2**63, -(2**63), 2**64, -(2**64) - 1}
    numbers |= {random.choice([-1, 1]) * random.randrange(10 ** random.randint(0, digits)) for _ in range(300)}
    values = [(in_base64(number), f"{number}E-{scale}") for number in sorted(numbers) if abs(number) <= most]
    rows = spark.createDataFrame(values, "sent string, value string")

    wrong = rows.where(f"NOT ({decimal_of('sent', digits, scale)} <=> CAST(value AS DECIMAL({digits}, {scale})))")

    assert wrong.collect() == []


@pytest.mark.parametrize(
    ("schema", "kind", "sent", "value"),
    [
        ({"name": "io.debezium.time.Date"}, "int", 20777, date(2026, 11, 20)),
        ({"name": "org.apache.kafka.connect.data.Date"}, "int", -1, date(1969, 12, 31)),
        ({"name": "io.debezium.time.Timestamp"}, "bigint", 1_795_168_800_123, "2026-11-20 10:00:00.123"),
        ({"name": "org.apache.kafka.connect.data.Timestamp"}, "bigint", -1, "1969-12-31 23:59:59.999"),
        ({"name": "io.debezium.time.MicroTimestamp"}, "bigint", 1_795_168_800_123_456, "2026-11-20 10:00:00.123456"),
        ({"name": "io.debezium.time.NanoTimestamp"}, "bigint", 1_795_168_800_123_456_789, "2026-11-20 10:00:00.123456"),
        ({"name": "io.debezium.time.Time"}, "int", 86_399_999, "23:59:59.999"),
        ({"name": "io.debezium.time.MicroTime"}, "bigint", 86_399_999_999, "23:59:59.999999"),
        ({"name": "io.debezium.time.NanoTime"}, "bigint", 1_000, "00:00:00.000001"),
        ({"name": "org.apache.kafka.connect.data.Time"}, "int", 0, "00:00:00.000"),
        ({"type": "bytes"}, "string", "AP8=", b"\x00\xff"),
    ],
)
def test_values_become_what_they_stand_for(
    spark: SparkSession, schema: dict[str, str], kind: str, sent: Any, value: Any
) -> None:
    sql = read_value(schema, "sent")
    found = spark.createDataFrame([(sent,), (None,)], f"sent {kind}").selectExpr(f"{sql} AS value")
    if found.dtypes[0][1] == "timestamp":
        found = found.selectExpr("CAST(value AS STRING) AS value")

    assert [row["value"] for row in found.collect()] == [value, None]


@pytest.mark.parametrize("zone", ["Asia/Kolkata", "America/New_York"])
def test_a_time_of_day_is_the_same_in_each_zone(spark: SparkSession, zone: str) -> None:
    rows = spark.createDataFrame([(36_000_000,)], "sent int")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        (found,) = rows.selectExpr(read_value({"name": "io.debezium.time.Time"}, "sent")).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))

    assert found[0] == "10:00:00.000"


def test_what_the_page_says_of_sources_is_what_is_proposed() -> None:
    connectors = {"PostgreSQL": "postgresql", "MySQL, MariaDB": "mysql", "SQL Server": "sqlserver", "Oracle": "oracle"}

    assert {name: sql for name, sql in ROWS.items() if name in connectors} == {
        name: SEQUENCES[connector].format("source") for name, connector in connectors.items()
    }
    assert SEQUENCES["mariadb"] == SEQUENCES["mysql"]


@pytest.mark.parametrize(
    ("source", "columns", "older", "newer"),
    [
        ("PostgreSQL", "lsn bigint", (9,), (10,)),
        ("MySQL, MariaDB", "file string, pos bigint", ("mysql-bin.999999", 800), ("mysql-bin.1000000", 4)),
        ("SQL Server", "commit_lsn string, change_lsn string", ("00000027:00000758:0005", None),
         ("00000027:00000ac0:0002", "00000027:00000ab8:0001")),
        ("Oracle", "scn string", ("9999998",), ("10000002",)),
        ("MongoDB", "ts_ms bigint, ord int", (1_000, 2), (1_000, 3)),
    ],
)  # fmt: skip
def test_a_sequence_orders_the_changes_of_its_source(
    lakeside: Lakeside, source: str, columns: str, older: Sequence[Any], newer: Sequence[Any]
) -> None:
    """Pass: an older change that arrives later loses."""
    schema = f"op string, after struct<id: bigint, name: string>, source struct<{columns}>, {PLACE}"
    mode = {"keys": ["id"], "envelope": "debezium", "sequence_by": ROWS[source]}
    names = refined_table(**{"table": "silver/names", "from": CHANGES, "partition_by": None, "mode": {"upsert": mode}})
    for offset, (name, sequence) in enumerate((("newer", newer), ("older", older))):
        lakeside.append([("u", (1, name), tuple(sequence), (offset, 0))], CHANGES, schema)
        lakeside.refine(names)

    assert [dict(row)["name"] for row in lakeside.rows("silver/names")] == ["newer"]


def test_the_pages_sql_gives_the_values_of_a_relational_source(lakeside: Lakeside) -> None:
    row = "struct<id: bigint, born: int, seen_at: bigint>"
    schema = f"op string, before {row}, after {row}, source struct<lsn: bigint>, message_key string, {PLACE}"
    seen = 1_795_168_800_123_456
    lakeside.append([("c", None, (n, 20777, seen), (n,), f'{{"id": {n}}}', (0, n)) for n in (1, 2)], CHANGES, schema)
    lakeside.append([("d", None, None, (3,), '{"id": 2}', (0, 3))], CHANGES, schema)
    mode = {"keys": ["id"], "envelope": "debezium", "sequence_by": ROWS["PostgreSQL"]}
    customers = refined_table(
        **{"table": "silver/c", "from": CHANGES, "partition_by": None, "sql": STATEMENTS[0], "mode": {"upsert": mode}}
    )

    lakeside.refine(customers)

    (found,) = map(dict, lakeside.rows("silver/c"))
    at = datetime(2026, 11, 20, 10, 0, 0, 123456, UTC)
    assert (found["id"], found["born"], found["seen_at"]) == (1, date(2026, 11, 20), at)


def test_the_pages_sql_reads_the_documents_of_mongodb(lakeside: Lakeside) -> None:
    visitors = "bronze/visitor_changes"
    schema = f"op string, after string, source struct<ts_ms: bigint, ord: int>, message_key string, {PLACE}"
    keys = [f'{{"id":"{{\\"$oid\\":\\"{n}\\"}}"}}' for n in (1, 2)]
    for place, (op, after, key) in enumerate(
        [
            ("c", '{"_id": {"$oid": "1"}, "name": "a", "visits": 1}', keys[0]),
            ("c", '{"_id": {"$oid": "2"}, "name": "b", "visits": 1}', keys[1]),
            ("u", '{"_id": {"$oid": "1"}, "name": "a", "visits": 2}', keys[0]),
            ("d", None, keys[1]),
        ]
    ):
        lakeside.append([(op, after, (1_000, place), key, (0, place))], visitors, schema)
    mode = {"keys": ["id"], "envelope": "debezium", "sequence_by": ROWS["MongoDB"]}
    table = refined_table(
        **{"table": "silver/v", "from": visitors, "partition_by": None, "sql": STATEMENTS[1], "mode": {"upsert": mode}}
    )

    lakeside.refine(table)

    (found,) = map(dict, lakeside.rows("silver/v"))
    assert (found["id"], found["name"], found["visits"]) == ('{"$oid":"1"}', "a", 2)


def test_columns_of_the_source_that_are_called_like_those_of_the_table_get_other_names(
    lakeside: Lakeside, tmp_path: Path
) -> None:
    """Pass: what `kdi new` writes is a right table as it is; the comment names the column."""
    source = {"connector": "postgresql", "lsn": 1, "ts_ms": 1_795_168_800_000}
    contents = [
        {"op": "c", "before": None, "after": {"id": n, "carried": f"c{n}", "Sequence": n * 10}, "source": source}
        for n in range(3)
    ]
    keys = [json.dumps({"id": n}).encode() for n in range(3)]
    text = text_of(proposed([json.dumps(content).encode() for content in contents], keys=keys))
    folder = read_back(tmp_path, text)
    (stream,), (table,) = folder.streams.values(), folder.refined.values()
    kafka = "message_key string, kafka struct<partition: int, offset: bigint>"
    rows = [
        {**content, "message_key": "", "kafka": {"partition": 0, "offset": n}} for n, content in enumerate(contents)
    ]
    schema = f"{stream.record_ddl}, {kafka}"
    lines = lakeside.spark.createDataFrame([(json.dumps(row),) for row in rows], "line string")
    found = lakeside.spark.read.schema(schema).json(lines.rdd.map(lambda row: row["line"]))
    found.write.format("delta").save(lakeside.uri(stream.table))

    lakeside.refine(table)

    silver = lakeside.spark.read.format("delta").load(lakeside.uri(table.table))
    columns = silver.select("id", "source_carried", "source_Sequence", "sequence").orderBy("id")
    assert [tuple(row) for row in columns.collect()] == [(n, f"c{n}", n * 10, 1) for n in range(3)]
    assert "# The table has a column carried of its own: that of the source is source_carried." in text
