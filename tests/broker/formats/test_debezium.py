"""A real PostgreSQL and Debezium's own connector: what `kdi new` writes makes the tables of the database."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import psycopg
import pytest
from confluent_kafka import Consumer

from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import Broker
from tests.conftest import TopicFactory
from tests.debezium.source import Connector, Database, running_database
from tests.documents import written
from tests.typed import Kdi

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PORTIONS = 5
SENT_SECONDS = 90.0
TABLES = {"by_key": "DEFAULT", "whole": "FULL"}
"""By name, the table's REPLICA IDENTITY."""
COLUMNS = {
    "id": "bigint PRIMARY KEY",
    "email": "text UNIQUE",
    "name": "varchar(20) NOT NULL",
    "bio": "text",
    "tags": "text[]",
    "n": "integer",
    "small": "smallint",
    "amount": "numeric(12,2)",
    "wide": "numeric(38,3)",
    "free": "numeric",
    "at": "timestamptz",
    "day": "date",
    "clock": "time",
    "local": "timestamp",
    "doc": "jsonb",
    "uid": "uuid",
    "ok": "boolean",
    "f": "double precision",
    "raw": "bytea",
    "nums": "integer[]",
}
LARGE = ("bio", "tags", "doc", "raw", "nums")
"""PostgreSQL keeps their large values apart, and does not log one that an update leaves alone."""
Form = Literal["without schemas", "with schemas"]
SERVED: dict[Form, dict[str, str]] = {
    "with schemas": {
        "free": "unscaled(free->>'value', (free->>'scale')::int)",
        "clock": "clock::time",
        "local": "local AT TIME ZONE 'UTC'",
        "doc": "doc::jsonb",
        "uid": "uid::uuid",
    },
    "without schemas": {
        **{name: f"{name}::numeric" for name in ("amount", "wide", "free")},
        "day": "date '1970-01-01' + day::int",
        "clock": "time '00:00' + clock * interval '1 microsecond'",
        "local": "timestamp '1970-01-01' + local * interval '1 microsecond'",
        "doc": "doc::jsonb",
        "uid": "uid::uuid",
        "raw": "decode(raw, 'base64')",
    },
}
"""By the form of the messages, what the database's values are in the served table, unless they are the same."""
PROPERTIES: dict[Form, dict[str, str]] = {
    "with schemas": {"value_converter_schemas_enable": "true", "key_converter_schemas_enable": "true"},
    "without schemas": {"decimal_handling_mode": "string"},
}
SERVED_TABLE = """
type: kdi_assets.components.ServedTable
attributes:
  table: silver/{topic}
  into: {{postgres: {{schema: lake, table: {table}, url: {{env: SERVING_URL}}}}}}
  keys: [id]
"""
UNSCALED = """
CREATE FUNCTION unscaled(base64 text, scale int) RETURNS numeric STRICT IMMUTABLE LANGUAGE plpgsql AS $$
DECLARE
  bytes bytea := decode(base64, 'base64');
  found numeric := CASE WHEN get_byte(bytes, 0) > 127 THEN -1 ELSE 0 END;
BEGIN
  FOR n IN 0 .. length(bytes) - 1 LOOP found := found * 256 + get_byte(bytes, n); END LOOP;
  RETURN found / (10::numeric ^ scale);
END $$
"""


