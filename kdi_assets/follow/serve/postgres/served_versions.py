"""The table ``kdi_served``: for each table of its schema, which version of which Delta table its rows are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

SERVED = "kdi_served"
_CREATE = """
CREATE TABLE IF NOT EXISTS {} (
  target text PRIMARY KEY, source text, table_id text, version bigint, definition text, columns jsonb, attempt text,
  committed_at timestamptz
)"""


@dataclass(frozen=True, slots=True)
class ConsumedVersion:
    """What the database says of a table: it is set in the transaction that publishes the rows.

    Attributes:
        source: Where the Delta table was: path or URI. Older releases recorded its path without the lake.
        table_id: Delta's id of the table that the rows come from.
        version: Its version whose rows the table has.
        definition: Digest of the document that made the table.
        columns: The columns that it was made with, and their types.
        committed_at: By the database's clock.
    """

    source: str
    table_id: str
    version: int
    definition: str
    columns: Mapping[str, str]
    committed_at: datetime


def prepare_schema(connection: psycopg.Connection, schema: str, table: str) -> None:
    """Create schema and ``kdi_served`` if they are missing, and the table's row, without a version."""
    from psycopg import sql

    served = sql.Identifier(schema, SERVED)
    with connection.transaction():
        # IF NOT EXISTS alone fails if two sessions create at the same time.
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('kdi_served'))")
        if not _exists(connection, "SELECT FROM pg_namespace WHERE nspname = %s", schema):
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
        if not _has_table(connection, served):
            connection.execute(sql.SQL(_CREATE).format(served))
        # Not ON CONFLICT, which would wait for a run that publishes at this moment.
        if connection.execute(sql.SQL("SELECT FROM {} WHERE target = %s").format(served), [table]).rowcount == 0:
            connection.execute(sql.SQL("INSERT INTO {} (target) VALUES (%s)").format(served), [table])


def read_consumed(
    connection: psycopg.Connection, schema: str, table: str, *, lock: bool = False
) -> ConsumedVersion | None:
    """What is consumed; ``None``: no run of ours made the table.

    Args:
        lock: Lock the row until the transaction ends, so that only one run at a time publishes.
    """
    from psycopg import sql

    query = "SELECT source, table_id, version, definition, columns, committed_at FROM {} WHERE target = %s"
    served = sql.Identifier(schema, SERVED)
    if not _has_table(connection, served):
        return None
    row = connection.execute(sql.SQL(query + (" FOR UPDATE" if lock else "")).format(served), [table]).fetchone()
    if row is None or row[2] is None:
        return None
    return ConsumedVersion(*row)


def write_consumed(
    connection: psycopg.Connection,
    schema: str,
    table: str,
    *,
    source: str,
    table_id: str,
    version: int,
    definition: str,
    columns: Mapping[str, str],
    attempt: str,
) -> None:
    """Record what is consumed, in the caller's transaction."""
    from psycopg import sql

    query = """UPDATE {} SET source = %s, table_id = %s, version = %s, definition = %s, columns = %s, attempt = %s,
               committed_at = now() WHERE target = %s"""
    values = [source, table_id, version, definition, json.dumps(dict(columns)), attempt, table]
    connection.execute(sql.SQL(query).format(sql.Identifier(schema, SERVED)), values)


def _exists(connection: psycopg.Connection, query: str, *values: Any) -> bool:
    texts = [value if isinstance(value, str) else value.as_string(connection) for value in values]
    return connection.execute(query.encode(), texts).fetchone() is not None


def _has_table(connection: psycopg.Connection, table: sql.Identifier) -> bool:
    return _exists(connection, "SELECT to_regclass(%s) WHERE to_regclass(%s) IS NOT NULL", table, table)
