"""Connections to the database of a served table, and the one place that translates psycopg's errors."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kdi_assets.documents.model.connections.postgres_address import connection_parameters, host_port_database
from kdi_assets.documents.model.served_table import Postgres
from kdi_assets.errors import KdiError
from kdi_assets.follow.serve.errors import (
    AddressWrong,
    DatabaseBusy,
    DatabaseRefuses,
    DatabaseUnavailable,
    DependentObjects,
    ValueNotStorable,
)
from kdi_assets.follow.serve.postgres.embedded import FOLDER, start_postgres

if TYPE_CHECKING:
    import psycopg

CONNECT_SECONDS = 10
LOCK_MILLISECONDS = 30_000
"""How long a statement waits for another session's lock."""
REFUSED_AT_CONNECT = ("authentication", "does not exist", "no pg_hba.conf entry", "permission denied", "role ")
"""Parts of the messages by which a server that answers refuses a connection: libpq gives no SQLSTATE then."""
BUSY_AT_CONNECT = ("too many connections", "due to timeout", "No such file")
"""Parts of messages with one of these parts that pass all the same."""

_GRANT = "grant what is missing (docs/served-tables.md, Rights)"
_SHORTER = "serve it by other `keys`, or drop the index of your own that it names: the value is too long for an index"
_MENDS: Mapping[str, str] = {
    "42501": _GRANT,
    "28": _GRANT,
    # A constraint of an index, a foreign key or a CHECK of the users' own: the rows are those of the Delta table.
    "23": "drop the constraint that it names, or mend the rows upstream",
    "": "mend what it names",
}
"""By the beginning of SQLSTATE, what to do about a refusal; the first that fits counts."""


@dataclass(frozen=True, slots=True)
class Database:
    """How to reach the database of a served table.

    Attributes:
        target: The served table's name, for errors.
        parameters: libpq's connection parameters; one may be a password.
    """

    target: str
    parameters: Mapping[str, str] = field(repr=False)

    @property
    def server(self) -> str:
        """Host, port and database, for messages."""
        host, port, database = host_port_database(self.parameters)
        return f"{'the embedded PostgreSQL' if host.startswith('/') else f'{host}:{port}'}/{database}"

    @property
    def client(self) -> str:
        """A command that opens the database, without a password."""
        if self.server.startswith("the embedded"):
            return "kdi psql"
        shown = {k: v for k, v in self.parameters.items() if k in ("host", "port", "user", "dbname", "sslmode")}
        return 'psql "' + " ".join(f"{name}={value}" for name, value in shown.items()) + '"'

    @contextmanager
    def connected(self) -> Iterator[psycopg.Connection]:
        """An open connection, in autocommit mode.

        Raises:
            DatabaseUnavailable, DatabaseBusy, DatabaseRefuses, ValueNotStorable, DependentObjects: psycopg failed.
        """
        import psycopg

        with self.failures(), psycopg.connect(**self.parameters, autocommit=True) as connection:  # type: ignore[arg-type]
            connection.execute(f"SET lock_timeout = {LOCK_MILLISECONDS}")
            yield connection

    @contextmanager
    def failures(self) -> Iterator[None]:
        """Translate psycopg's errors."""
        import psycopg

        try:
            yield
        except psycopg.Error as failed:
            raise self.error(failed.sqlstate, str(failed)) from failed

    def error(self, sqlstate: str | None, message: str) -> KdiError:
        """Our error for one of PostgreSQL's.

        Source: PostgreSQL 16, "PostgreSQL Error Codes".
        """
        detail = " ".join(message.split())[:500]
        for secret in (v for name, v in self.parameters.items() if name in ("password", "sslpassword")):
            detail = detail.replace(secret, "***")
        if sqlstate is None:
            refused = _has_one(message, REFUSED_AT_CONNECT) and not _has_one(message, BUSY_AT_CONNECT)
            if refused:
                return DatabaseRefuses(target=self.target, server=self.server, detail=detail, mend=_GRANT)
            return DatabaseUnavailable(target=self.target, server=self.server, detail=detail)
        if sqlstate == "2BP01":
            return DependentObjects(target=self.target, detail=detail)
        if sqlstate == "54000":
            return ValueNotStorable(target=self.target, detail=detail, mend=_SHORTER)
        if sqlstate[:2] == "22":
            return ValueNotStorable(target=self.target, detail=detail)
        if sqlstate[:2] in ("40", "55"):
            return DatabaseBusy(target=self.target, server=self.server, detail=detail)
        # 25006: it is a standby since a failover; 25P03: it ended an idle transaction.
        if sqlstate[:2] in ("08", "53", "57", "58") or sqlstate in ("25006", "25P03"):
            return DatabaseUnavailable(target=self.target, server=self.server, detail=detail)
        mend = next(text for start, text in _MENDS.items() if sqlstate.startswith(start))
        return DatabaseRefuses(target=self.target, server=self.server, detail=detail, mend=mend)


def _has_one(message: str, parts: Collection[str]) -> bool:
    return any(part in message for part in parts)


def database_of(target: Postgres, *, home: Path) -> Database:
    """The database that a document names; without ``url`` the embedded server, which is started if necessary.

    Args:
        home: Folder of the embedded server's data.

    Raises:
        AddressWrong: What the document or its variable gives is not an address.
        PostgresDied: There is no ``url``, and the embedded server does not run.
        EnvironmentVariableMissing, SecretUnreadable, SecretUnanswered: A reference gives no value.
    """
    name, properties = "/".join(target.path), target.properties
    url = properties.get("url") or start_postgres(home / FOLDER).url
    try:
        parameters = connection_parameters(url)
    except ValueError:
        raise AddressWrong(target=name) from None
    if password := properties.get("password"):
        parameters["password"] = password
    defaults = {"connect_timeout": str(CONNECT_SECONDS), "application_name": "kdi serve", "keepalives_idle": "30"}
    return Database(name, {**defaults, **parameters})
