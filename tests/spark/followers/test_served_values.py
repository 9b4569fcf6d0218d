"""Values and rows that a database takes as they are, and those that it cannot hold."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from kdi_assets.errors import KdiError
from kdi_assets.follow.serve.errors import (
    ColumnNotServed,
    DatabaseRefuses,
    KeysNotUnique,
    NullServedKeys,
    ValueNotStorable,
)
from tests.tables.served import ServedDelta

pytestmark = pytest.mark.usefixtures("interpreted_module")


@pytest.mark.parametrize("zone", ["Europe/Zurich", "America/St_Johns", "UTC"])
def test_timestamps_are_the_same_moments_whatever_the_time_zone_of_the_session_is(
    spark: SparkSession, lake: str, url: str, zone: str
) -> None:
    """Purpose: when clocks go back, a local time is two moments; long ago, offsets had seconds.
    Procedure: serve moments around both, alone, in an array and in a struct, by a session in another time zone.
    Pass: PostgreSQL has the microseconds since 1970 that Delta has.
    """
    moments = (1_792_886_399_999_999, 1_792_888_200_000_000, 1_792_891_800_000_001, -62_135_596_800_000_000)
    served = ServedDelta.create(
        spark, lake, url, columns="id bigint, at timestamp, many array<timestamp>, inside struct<at: timestamp>"
    )
    listed = ", ".join(f"({n}L, timestamp_micros({m}L))" for n, m in enumerate(moments))
    served.sql(f"INSERT INTO {{t}} SELECT id, at, array(at), named_struct('at', at) FROM VALUES {listed} AS t(id, at)")

    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        served.serve()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    since = "(extract(epoch FROM %s) * 1000000)::bigint"
    columns = [since % text for text in ("at", "many[1]", "(inside->>'at')::timestamptz")]
    found = served.query(f"SELECT {', '.join(f'{c} AS c{n}' for n, c in enumerate(columns))} FROM {{t}} ORDER BY id")
    assert [tuple(row.values()) for row in found] == [(m, m, m) for m in moments]


def test_values_of_every_type_arrive_as_they_are(spark: SparkSession, lake: str, url: str) -> None:
    """Pass: each value is read back from PostgreSQL as it was, to the microsecond and the last digit, in a load and in
    an upsert; NULL is NULL and empty text is empty text.
    """
    columns = """id bigint, flag boolean, tiny tinyint, small smallint, whole int, ratio float, rate double,
      price decimal(38,10), text string, bytes binary, day date, at timestamp, local timestamp_ntz,
      words array<string>, days array<date>, moments array<timestamp>, blobs array<binary>, sums array<decimal(5,2)>,
      person struct<name: string, born: timestamp, tags: array<string>>, counts map<string, bigint>,
      deep array<array<int>>"""
    values = """SELECT {id}L, true, -128Y, 32767S, -2147483648, float('1.5'), {rate},
      1234567890123456789012345678.0123456789BD, '{{"a",b}}\\\\ \\n"; é 🎈', X'00ff5c', DATE'0001-01-01',
      TIMESTAMP'2026-10-25 01:30:00.123456+02:00', TIMESTAMP_NTZ'2026-10-25 01:30:00.123456',
      array('a"b', NULL, '', 'c\\\\d', '{{}}', 'NULL', ' é,'), array(DATE'2026-01-01', NULL),
      array(TIMESTAMP'2026-01-01T00:00:00.000001Z'), array(X'5c22', X''), array(-1.25BD, NULL),
      named_struct('name', 'Zoë "Z"', 'born', TIMESTAMP'2026-01-01T00:00:00.000001Z', 'tags', array('x', NULL)),
      map('k"', 9007199254740993L, 'none', NULL), array(array(1, 2), array())"""
    served = ServedDelta.create(spark, lake, url, columns=columns)
    served.sql("INSERT INTO {t} " + values.format(id=1, rate="double('0.1')"))
    served.sql("INSERT INTO {t} (id, text) VALUES (2, ''), (3, NULL)")
    served.serve()
    served.sql("INSERT INTO {t} " + values.format(id=4, rate="double('NaN')"))
    served.sql("INSERT INTO {t} " + values.format(id=5, rate="double('-Infinity')"))

    assert served.serve().kind == "changes"

    moment = datetime(2026, 1, 1, 0, 0, 0, 1, UTC)
    expected: dict[str, Any] = {
        "id": 1,
        "flag": True,
        "tiny": -128,
        "small": 32767,
        "whole": -2147483648,
        "ratio": 1.5,
        "rate": 0.1,
        "price": Decimal("1234567890123456789012345678.0123456789"),
        "text": '{"a",b}\\ \n"; é 🎈',
        "bytes": b"\x00\xff\\",
        "day": date(1, 1, 1),
        "at": datetime(2026, 10, 24, 23, 30, 0, 123456, UTC),
        "local": datetime(2026, 10, 25, 1, 30, 0, 123456),
        "words": ['a"b', None, "", "c\\d", "{}", "NULL", " é,"],
        "days": [date(2026, 1, 1), None],
        "moments": [moment],
        "blobs": [b'\\"', b""],
        "sums": [Decimal("-1.25"), None],
        "person": {"name": 'Zoë "Z"', "born": "2026-01-01T00:00:00.000001Z", "tags": ["x", None]},
        "counts": {'k"': 9007199254740993, "none": None},
        "deep": [[1, 2], []],
    }
    rows = served.rows()
    assert rows[(1,)] == expected
    assert rows[(5,)] == {**expected, "id": 5, "rate": float("-inf")}
    assert str(rows[(4,)]["rate"]) == "nan"
    for key, text in ((2, ""), (3, None)):
        assert rows[(key,)] == {**dict.fromkeys(expected), "id": key, "text": text}


def test_null_keys_and_double_keys_are_refused_with_their_number(numbers: ServedDelta) -> None:
    """Pass: in a load, in new rows and in changes; the database keeps the rows of the version before."""
    numbers.serve()
    numbers.sql("INSERT INTO {t} VALUES (NULL, 1, 'a'), (NULL, 2, 'b')")
    with pytest.raises(NullServedKeys, match="2 rows have NULL in a key column"):
        numbers.serve()
    with pytest.raises(NullServedKeys, match="2 rows"):
        numbers.serve(rebuild=True)
    numbers.sql("UPDATE {t} SET n = 9 WHERE id IS NULL")
    with pytest.raises(NullServedKeys):
        numbers.serve()
    numbers.sql("DELETE FROM {t} WHERE id IS NULL")
    numbers.sql("INSERT INTO {t} VALUES (1000, 1, 'a'), (1000, 2, 'b'), (1001, 1, 'c'), (1001, 1, 'd')")
    for rebuild in (False, True):
        with pytest.raises(KeysNotUnique, match=r"2 keys \(id\) have several rows .* \(100[01]\)"):
            numbers.serve(rebuild=rebuild)

    assert (len(numbers.rows()), numbers.consumed(), numbers.staging_tables()) == (100, 1, [])


def test_a_value_that_postgresql_cannot_hold_is_named(numbers: ServedDelta) -> None:
    numbers.serve()
    numbers.sql("INSERT INTO {t} VALUES (200, 1, concat('a', char(0)))")

    with pytest.raises(ValueNotStorable, match="0x00"):
        numbers.serve()

    numbers.sql("UPDATE {t} SET name = 'mended' WHERE id = 200")
    numbers.serve()
    numbers.assert_served()


def test_a_column_without_a_counterpart_is_named_before_rows_are_read(spark: SparkSession, lake: str, url: str) -> None:
    served = ServedDelta.create(spark, lake, url, columns="id bigint, v struct<a: int, b: variant>")

    with pytest.raises(ColumnNotServed, match="column v cannot be served"):
        served.serve()


def test_names_of_postgresql_itself_and_too_many_columns_are_named_before_rows_are_read(
    spark: SparkSession, lake: str, url: str
) -> None:
    served = ServedDelta.create(spark, lake, url, columns="id bigint, XMin bigint")
    with pytest.raises(ColumnNotServed, match="XMin cannot be served: PostgreSQL has a column of this name"):
        served.serve()

    wide = ", ".join(f"c{n} bigint" for n in range(1600))
    served = ServedDelta.create(spark, f"{lake}/wide", url, columns=f"id bigint, {wide}")
    with pytest.raises(ColumnNotServed, match="at most 1,600 columns, and this one would have 1,601"):
        served.serve()


@pytest.mark.parametrize(
    ("statement", "change", "refusal", "mend"),
    [
        (
            "CREATE UNIQUE INDEX ON test.numbers (name)",
            "UPDATE {t} SET name = 'one'",
            DatabaseRefuses,
            "drop the constr",
        ),
        (
            "ALTER TABLE test.numbers ADD CHECK (n < 500)",
            "UPDATE {t} SET n = 999",
            DatabaseRefuses,
            "drop the constraint",
        ),
        (
            "CREATE TABLE test.orders (c bigint REFERENCES test.numbers); INSERT INTO test.orders VALUES (1)",
            "DELETE FROM {t} WHERE id = 1",
            DatabaseRefuses,
            "drop the constraint",
        ),
        (
            "CREATE INDEX ON test.numbers (name)",
            "UPDATE {t} SET name = array_join(transform(sequence(1, 600), n -> sha2(string(n), 256)), '') WHERE id = 1",
            ValueNotStorable,
            "drop the index of your own",
        ),
    ],
    ids=["unique", "check", "foreign key", "index"],
)
def test_what_users_added_to_the_table_is_named_when_it_refuses_rows(
    numbers: ServedDelta, statement: str, change: str, refusal: type[KdiError], mend: str
) -> None:
    """Pass: the advice fits the cause, and no right is asked for; without the addition the rows arrive."""
    numbers.serve()
    with psycopg.connect(numbers.url, autocommit=True) as connection:
        connection.execute(statement.encode())
    numbers.sql(change)

    with pytest.raises(refusal) as refused:
        numbers.serve()

    assert mend in refused.value.message_parts()[2], refused.value
    with psycopg.connect(numbers.url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS test.orders")
