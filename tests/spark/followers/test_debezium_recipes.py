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

from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.follow.refine.row_errors import NullKeys
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


def arrived(lakeside: Lakeside, table: str, ddl: str, *records: dict[str, Any]) -> None:
    """The records as messages of one topic partition, drained."""
    lines = [
        (json.dumps({**record, "kafka": {"partition": 0, "offset": offset}}),) for offset, record in enumerate(records)
    ]
    text = lakeside.spark.createDataFrame(lines, "line string")
    found = lakeside.spark.read.schema(f"{ddl}, {PLACE}").json(text.rdd.map(lambda row: row["line"]))
    found.write.format("delta").mode("append").save(lakeside.uri(table))


def upserted(table: str, sql: str, **mode: str) -> RefinedTableSpec:
    fields = {"upsert": {"keys": ["id"], "envelope": "debezium", **mode}}
    return refined_table(**{"table": "silver/t", "from": table, "partition_by": None, "sql": sql, "mode": fields})


def test_a_document_of_mongodb_that_is_gone_before_its_update_is_read_keeps_its_row_until_its_delete(
    lakeside: Lakeside,
) -> None:
    """Purpose: the connector asks MongoDB for the document of an update, which may be deleted by then.
    Procedure: documents as drivers of typed languages write them, with longs; an update without `after`; its delete.
    Pass: no row of nulls; longs are numbers.
    """

    def sent(op: str, number: int, place: int, after: str | None, **more: Any) -> dict[str, Any]:
        source = {"connector": "mongodb", "ts_ms": 1_795_168_800_000, "ord": place, "collection": "visitors"}
        key = json.dumps({"id": json.dumps({"$oid": f"{number:024x}"})})
        return {"op": op, "before": None, "after": after, "source": source, "message_key": key, **more}

    def document(number: int, visits: object) -> str:
        return json.dumps({"_id": {"$oid": f"{number:024x}"}, "name": f"name {number}", "visits": visits})

    updated = {"removedFields": None, "updatedFields": '{"visits": {"$numberLong": "4294967297"}}'}
    records = [
        sent("r", 1, 1, document(1, 3)),
        sent("c", 2, 2, document(2, {"$numberLong": "4294967296"})),
        sent("u", 2, 3, None, updateDescription=updated),
        sent("u", 1, 4, document(1, None)),
        sent("d", 2, 5, None),
    ]
    ddl = "op string, before string, after string, source struct<ts_ms: bigint, ord: int>, message_key string"
    table = upserted("bronze/visitor_changes", STATEMENTS[1], sequence_by=ROWS["MongoDB"])
    rows = []
    for portion in (records[:3], records[3:]):
        arrived(lakeside, "bronze/visitor_changes", ddl, *portion)
        lakeside.refine(table)
        rows.append(sorted((dict(row)["name"], dict(row)["visits"]) for row in lakeside.rows(table.table)))

    assert rows == [[("name 1", 3), ("name 2", 4_294_967_296)], [("name 1", None)]]


def test_the_pages_sql_reads_the_rows_of_maxwell(lakeside: Lakeside) -> None:
    """Purpose: Maxwell says of an update only what the changed columns were, and of a delete what the row was.
    Procedure: rows of a bootstrap and after it; updates of a column, to null, of the key; deletes.
    Pass: the rows of the database.
    """

    def sent(type_: str, data: dict[str, Any], **more: Any) -> dict[str, Any]:
        common = {"database": "shop", "table": "customers", "ts": 1_795_168_800, "xid": 7, "commit": True}
        return {**common, "type": type_, "data": data, **more}

    arrived(
        lakeside,
        "bronze/customer_changes",
        "type string, data struct<id: bigint, name: string>, old struct<id: bigint, name: string>, ts bigint",
        sent("bootstrap-start", {}),
        *(sent("bootstrap-insert", {"id": n, "name": f"name {n}"}) for n in (1, 2, 3)),
        sent("bootstrap-complete", {}),
        sent("insert", {"id": 4, "name": "name 4"}, position="mysql-bin.000007:1096"),
        sent("update", {"id": 1, "name": None}, old={"name": "name 1"}),
        sent("update", {"id": 20, "name": "name 2"}, old={"id": 2}),
        sent("delete", {"id": 3, "name": "name 3"}),
        sent("update", {"id": 3, "name": "name 4"}, old={"id": 4}),
    )
    table = upserted("bronze/customer_changes", STATEMENTS[2])

    lakeside.refine(table)

    found = sorted((dict(row)["id"], dict(row)["name"]) for row in lakeside.rows(table.table))
    assert found == [(1, None), (3, "name 4"), (20, "name 2")]


def test_the_pages_sql_reads_the_operations_of_goldengate(lakeside: Lakeside) -> None:
    """Purpose: an update may come without `before`, or with one without columns; positions are texts of twenty digits.
    Procedure: operations that arrive in another order than that of the trail; an update of the key; then a truncation.
    Pass: the rows of the database; the truncation is refused.
    """

    def sent(op: str, pos: int, **images: Any) -> dict[str, Any]:
        at = {"op_ts": "2026-11-20 10:00:00.000000", "current_ts": "2026-11-20T10:00:01.000000"}
        return {"table": "SHOP.CUSTOMERS", "op_type": op, **at, "pos": f"{pos:020}", **images}

    operations = [
        sent("U", 9_999_999_999, before={}, after={"id": 1, "name": "newest"}),
        sent("I", 999, after={"id": 1, "name": "first"}),
        sent("I", 1_000, after={"id": 2, "name": "moves"}),
        sent("U", 10_000, before={"id": 2, "name": "moves"}, after={"id": 3, "name": "moved"}),
        sent("I", 10_001, after={"id": 4, "name": "gone"}),
        sent("D", 10_002, before={"id": 4, "name": "gone"}),
    ]
    row = "struct<id: bigint, name: string>"
    ddl = f"op_type string, pos string, before {row}, after {row}"
    order = {"sequence_by": "CAST(pos AS DECIMAL(38, 0))"}
    assert f"`sequence_by: {order['sequence_by']}`" in PAGE
    arrived(lakeside, "bronze/customer_changes", ddl, *operations)
    table = upserted("bronze/customer_changes", STATEMENTS[3], **order)

    lakeside.refine(table)
    lakeside.append([("T", f"{10_003:020}", None, None, (0, 6))], "bronze/customer_changes", f"{ddl}, {PLACE}")
    with pytest.raises(NullKeys, match="truncation"):
        lakeside.refine(table)

    found = sorted((dict(row)["id"], dict(row)["name"]) for row in lakeside.rows(table.table))
    assert found == [(1, "newest"), (3, "moved")]


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
    sent = [{**content, "message_key": ""} for content in contents]
    arrived(lakeside, stream.table, f"{stream.record_ddl}, message_key string", *sent)

    lakeside.refine(table)

    silver = lakeside.spark.read.format("delta").load(lakeside.uri(table.table))
    columns = silver.select("id", "source_carried", "source_Sequence", "sequence").orderBy("id")
    assert [tuple(row) for row in columns.collect()] == [(n, f"c{n}", n * 10, 1) for n in range(3)]
    assert "# The table has a column carried of its own: that of the source is source_carried." in text
