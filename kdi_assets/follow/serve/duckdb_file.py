"""Serve a Delta table from a DuckDB file: each newer version replaces all rows, in one transaction. No Spark.

delta-rs reads the table as a stream of Arrow batches, and DuckDB takes them from it, so memory stays bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.served_table import DuckDb, ServedTableSpec
from kdi_assets.errors import KdiError
from kdi_assets.follow.serve.columns import Column, served_columns
from kdi_assets.follow.serve.errors import (
    AnotherServeRunActive,
    ColumnNotServed,
    DuckDbMissing,
    FeaturesNotRead,
    FileLocked,
    FileNotOurs,
    FileWriteFailed,
    KeysNotUnique,
    NullServedKeys,
    ReadFailed,
    TableNotOurs,
)
from kdi_assets.follow.serve.report import ServeReport
from kdi_assets.follow.serve.source import open_source
from kdi_assets.runtime.progress import WorkStep, announced
from kdi_assets.wording import first_line

if TYPE_CHECKING:
    import duckdb

MEMORY = "1GB"
"""DuckDB's limit; beyond it, it writes to a temporary folder beside the file."""
LOCK_SECONDS = 5.0
"""How long a run waits for other processes to close the file: a status or an alert opens it for a moment."""
LOCKED = "set lock on file"
"""Part of DuckDB's message."""
_CREATE = """CREATE TABLE IF NOT EXISTS kdi_served (target text PRIMARY KEY, source text, table_id text, version bigint,
             definition text, committed_at timestamptz)"""


@dataclass(frozen=True, slots=True)
class ConsumedByFile:
    """What the file says of a table, as ``ConsumedVersion``."""

    source: str
    table_id: str
    version: int
    definition: str
    committed_at: datetime


@dataclass(frozen=True, slots=True)
class DuckDbServing:
    """One run of a table that is served from a DuckDB file.

    Attributes:
        home: Where files without an absolute path lie.
        at: Called at the points ``planned``, ``publishing`` (before the commit) and ``published``.
    """

    served: ServedTableSpec
    target: DuckDb
    home: Path
    lake: str
    report: Callable[[str], None]
    at: Callable[[str], None]

    def run(self, *, rebuild: bool) -> ServeReport:
        """Replace the rows if the Delta table has a newer version.

        Raises:
            KdiError: One of ``kdi_assets.follow.serve.errors``.
        """
        began, file = time.monotonic(), _path(self.target, self.home)
        file.parent.mkdir(parents=True, exist_ok=True)
        with _opened(self.served, file, read_only=False) as connection:
            connection.execute(_CREATE)
            # In this order: a table that another thread makes meanwhile, it also records.
            exists = _table_exists(connection, self.target.table)
            consumed = _consumed(connection, self.target.table)
            log = open_source(self.served, self.lake, consumed, rebuild=rebuild).log
            columns = served_columns(self.served, log.schema)
            if exists and consumed is None:
                statement = f'DROP TABLE "{self.target.table}";'
                raise TableNotOurs(target=self.served.name, found="table", statement=statement)
            self.at("planned")
            if consumed and exists and not rebuild and self._has_all_rows(consumed, log):
                return self._report(log.version, consumed, "nothing", rows=0, began=began)
            rows = self._replace(connection, log, columns, consumed)
        self.at("published")
        return self._report(log.version, consumed, "load", rows=rows, began=began)

    def _has_all_rows(self, consumed: ConsumedByFile, log: TableLog) -> bool:
        same_rows = (consumed.table_id, consumed.version) == (log.table_id, log.version)
        return same_rows and self.served.has_definition(consumed.definition, place=consumed.source)

    def _replace(
        self,
        connection: duckdb.DuckDBPyConnection,
        log: TableLog,
        columns: Sequence[Column],
        consumed: ConsumedByFile | None,
    ) -> int:
        table = f'"{self.target.table}"'
        publishing = WorkStep(name=self.served.name, doing="publishing", commits=True)
        with announced(publishing), _transaction(connection):
            # The lock of the file keeps other processes out, and not other threads of this one.
            if _consumed(connection, self.target.table) != consumed:
                raise AnotherServeRunActive(target=self.served.name)
            connection.register("kdi_batches", self._batches(log, columns))
            connection.execute(f"CREATE OR REPLACE TABLE {table} AS FROM kdi_batches")
            connection.unregister("kdi_batches")
            rows = self._refuse_wrong_keys(connection, table)
            values = [self.target.table, log.uri, log.table_id, log.version, self.served.definition]
            connection.execute("INSERT OR REPLACE INTO kdi_served VALUES (?, ?, ?, ?, ?, now())", values)
            self.at("publishing")
        return rows

    def _batches(self, log: TableLog, columns: Sequence[Column]) -> Any:
        """The rows as a stream of Arrow batches."""
        from deltalake import QueryBuilder
        from deltalake.exceptions import DeltaError

        names = ", ".join(_quoted(column.name) for column in columns)
        try:
            return QueryBuilder().register("delta", log.delta_table).execute(f"SELECT {names} FROM delta")  # noqa: S608
        except (DeltaError, ValueError) as failed:
            if "Unsupported table features" in str(failed):
                raise FeaturesNotRead(target=self.served.name, detail=str(failed)[:500]) from failed
            raise ReadFailed(target=self.served.name, detail=str(failed)[:500]) from failed

    def _refuse_wrong_keys(self, connection: duckdb.DuckDBPyConnection, table: str) -> int:
        """How many rows there are.

        Raises:
            NullServedKeys, KeysNotUnique: Keys are null, or not unique.
        """
        keys = ", ".join(map(_quoted, self.served.keys))
        null = " OR ".join(f"{_quoted(key)} IS NULL" for key in self.served.keys)
        query = f"SELECT count(*), count(*) FILTER (WHERE {null}), count(DISTINCT ({keys})) FROM {table}"  # noqa: S608
        rows, nulls, distinct = _row(connection, query)
        if nulls:
            raise NullServedKeys(target=self.served.name, keys=self.served.keys, rows=nulls)
        if distinct != rows:
            again = f"FROM {table} GROUP BY {keys} HAVING count(*) > 1"
            (count,) = _row(connection, f"SELECT count(*) FROM (SELECT {keys} {again})")  # noqa: S608
            example = "(" + ", ".join(map(str, _row(connection, f"SELECT {keys} {again} LIMIT 1"))) + ")"
            raise KeysNotUnique(target=self.served.name, keys=self.served.keys, count=count, example=example)
        return int(rows)

    def _report(
        self, version: int, consumed: ConsumedByFile | None, kind: Any, *, rows: int, began: float
    ) -> ServeReport:
        seconds = time.monotonic() - began
        return ServeReport(
            target=self.served.name,
            kind=kind,
            version=version,
            why="a DuckDB table is replaced as a whole" if kind == "load" else "",
            since=consumed.version if consumed else None,
            upserted=rows,
            seconds=seconds,
            publish_seconds=seconds,
            sql=f"FROM {self.target.table} LIMIT 10;",
            client=f"duckdb -readonly {_path(self.target, self.home)}",
        )


