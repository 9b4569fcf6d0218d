"""The table in the database: what it looks like, and how that differs from what it should look like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kdi_assets.follow.serve.errors import RowSecurityOn, TableAlteredByHand, TableNotOurs

if TYPE_CHECKING:
    import psycopg

KINDS = {"r": "table", "v": "view", "m": "materialized view", "f": "foreign table", "p": "partitioned table"}


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A table, or whatever else has its name.

    Attributes:
        kind: In words, such as ``view``.
        columns: Name to type, as ``format_type`` prints it.
        primary_key: Columns of the primary key; empty without one.
    """

    kind: str
    columns: Mapping[str, str]
    primary_key: Sequence[str]

    def fits(self, columns: Mapping[str, str], keys: Sequence[str]) -> bool:
        """Whether it is a table with exactly these columns, types and keys."""
        return self.kind == "table" and self.columns == columns and set(self.primary_key) == set(keys)


@dataclass(frozen=True, slots=True)
class Expected:
    """What the table should look like.

    Attributes:
        target: The served table's name, for errors.
        columns: Name to type.
        recorded: The columns that it had after the newest run of ours.
    """

    target: str
    schema: str
    table: str
    columns: Mapping[str, str]
    keys: Sequence[str]
    recorded: Mapping[str, str]

    def columns_to_add(self, found: TargetTable) -> dict[str, str]:
        """The columns that the Delta table got since the newest run, name to type.

        Raises:
            TableAlteredByHand: The table differs in another way.
        """
        differences, statements = self._differences(found)
        if differences:
            raise TableAlteredByHand(
                target=self.target, differences=tuple(differences), statements=tuple(dict.fromkeys(statements))
            )
        return {name: type_ for name, type_ in self.columns.items() if name not in found.columns}

    def _differences(self, found: TargetTable) -> tuple[list[str], list[str]]:
        if found.kind != "table":
            return [f"it is a {found.kind}"], []
        texts, statements = [], []
        alter = f"ALTER TABLE {_quoted(self.schema)}.{_quoted(self.table)}"
        for name, type_ in self.columns.items():
            there = found.columns.get(name)
            if there is None and name in self.recorded:
                texts.append(f"column {name} was dropped")
            elif there is not None and there != type_:
                texts.append(f"column {name} is {there}, and the Delta table's is {type_}")
                statements.append(f"{alter} ALTER COLUMN {_quoted(name)} TYPE {type_};")
        for name in found.columns.keys() - self.columns.keys():
            texts.append(f"the Delta table has no column {name}")
            statements.append(f"{alter} DROP COLUMN {_quoted(name)};")
        if set(found.primary_key) != set(self.keys):
            is_key = f"the primary key is ({', '.join(found.primary_key)})" if found.primary_key else "no primary key"
            texts.append(f"{is_key}, and the document's keys are ({', '.join(self.keys)})")
            drop = f"DROP CONSTRAINT IF EXISTS {_quoted(f'{self.table}_pkey')}, " if found.primary_key else ""
            quoted = ", ".join(map(_quoted, self.keys))
            statements.append(f"{alter} {drop}ADD PRIMARY KEY ({quoted});")
        return texts, statements


def _quoted(name: str) -> str:
    """An identifier for a statement that a person runs."""
    return '"' + name.replace('"', '""') + '"'


def read_target_table(connection: psycopg.Connection, schema: str, table: str) -> TargetTable | None:
    """What has the table's name; ``None``: nothing."""
    query = """SELECT c.oid, c.relkind FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               WHERE n.nspname = %s AND c.relname = %s"""
    row = connection.execute(query, [schema, table]).fetchone()
    if row is None:
        return None
    oid, kind = row
    columns = connection.execute(
        """SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
           WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum""",
        [oid],
    ).fetchall()
    keys = connection.execute(
        """SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = ANY(indkey)
           WHERE indrelid = %s AND indisprimary ORDER BY attnum""",
        [oid],
    ).fetchall()
    return TargetTable(KINDS.get(kind, f"relation of kind {kind}"), dict(columns), [name for (name,) in keys])


def refuse_table_of_others(target: str, schema: str, table: str, found: TargetTable | None) -> None:
    """Refuse to replace something that no run of ours made.

    Raises:
        TableNotOurs: There is something with the name.
    """
    if found is not None:
        statement = f'DROP {found.kind.upper()} "{schema}"."{table}";'
        raise TableNotOurs(target=target, found=found.kind, statement=statement)


def refuse_row_security(connection: psycopg.Connection, of: Expected) -> None:
    """Refuse to replace a table with row-level security: the new one would show all rows to all who may read it.

    Raises:
        RowSecurityOn: It is enabled, or there are policies.
    """
    query = """SELECT c.relrowsecurity, array(SELECT polname::text FROM pg_policy WHERE polrelid = c.oid ORDER BY 1)
               FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s"""
    enabled, policies = connection.execute(query, [of.schema, of.table]).fetchone() or (False, [])
    if enabled or policies:
        statement = f'DROP TABLE "{of.schema}"."{of.table}";'
        raise RowSecurityOn(target=of.target, policies=tuple(policies), statement=statement)


def table_rights(connection: psycopg.Connection, of: Expected) -> list[tuple[str, str, str | None, bool]]:
    """The rights of others on a table: grantee (quoted), right, column or ``None`` for the table, may grant it on."""
    query = """SELECT CASE WHEN acl.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END,
                 acl.privilege_type, given.attname, acl.is_grantable
               FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
               CROSS JOIN LATERAL (
                 SELECT c.relacl AS acl, NULL::text AS attname UNION ALL
                 SELECT attacl, attname FROM pg_attribute WHERE attrelid = c.oid AND NOT attisdropped) AS given
               CROSS JOIN LATERAL aclexplode(given.acl) AS acl
               WHERE n.nspname = %s AND c.relname = %s AND acl.grantee <> c.relowner"""
    return connection.execute(query, [of.schema, of.table]).fetchall()
