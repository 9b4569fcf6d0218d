"""Served tables: a database follows a Delta table, version by version, whatever happens to either of them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from threading import Event, Thread
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from kdi_assets.documents.model.served_table import Postgres
from kdi_assets.errors import KdiError
from kdi_assets.follow.serve.errors import (
    AnotherServeRunActive,
    ColumnNotServed,
    DatabaseRefuses,
    DatabaseUnavailable,
    KeysNotUnique,
    NullServedKeys,
    RowsDisagree,
    ValueNotStorable,
)
from tests.interpreted import interpreting
from tests.tables.served import ROWS, ServedDelta, on_reaching, running_server


@pytest.fixture(scope="module", autouse=True)
def _interpreted(spark: SparkSession) -> Iterator[None]:
    with interpreting(spark):  # some rows at a time
        yield


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


@pytest.mark.parametrize("point", ["staged", "publishing"])
def test_of_two_runs_one_publishes_and_the_other_finds_nothing_left(numbers: ServedDelta, point: str) -> None:
    """Purpose: both plan from the same version; the second must not apply its changes to the rows of the first.
    Procedure: a second run starts when the first has staged, or holds the lock in its transaction, and runs to its end.
    Pass: one of them publishes 10 updates, the other reports nothing; rows and version are right.
    """
    numbers.serve()
    numbers.sql("UPDATE {t} SET n = n + 1 WHERE id < 10")
    reports: dict[str, Any] = {}
    second = Thread(target=lambda: reports.update(second=numbers.serve()))

    def start_second() -> None:
        second.start()
        if point == "staged":
            second.join(60)
        else:  # until it waits for the lock of the first one
            waiting = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%FOR UPDATE'"
            while not numbers.query(waiting):
                assert second.is_alive()

    reports["first"] = numbers.serve(at=on_reaching(point, start_second))
    second.join(60)

    assert sorted((r.kind, r.upserted) for r in reports.values()) == [("changes", 10), ("nothing", 0)]
    assert reports["first"].kind == ("nothing" if point == "staged" else "changes")
    numbers.assert_served()


@pytest.mark.parametrize("point", ["consumed version read", "planned", "staged"])
def test_a_first_run_that_another_one_overtakes_takes_the_table_for_ours(numbers: ServedDelta, point: str) -> None:
    """Pass: the one that lost plans again, and nobody is told to drop the table."""
    report = numbers.serve(at=on_reaching(point, numbers.serve))

    assert report.kind == "nothing"
    numbers.assert_served()


def test_a_run_that_loses_every_race_says_so(numbers: ServedDelta) -> None:
    def overtake(point: str) -> None:
        if point == "staged":
            numbers.serve(at=lambda _: None)
            numbers.sql("UPDATE {t} SET n = n + 1 WHERE id = 1")

    with pytest.raises(AnotherServeRunActive):
        numbers.serve(at=overtake)

    numbers.serve()
    numbers.assert_served()


def test_an_attempt_whose_connection_ends_publishes_nothing_and_the_next_one_cleans_up(numbers: ServedDelta) -> None:
    """Procedure: the database ends the run's session when the rows are staged, and in another run before the commit.
    Pass: a Transient, no row changed, the staging table is left, and gone after the next run; a living attempt keeps
    its staging table.
    """
    numbers.serve()
    numbers.sql("DELETE FROM {t} WHERE id < 50")
    left = []

    def end_session() -> None:
        left.append(numbers.staging_tables())
        end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'kdi serve'"
        numbers.query(end)

    for point in ("staged", "publishing"):
        with pytest.raises(DatabaseUnavailable):
            numbers.serve(at=on_reaching(point, end_session))
        assert (len(numbers.rows()), numbers.consumed()) == (100, 1)

    assert len(left[0]) == 2 and left[0] == sorted(set(left[0]))
    seen: list[list[str]] = []
    numbers.serve(at=on_reaching("staged", lambda: seen.append(numbers.staging_tables())))
    assert len(seen[0]) == 2 and not set(seen[0]) & {name for names in left for name in names}
    numbers.assert_served()


def test_a_database_that_is_down_is_transient_and_caught_up_later(spark: SparkSession, lake: str) -> None:
    from kdi_assets.follow.serve.postgres.embedded import start_postgres

    with running_server() as server:
        numbers = ServedDelta.create(spark, lake, server.url)
        numbers.sql(ROWS % 100)
        numbers.serve()
        data = server.data
        server.stop()
        numbers.sql("DELETE FROM {t} WHERE id < 50")
        numbers.sql(ROWS % 20)

        with pytest.raises(DatabaseUnavailable):
            numbers.serve()

        again = start_postgres(data)
        try:
            report = numbers.serve()
            assert (report.kind, report.upserted, report.deleted) == ("changes", 20, 30)
            numbers.assert_served()
        finally:
            again.stop()


def test_a_reader_never_sees_half_a_version(numbers: ServedDelta) -> None:
    """Purpose: rows become visible together, in updates, a difference and a table that is replaced.
    Procedure: readers, one per isolation level, sum up the table in a loop while versions are served.
    Pass: each sum is that of one version, they saw several, and none went back to an older one.
    """
    numbers.serve()
    sums: list[int] = [sum(row["n"] for row in numbers.rows().values())]
    seen: dict[str, list[int]] = {"READ COMMITTED": [], "REPEATABLE READ": []}
    stop = Event()

    def read(level: str) -> None:
        with psycopg.connect(numbers.url) as connection:
            while not stop.is_set():
                with connection.transaction():
                    connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
                    row = connection.execute("SELECT sum(n), count(*) FROM test.numbers").fetchone()
                assert row is not None
                seen[level].append(int(row[0]))

    readers = [Thread(target=read, args=[level], daemon=True) for level in seen]
    for reader in readers:
        reader.start()
    for step in range(6):
        numbers.sql(f"UPDATE {{t}} SET n = n + {10 ** (step + 3)} WHERE id % 3 = {step % 3}")
        numbers.sql(f"DELETE FROM {{t}} WHERE id = {step}")
        numbers.serve(rebuild=step % 3 == 2)
        sums.append(sum(row["n"] for row in numbers.rows().values()))
    stop.set()
    for reader in readers:
        reader.join(30)

    numbers.assert_served()
    for level, found in seen.items():
        order = [sums.index(one) for one in found]  # raises if it is no version's sum
        assert order == sorted(order), level
        assert len(set(order)) > 3


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
