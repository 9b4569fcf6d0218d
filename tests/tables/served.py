"""A Delta table that is served from a database, for tests: change it, serve it, compare the two."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import psycopg
from psycopg.rows import dict_row
from pyspark.sql import SparkSession

from kdi_assets.documents.model.served_table import DuckDb, Postgres, ServedTableSpec
from kdi_assets.follow.serve.postgres.embedded import EmbeddedPostgres, start_postgres
from kdi_assets.follow.serve.report import ServeReport
from kdi_assets.follow.serve.serve import serve
from tests.refined import Lakeside

COLUMNS = "id bigint, n bigint, name string"
ROWS = "INSERT INTO {t} SELECT id, id, concat('name ', id) FROM range(%d)"
"""Rows with these columns."""


@contextmanager
def running_server() -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL server of its own; its folder is not pytest's, whose owner it could not be."""
    with TemporaryDirectory(prefix="kdi-served-") as folder:
        server = start_postgres(Path(folder) / "data")
        try:
            yield server
        finally:
            server.stop()


@dataclass
class ServedDelta:
    """A Delta table and its copy in PostgreSQL.

    Attributes:
        url: Of the database.
    """

    spark: SparkSession
    lake: str
    url: str
    served: ServedTableSpec

    @classmethod
    def create(
        cls, spark: SparkSession, lake: str, url: str, *, columns: str = COLUMNS, feed: bool = True, **fields: Any
    ) -> ServedDelta:
        """Create an empty Delta table, to be served into the schema ``test``."""
        into = Postgres(table="numbers", schema=fields.pop("schema", "test"), url=url)
        served = ServedTableSpec(**{"table": "gold/numbers", "into": into, "keys": ("id",), **fields})
        made = cls(spark, lake, url, served)
        made.sql(
            f"CREATE TABLE {{t}} ({columns}) USING delta "
            f"TBLPROPERTIES (delta.enableChangeDataFeed = {str(feed).lower()})"
        )
        return made

    @property
    def uri(self) -> str:
        return self.served.table_uri(self.lake)

    def sql(self, statement: str) -> Any:
        """Run Spark SQL; ``{t}`` is the Delta table."""
        return self.spark.sql(statement.replace("{t}", f"delta.`{self.uri}`"))

    def serve(
        self, *, at: Callable[[str], None] = lambda point: None, report: Callable[[str], None] = print, **more: Any
    ) -> ServeReport:
        """Serve what changed."""
        return serve(self.served, lake=self.lake, session=lambda: self.spark, at=at, report=report, **more)

    def connect(self) -> psycopg.Connection[Any]:
        """A connection to the database, in autocommit mode."""
        return psycopg.connect(self.url, autocommit=True)

    def query(self, statement: str, *values: Any) -> list[dict[str, Any]]:
        """Rows of a query in the database; ``{t}`` is the table there."""
        into = self.served.into
        assert isinstance(into, Postgres)
        text = statement.replace("{t}", f"{into.schema}.{into.table}")
        with self.connect() as connection, connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(text.encode(), values or None)
            return cursor.fetchall() if cursor.description is not None else []

    def rows(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        """The rows in the database, by key."""
        rows = self.query("SELECT * FROM {t}")
        by_key = {tuple(row[key] for key in self.served.keys): row for row in rows}
        assert len(by_key) == len(rows)
        return by_key

    def delta_rows(self) -> dict[tuple[Any, ...], dict[str, Any]]:
        """The rows of the Delta table, by key."""
        rows = [row.asDict(recursive=True) for row in self.sql("SELECT * FROM {t}").collect()]
        return {tuple(row[key] for key in self.served.keys): row for row in rows}

    def consumed(self) -> int:
        """The version that the database says was consumed."""
        (row,) = self.query("SELECT version FROM test.kdi_served WHERE target = 'numbers'")
        return int(row["version"])

    def version(self) -> int:
        """The Delta table's version."""
        return int(self.sql("DESCRIBE HISTORY {t} LIMIT 1").collect()[0]["version"])

    def assert_served(self) -> None:
        """The database has each row of the Delta table with its values, no other one, and says its version."""
        theirs, ours = self.rows(), self.delta_rows()
        different = sorted(key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key))
        assert not different, f"{different[0]}: {theirs.get(different[0])} served of {ours.get(different[0])}"
        assert self.consumed() == self.version()
        assert self.staging_tables() == []

    def staging_tables(self) -> list[str]:
        """Staging tables that are left."""
        query = "SELECT tablename FROM pg_tables WHERE schemaname = 'test' AND tablename LIKE 'kdi\\_stage\\_%%'"
        return [row["tablename"] for row in self.query(query.replace("%%", "%"))]


@dataclass(frozen=True)
class Copy:
    """A copy of a Delta table with the key ``id`` in PostgreSQL or in a DuckDB file.

    Attributes:
        into: ``postgres`` or ``duckdb``.
        url: Of the PostgreSQL database.
        home: The folder of the DuckDB file.
    """

    lakeside: Lakeside
    table: str
    into: str
    url: str
    home: Path

    def serve(self, **more: Any) -> ServeReport:
        into: Postgres | DuckDb = Postgres(table="numbers", schema="test", url=self.url)
        if self.into == "duckdb":
            into = DuckDb(file="numbers.duckdb", table="numbers")
        served = ServedTableSpec(table=self.table, into=into, keys=("id",))
        return serve(served, lake=self.lakeside.lake, session=lambda: self.lakeside.spark, home=self.home, **more)

    def rows(self, columns: str) -> Counter[tuple[Any, ...]]:
        if self.into == "duckdb":
            with duckdb.connect(str(self.home / "numbers.duckdb"), read_only=True) as file:
                return Counter(file.execute(f"SELECT {columns} FROM numbers").fetchall())
        with psycopg.connect(self.url) as connection:
            return Counter(connection.execute(f"SELECT {columns} FROM test.numbers".encode()).fetchall())


def on_reaching(point: str, do: Callable[[], object]) -> Callable[[str], None]:
    """An ``at`` that does something at a point, the first time."""
    left = [point]

    def at(reached: str) -> None:
        if reached in left:
            left.clear()
            do()

    return at