def read_consumed_of_file(served: ServedTableSpec, target: DuckDb, home: Path) -> tuple[ConsumedByFile | None, bool]:
    """What the file says of the table, ``None``: nothing; and whether the table is there.

    Raises:
        FileLocked, FileNotOurs, FileWriteFailed, DuckDbMissing: The file cannot be read.
    """
    file = _path(target, home)
    if not file.exists():
        return None, False
    with _opened(served, file, read_only=True) as connection:
        # In this order: what is recorded was there.
        return _consumed(connection, target.table), _table_exists(connection, target.table)


@contextmanager
def _opened(served: ServedTableSpec, file: Path, *, read_only: bool) -> Iterator[duckdb.DuckDBPyConnection]:
    try:
        import duckdb
    except ImportError:
        raise DuckDbMissing(target=served.name) from None
    opened = False
    try:
        with _connected(file, read_only=read_only) as connection:
            opened = True
            connection.execute(f"SET memory_limit = '{MEMORY}'; SET preserve_insertion_order = false")
            yield connection
    except duckdb.NotImplementedException as failed:
        raise ColumnNotServed(target=served.name, column="(one of them)", reason=str(failed)[:300]) from failed
    except duckdb.Error as failed:
        raise _refusal(served, file, failed, opened=opened) from failed


def _connected(file: Path, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    import duckdb

    until = time.monotonic() + (0 if read_only else LOCK_SECONDS)
    while True:
        try:
            return duckdb.connect(str(file), read_only=read_only)
        except duckdb.IOException as locked:
            if LOCKED not in str(locked) or time.monotonic() > until:
                raise
        time.sleep(0.1)


def _refusal(served: ServedTableSpec, file: Path, failed: duckdb.Error, *, opened: bool) -> KdiError:
    """What DuckDB's error means: a path that is not a database of ours is an error of opening only."""
    import duckdb

    detail = first_line(failed)[:500]
    if "arrow_scan" in detail:  # a batch of the Delta table's rows did not come
        return ReadFailed(target=served.name, detail=detail)
    if isinstance(failed, duckdb.TransactionException) and "conflict" in detail:  # with another thread of this process
        return AnotherServeRunActive(target=served.name)
    if LOCKED in detail:
        return FileLocked(target=served.name, file=str(file), detail=detail)
    # After a failed write DuckDB answers every further statement by a fatal error.
    no_room = isinstance(failed, duckdb.OutOfMemoryException | duckdb.FatalException) or "No space left" in detail
    if no_room or (opened and isinstance(failed, duckdb.OperationalError)):
        return FileWriteFailed(target=served.name, file=str(file), detail=detail)
    return FileNotOurs(target=served.name, file=str(file), detail=detail)


@contextmanager
def _transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    connection.begin()
    try:
        yield
    except BaseException:
        connection.rollback()
        raise
    connection.commit()


def _consumed(connection: duckdb.DuckDBPyConnection, table: str) -> ConsumedByFile | None:
    query = "SELECT count(*) FROM information_schema.tables WHERE table_name = 'kdi_served'"
    if not _row(connection, query)[0]:
        return None
    query = "SELECT source, table_id, version, definition, epoch_us(committed_at) FROM kdi_served WHERE target = ?"
    row = connection.execute(query, [table]).fetchone()
    return ConsumedByFile(row[0], row[1], row[2], row[3], _moment(row[4])) if row else None


def _table_exists(connection: duckdb.DuckDBPyConnection, table: str) -> bool:
    """Names that differ in case only are one table for DuckDB."""
    named = "table_schema = 'main' AND lower(table_name) = lower(?)"
    query = f"SELECT count(*) FROM information_schema.tables WHERE {named}"  # noqa: S608
    found = connection.execute(query, [table]).fetchone()
    return bool(found and found[0])


def _moment(microseconds: int) -> datetime:
    from datetime import UTC, timedelta

    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)


def _row(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, ...]:
    row = connection.execute(query).fetchone()
    if row is None:
        raise AssertionError(f"no row: {query}")
    return tuple(row)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _path(target: DuckDb, home: Path) -> Path:
    return home / target.file
