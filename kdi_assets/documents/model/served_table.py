"""The typed description of a served table: a table in a database that follows a Delta table. No I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Annotated
from urllib.parse import parse_qs, urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo

from kdi_assets.documents.model.connections.aws_secrets import FromSecretsManager
from kdi_assets.documents.model.connections.client_values import (
    ClientValue,
    EnvironmentProperties,
    FromEnvironment,
    SecretValue,
)
from kdi_assets.documents.model.field_types import (
    Declared,
    NotWritten,
    Owner,
    TablePath,
    WrittenAs,
    matching,
    not_blank,
    wrong,
)
from kdi_assets.documents.model.in_lake import InLake
from kdi_assets.documents.model.limits import FreshnessLimits, cron_expression
from kdi_assets.documents.model.variables import VARIABLE, VARIABLE_LIMIT

MAX_NAME_BYTES = 63
"""PostgreSQL, "Identifiers and Key Words": it cuts off longer names."""

DatabaseName = Annotated[
    str,
    matching(
        r"(?!kdi_|pg_)[a-z_][a-z0-9_]{0,47}",
        "is not a name for this in a database",
        "small letters, digits and '_', at most 48, none that begins with kdi_ or pg_",
    ),
]


def _column_name(value: str) -> str:
    if not value.strip() or value.startswith("_kdi_") or len(value.encode()) > MAX_NAME_BYTES:
        raise wrong(f"{value!r} is not a column's name in a database", f"at most {MAX_NAME_BYTES} bytes, not _kdi_…")
    return value


ColumnName = Annotated[str, AfterValidator(_column_name)]


def _server(value: str | FromEnvironment | FromSecretsManager) -> str | FromEnvironment | FromSecretsManager:
    """A URL without a password, or a reference to one; the error must not show a password."""
    if not isinstance(value, str) or not value:
        return value
    example = "e.g. postgresql://kdi@db.internal:5432/analytics, or {env: SERVING_URL}"
    try:
        url = urlsplit(value)
        holds_password = bool(url.password) or "password" in parse_qs(url.query)
    except ValueError:
        raise wrong("is not the URL of a PostgreSQL database", example) from None
    if holds_password:
        raise wrong("holds a password", "leave it out, and write password: {env: NAME}")
    if url.scheme not in ("postgresql", "postgres"):
        raise wrong("is not the URL of a PostgreSQL database", example)
    return value


@dataclass(frozen=True, slots=True)
class Postgres(Declared):
    """A table in a PostgreSQL database."""

    table: Annotated[DatabaseName, Field(examples=["daily_usage"])]
    """Name of the table."""
    schema: Annotated[DatabaseName, Field(examples=["analytics"])] = "public"
    """Schema of the table; it is created if it does not exist."""
    url: Annotated[ClientValue, AfterValidator(_server), Field(examples=[{"env": "SERVING_URL"}])] = ""
    """Address of the database: postgresql://user@host:port/database, or {env: NAME} or {aws_secret: NAME}. By default
    the embedded server in KDI_HOME, for work on one machine."""
    password: Annotated[SecretValue, Field(examples=[{"env": "SERVING_PASSWORD"}])] = ""
    """Password of the user: {env: NAME} or {aws_secret: NAME, key: KEY}."""

    @property
    def path(self) -> tuple[str, ...]:
        """The asset's key, and the target's name with slashes."""
        return ("postgres", self.schema, self.table)

    @property
    def properties(self) -> EnvironmentProperties:
        """``url`` and ``password``, as far as they are given; read when they are used."""
        given = {"url": self.url, "password": self.password}
        return EnvironmentProperties("/".join(self.path), {name: value for name, value in given.items() if value})


@dataclass(frozen=True, slots=True)
class DuckDb(Declared):
    """A table in a DuckDB file."""

    file: Annotated[str, not_blank("e.g. analysts.duckdb"), Field(examples=["/srv/analysts/usage.duckdb"]), VARIABLE]
    """Path of the file; a path that is not absolute lies below KDI_HOME. It is created if it does not exist. Each
    environment has its own."""
    table: Annotated[DatabaseName, Field(examples=["daily_usage"])]
    """Name of the table, in the schema main."""

    @property
    def path(self) -> tuple[str, ...]:
        """The asset's key, and the target's name with slashes."""
        return ("duckdb", self.table)


ServeTarget = Postgres | DuckDb


@dataclass(frozen=True, slots=True)
class WrittenTarget(Declared):
    """A target by the kind of its database. Exactly one."""

    postgres: Annotated[Postgres | None, Field(examples=[{"table": "daily_usage"}])] = None
    """A table in a PostgreSQL database."""
    duckdb: Annotated[DuckDb | None, Field(examples=[{"file": "usage.duckdb", "table": "daily_usage"}])] = None
    """A table in a DuckDB file."""


def _one_target(value: object) -> object:
    kinds = [f.name for f in fields(WrittenTarget)]
    if not isinstance(value, dict) or len(value) != 1 or not value.keys() <= set(kinds):
        raise wrong(f"takes one of {', '.join(kinds)}", "e.g. {postgres: {table: daily_usage}}")
    return value


def _target(written: WrittenTarget, info: ValidationInfo) -> ServeTarget:
    target = written.postgres or written.duckdb
    if target is None:
        raise wrong("does not name a table", "e.g. {postgres: {table: daily_usage}}")
    return target


def _unique(names: tuple[str, ...]) -> tuple[str, ...]:
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise wrong(f"names {twice} twice", "name each column once")
    return names


def _columns(names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    missing = [key for key in info.data.get("keys", ()) if names and key not in names]
    if missing:
        raise wrong(f"lacks the key {missing[0]}", "name the keys among the columns", field="columns")
    return _unique(names)


@dataclass(frozen=True, slots=True)
class ServedTableSpec(Declared, InLake):
    """A table in a database that follows a Delta table: its changes are upserted by key."""

    table: Annotated[TablePath, Field(examples=["gold/daily_usage"])]
    """The Delta table's path below the lake's root ($KDI_LAKE): of a stream, of a refined table, or any other one."""
    into: Annotated[
        ServeTarget,
        WrittenAs(Annotated[WrittenTarget, BeforeValidator(_one_target)], _target),
        Field(examples=[{"postgres": {"schema": "analytics", "table": "daily_usage"}}]),
    ]
    """The table in a database: {postgres: {…}} or {duckdb: {…}}. Nobody else writes to it."""
    keys: Annotated[tuple[ColumnName, ...], AfterValidator(_unique), Field(min_length=1, examples=[["date", "host"]])]
    """Columns that identify a row; the primary key in the database. No two rows of the Delta table have the same."""
    columns: Annotated[
        tuple[ColumnName, ...],
        AfterValidator(_columns),
        Field(validate_default=False, examples=[["date", "host", "requests"]]),
    ] = ()
    """Columns that are served; by default all of the Delta table, later ones too."""
    cron: Annotated[str | None, AfterValidator(cron_expression), Field(examples=["0 * * * *"]), VARIABLE_LIMIT] = None
    """Times (UTC) at which changes are served. Without it, a run starts as soon as the Delta table has changed."""
    freshness: Annotated[FreshnessLimits | None, Field(examples=[{"warn": "1 hour", "fail": "6 hours"}])] = None
    """How old the newest materialization may be. It makes a freshness policy in Dagster."""
    description: Annotated[str, Field(examples=["Requests by date and host, for dashboards"])] = ""
    """What the table holds, for its readers."""
    owners: Annotated[tuple[Owner, ...], Field(examples=[["team:web"]])] = field(default=())
    """Teams (team:name) and mail addresses that own the table."""
    lake: Annotated[str, NotWritten()] = ""

    @property
    def name(self) -> str:
        """The target's path, such as ``postgres/public/daily_usage``: its name in commands and messages."""
        return "/".join(self.into.path)

    @property
    def definition(self) -> str:
        """A digest of what decides the rows in the database; with another, all rows are compared or loaded again."""
        return self._definition(self.table)

    def has_definition(self, digest: str, *, place: str) -> bool:
        """Whether a digest is that of this document, whatever path its Delta table had then.

        A table that was renamed keeps its id, which is compared beside this.

        Args:
            place: Where the Delta table was when the digest was made: its path, below the root or with it.
        """
        parts = place.split("/")
        return any(digest == self._definition("/".join(parts[first:])) for first in range(len(parts)))

    def _definition(self, table: str) -> str:
        return sha256(json.dumps([table, self.keys, self.columns]).encode()).hexdigest()[:16]
