"""Staging tables: Spark's executors copy rows into them, and one transaction publishes the rows.

Each attempt has a staging table of its own, and a lock that ends with its connection: tables whose lock is free belong
to attempts that died, and the next attempt drops them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kdi_assets.errors import KdiError
from kdi_assets.follow.serve.columns import Column
from kdi_assets.follow.serve.errors import ReadFailed, ReadForbidden, StagedRowsMissing
from kdi_assets.follow.serve.postgres.connection import Database
from kdi_assets.follow.serve.postgres.types import csv_line
from kdi_assets.runtime.progress import WorkStep, announced
from kdi_assets.runtime.spark_failures import FailureKind, SparkFailure, translated
from kdi_assets.runtime.worker_code import send_by_value

if TYPE_CHECKING:
    import psycopg
    from psycopg.sql import Composable, Identifier
    from pyspark.sql import DataFrame

PREFIX, PARTS = "kdi_stage_", "_parts"
DROP_LOCK_MILLISECONDS = 1000


@dataclass(frozen=True, slots=True)
class Staging:
    """The staging table of one attempt.

    Attributes:
        columns: Name to type in PostgreSQL, of the table's own columns.
        changes: Whether the rows are changes, with the columns ``CHANGE_COLUMNS``.
    """

    database: Database
    schema: str
    attempt: str
    columns: Mapping[str, str]
    changes: bool

    @property
    def name(self) -> str:
        """The table's name."""
        return PREFIX + self.attempt

    @property
    def table(self) -> Identifier:
        """The table's name in SQL."""
        from psycopg import sql

        return sql.Identifier(self.schema, self.name)

    def create(self, connection: psycopg.Connection, *, logged: bool) -> None:
        """Create the table and the record of its parts.

        Args:
            logged: For rows that become the table itself. Others survive no crash of the server, and need not: the
                attempt ends with its connection.
        """
        from psycopg import sql

        types = {**self.columns, **(CHANGE_COLUMNS if self.changes else {})}
        defined = sql.SQL(", ").join(sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(t)) for n, t in types.items())
        kind = sql.SQL("TABLE" if logged else "UNLOGGED TABLE")
        connection.execute("SELECT pg_advisory_lock(%s)", [_lock_key(self.attempt)])
        connection.execute(sql.SQL("CREATE {} {} ({})").format(kind, self.table, defined))
        parts = "CREATE UNLOGGED TABLE {} (part integer PRIMARY KEY, rows bigint NOT NULL)"
        connection.execute(sql.SQL(parts).format(self._parts))

    def copy(self, connection: psycopg.Connection, rows: DataFrame, columns: Sequence[Column]) -> None:
        """Copy rows from Spark's executors.

        Args:
            rows: The columns, in any order.
            columns: In the order of the table's columns.

        Raises:
            ReadFailed: Spark failed.
            StagedRowsMissing: The table does not have the rows that were copied.
            DatabaseUnavailable, DatabaseBusy, DatabaseRefuses, ValueNotStorable: The database did.
        """
        from pyspark.sql import functions as F

        from kdi_assets.follow.serve.postgres import worker

        send_by_value(worker)
        lines = rows.select(F.expr(csv_line(columns)).alias("line"))
        task = worker.CopyTask(self.database.parameters, *self._statements(connection))
        with reading_failures(self.database.target):
            results = lines.mapInArrow(worker.copying(task), worker.RESULT).collect()
        for result in results:
            if result["sqlstate"] is not None:
                raise self.database.error(result["sqlstate"] or None, result["message"])
        copied = int(sum(result["rows"] for result in results))
        if (found := self.count(connection)) != copied:
            raise StagedRowsMissing(target=self.database.target, copied=copied, found=found)

    def count(self, connection: psycopg.Connection) -> int:
        """How many rows the table has."""
        return int(one_row(connection, "SELECT count(*) FROM {}", self.table)[0])

    def drop(self, connection: psycopg.Connection, *, rows: bool = True) -> None:
        """Drop the tables.

        Args:
            rows: If false, the staging table became the table itself, and only the record of its parts is dropped.
        """
        from psycopg import sql

        names = [self._parts, *([self.table] if rows else [])]
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.SQL(", ").join(names)))
        connection.execute("SELECT pg_advisory_unlock(%s)", [_lock_key(self.attempt)])

    @property
    def _parts(self) -> Identifier:
        from psycopg import sql

        return sql.Identifier(self.schema, self.name + PARTS)

    def _statements(self, connection: psycopg.Connection) -> list[str]:
        from psycopg import sql

        names = [*self.columns, *(CHANGE_COLUMNS if self.changes else ())]
        copy = sql.SQL("COPY {} ({}) FROM STDIN WITH (FORMAT csv, ENCODING 'UTF8')").format(
            self.table, sql.SQL(", ").join(map(sql.Identifier, names))
        )
        record = sql.SQL("INSERT INTO {} VALUES (%s, %s) ON CONFLICT DO NOTHING").format(self._parts)
        recorded = sql.SQL("SELECT rows FROM {} WHERE part = %s").format(self._parts)
        return [statement.as_string(connection) for statement in (copy, record, recorded)]


CHANGE_COLUMNS: Mapping[str, str] = {"_kdi_present": "boolean", "_kdi_net": "bigint"}
"""Of a change: whether its key has a row now, and by how many rows the key has more than before."""


def new_attempt() -> str:
    """A name for an attempt, 12 hexadecimal digits."""
    return uuid.uuid4().hex[:12]


def drop_dead_attempts(connection: psycopg.Connection, schema: str) -> None:
    """Drop the staging tables of attempts whose connection has ended.

    One that a task still writes to stays until the next call.
    """
    import psycopg
    from psycopg import sql

    query = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename ~ %s ORDER BY 1"
    found = connection.execute(query, [schema, f"^{PREFIX}[0-9a-f]{{12}}({PARTS})?$"]).fetchall()
    for (name,) in found:
        key = _lock_key(name.removeprefix(PREFIX)[:12])
        if not connection.execute("SELECT pg_try_advisory_lock(%s)", [key]).fetchone()[0]:  # type: ignore[index]
            continue
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = {DROP_LOCK_MILLISECONDS}")
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(schema, name)))
        except (psycopg.errors.LockNotAvailable, psycopg.errors.InsufficientPrivilege):
            pass  # somebody reads it, or another user owns it: the next run tries again, and nothing depends on it
        finally:
            connection.execute("SELECT pg_advisory_unlock(%s)", [key])


def one_row(connection: psycopg.Connection, query: str, *parts: Composable) -> tuple[Any, ...]:
    """The only row of a query with identifiers in it."""
    from psycopg import sql

    row = connection.execute(sql.SQL(query).format(*parts)).fetchone()
    if row is None:
        raise AssertionError(f"no row: {query}")
    return tuple(row)


def _lock_key(attempt: str) -> int:
    return int(attempt, 16)


@contextmanager
def reading_failures(target: str) -> Iterator[None]:
    """Announce that rows are copied, and translate failures of Spark in it.

    Raises:
        ReadForbidden: A right is missing in the storage, or room.
        ReadFailed: All other failures.
    """

    def error_of(failure: SparkFailure) -> KdiError:
        if failure.kind is FailureKind.STORAGE:
            return ReadForbidden(target=target, detail=failure.root, needs=failure.needs)
        return ReadFailed(target=target, detail=failure.root)

    with announced(WorkStep(name=target, doing="copying rows")), translated(error_of):
        yield