class World:
    """The database, and the connector of its changes.

    Attributes:
        prefix: The first part of the topics' names.
    """

    def __init__(self, database: Database, connector: Connector, consumer: Consumer, random: Random) -> None:
        self.database, self.connector, self.consumer, self.random = database, connector, consumer, random
        self._marks, self._moves = 0, 0

    def await_sent(self) -> None:
        """Wait until Kafka has all changes up to now.

        Kafka has a mark perhaps before other changes of its batch, and all of the batch before a mark of a later one.
        """
        for _ in range(2):
            self._await_mark()

    def _await_mark(self) -> None:
        self._marks += 1
        self.database.execute("INSERT INTO marks VALUES (%s)", self._marks)
        until = time.monotonic() + SENT_SECONDS
        while time.monotonic() < until:
            message = self.consumer.poll(1.0)
            value = message.value() if message is not None and not message.error() else None
            if value and f'"after":{{"number":{self._marks}}}' in str(value, "utf-8"):
                return
        raise AssertionError(f"no mark {self._marks} was sent: {self.connector.log()[-3000:]}")

    def change(self, transactions: int, *, deletes: bool = True) -> None:
        """Change both tables: several changes of a row at once, key changes, deletes and inserts after them."""
        with psycopg.connect(self.database.url) as connection:
            for _ in range(transactions):
                with connection.transaction():
                    for _ in range(self.random.choice([1, 1, 2, 4])):
                        table, number = self.random.choice(list(TABLES)), self.random.randrange(1, 16)
                        self._change_one(connection, table, number, deletes=deletes)

    def _change_one(self, connection: psycopg.Connection[Any], table: str, number: int, *, deletes: bool) -> None:
        there = connection.execute(f"SELECT 1 FROM {table} WHERE id = %s".encode(), (number,)).fetchall()
        ways = ["some", "some", "some", "email", "again", *(["delete", "move"] if deletes else [])]
        what = self.random.choice(ways) if there else "insert"
        row = row_of(self.random, number)
        if what in ("delete", "again"):
            connection.execute(f"DELETE FROM {table} WHERE id = %s".encode(), (number,))
        if what in ("insert", "again"):
            places = ", ".join(["%s"] * len(row))
            sql = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})"
            connection.execute(sql.encode(), [*row.values()])
            return
        changed = {
            "some": self.random.sample([c for c in COLUMNS if c not in ("id", "email")], 3),
            "email": ["email"],
            # Without FULL, the large values of a row that gets another key are nowhere in the log.
            "move": ["id", *(LARGE if TABLES[table] == "DEFAULT" else ())],
        }.get(what, [])
        self._moves += 1
        row["id"] = 1000 + self._moves
        if changed:
            sql = f"UPDATE {table} SET {', '.join(f'{name} = %s' for name in changed)} WHERE id = %s"
            connection.execute(sql.encode(), [*(row[name] for name in changed), number])


def row_of(random: Random, number: int) -> dict[str, Any]:
    """A row with short and large values, and nulls."""
    large = "".join(chr(random.randrange(0x23, 0x7E)) for _ in range(9_000))
    moment = datetime(2026, 11, 20, 10, tzinfo=UTC) + timedelta(microseconds=random.randrange(10**12))
    made: dict[str, Any] = {
        "email": f"{number}.{random.randrange(10**9)}@x.org",
        "bio": random.choice(["short", large]),
        "tags": random.choice([[], ["a", None], [large, "b"]]),
        "n": random.randrange(-(2**31), 2**31),
        "small": random.randrange(-(2**15), 2**15),
        "amount": Decimal(random.randrange(1 - 10**12, 10**12)).scaleb(-2),
        "wide": f"{random.choice(['', '-'])}{random.randrange(10**35)}.{random.randrange(10**3):03}",
        "free": f"{random.randrange(10**25)}.{random.randrange(10**6)}",
        "at": moment,
        "day": date(1900, 1, 1) + timedelta(days=random.randrange(80_000)),
        "clock": clock(random.randrange(24), 59, 59, random.randrange(10**6)),
        "local": moment.replace(tzinfo=None),
        "doc": json.dumps({"a": [1, None], "large": random.choice(["", large])}),
        "uid": f"{random.getrandbits(128):032x}",
        "ok": random.random() < 0.5,
        "f": random.random() * 100,
        "raw": random.choice([b"\x00\xff", random.randbytes(9_000)]),
        "nums": random.choice([[], [1, None, -3], [random.randrange(10**6) for _ in range(3_000)]]),
    }
    some = {name: None if random.random() < 0.15 else value for name, value in made.items()}
    return {"id": number, **some, "name": f"name {random.randrange(100)}"}


@pytest.fixture
def database() -> Iterator[Database]:
    """A PostgreSQL with both tables, and a table whose changes say how far the connector is."""
    with running_database() as database:
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
        for table, identity in TABLES.items():
            database.execute(f"CREATE TABLE {table} ({columns})")
            database.execute(f"ALTER TABLE {table} REPLICA IDENTITY {identity}")
            for name in LARGE:
                database.execute(f"ALTER TABLE {table} ALTER COLUMN {name} SET STORAGE EXTERNAL")
        database.execute("CREATE TABLE marks (number bigint PRIMARY KEY)")
        database.execute(UNSCALED)
        yield database


@pytest.mark.parametrize("form", ["with schemas", "without schemas"])
def test_the_tables_of_a_real_connector_are_those_of_the_database(
    kdi: Kdi,
    spark: SparkSession,
    topic: TopicFactory,
    broker: Broker,
    database: Database,
    defs: Path,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    form: Form,
) -> None:
    """Purpose: a topic of a real database is a right table by `kdi new`, whatever the database and its connector do.
    Procedure: REPLICA IDENTITY DEFAULT and FULL, all usual types, large values that updates leave alone, transactions,
    key changes, deletes and inserts after them, a new column; a connector that is killed, and one that loses its
    offsets. After each portion: drain, refine, and serve the tables into the database.
    Pass: each time each served table equals the table that it came from, by EXCEPT in the database.
    """
    seed = f"{request.config.getoption('--seed')} {os.environ.get('KDI_WALK', '')} {form}"
    prefix = form.replace(" ", "_")
    names = {table: topic(3, name=f"{prefix}.public.{table}") for table in TABLES}
    marks = topic(1, name=f"{prefix}.public.marks")
    properties = {"topic_prefix": prefix, **PROPERTIES[form]}
    connector = Connector(database, broker.bootstrap_servers, tmp_path / "connector", settings, **properties)
    client = {"bootstrap.servers": broker.bootstrap_servers, "group.id": prefix, "auto.offset.reset": "earliest"}
    request.addfinalizer(connector.kill)
    consumer = Consumer(client)
    request.addfinalizer(consumer.close)
    consumer.subscribe([marks])
    world = World(database, connector, consumer, Random(seed))
    world.change(60)
    connector.start()
    world.await_sent()
    world.change(20)
    world.await_sent()
    for table, name in names.items():
        assert kdi("new", name).code == 0
        written(defs, **{f"served_{table}": SERVED_TABLE.format(topic=name, table=table)})
    monkeypatch.setenv("SERVING_URL", database.url)
    checked = kdi("check")
    assert checked.code == 0, checked.out

    for portion in range(PORTIONS):
        for command in ("drain", "refine", "serve"):
            answer = kdi(command, "--all")
            assert answer.code == 0, f"{seed}, {portion}: {answer.out} {answer.err}"
        for table in TABLES:
            assert differing(database, table, form) == [], f"{table}, portion {portion}, seed {seed}"
        if portion in (1, 2):
            connector.kill()
        if portion == 2:
            connector.lose_offsets()
        if portion == 3:
            for table in TABLES:
                database.execute(f"ALTER TABLE {table} ADD COLUMN city text")
                database.execute(f"UPDATE {table} SET city = 'Athens'")
        # No message tells of a delete while nobody knows the offsets: the snapshot has the rows that are there.
        world.change(25, deletes=portion != 2)
        if portion in (1, 2):
            connector.start()
            world.await_sent()
        world.change(25)
        world.await_sent()


def differing(database: Database, table: str, form: Form) -> list[str]:
    """By id and column, what the served table has and what the database has."""
    is_there = "SELECT 1 FROM pg_attribute WHERE attrelid = %s::regclass AND attname = 'city'"
    columns = [*COLUMNS, *(["city"] if database.execute(is_there, f"lake.{table}") else [])]
    ours = ", ".join(f"{SERVED[form].get(name, name)} AS {name}" for name in columns)
    lake, source = f"SELECT {ours} FROM lake.{table}", f"SELECT {', '.join(columns)} FROM public.{table}"
    sides = []
    for one, other in ((lake, source), (source, lake)):
        rows = database.execute(f"SELECT * FROM ({one} EXCEPT ALL {other}) AS more")
        sides.append({row[0]: dict(zip(columns, row, strict=True)) for row in rows})
    found = []
    for number in sorted(sides[0].keys() | sides[1].keys()):
        has, should = (side.get(number) for side in sides)
        if has is None or should is None:
            found.append(f"{number}: {'is missing' if has is None else 'should not be there'}")
            continue
        for name in (name for name in columns if has[name] != should[name]):
            found.append(f"{number}.{name}: {has[name]!r:.60}, should be {should[name]!r:.60}")
    return found
