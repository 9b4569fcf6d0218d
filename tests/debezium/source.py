"""A PostgreSQL, and Debezium's own connector that sends its changes to a broker: what streams of changes really are."""

from __future__ import annotations

import atexit
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import psycopg

from kdi_assets.runtime.jars import fetch_jars, jar_paths, locked_jars
from kdi_assets.runtime.java import find_java
from kdi_assets.runtime.processes import Child
from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import free_port

FOLDER = Path(__file__).parent
LOCK = FOLDER / "jars.lock.json"


@dataclass(frozen=True, slots=True)
class Database:
    """A running PostgreSQL with a log that connectors can read; user and database are ``postgres``."""

    port: int

    @property
    def url(self) -> str:
        """By which clients find it."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def execute(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement in a transaction of its own, and return its rows."""
        with psycopg.connect(self.url) as connection:
            # Constants of tests.
            cursor = connection.execute(sql.encode(), values or None)
            return cursor.fetchall() if cursor.description else []


@contextmanager
def running_database() -> Iterator[Database]:
    """An empty database; it ends with the body. As root it runs under a user that pgserver makes."""
    with TemporaryDirectory(prefix="kdi-changes-") as folder:
        data, port = Path(folder) / "data", free_port()
        with patch.dict(os.environ, {"XDG_RUNTIME_DIR": folder}):
            from pgserver import postgres_server
            from pgserver._commands import pg_ctl  # type: ignore[attr-defined]

            made = postgres_server.get_server(data)
            made.cleanup()
            atexit.unregister(made._cleanup)
        # pgserver's own start listens on no port, and connectors know no sockets.
        options = f"-h 127.0.0.1 -p {port} -k {data} -c wal_level=logical -c fsync=off"
        pg_ctl(["-w", "-o", options, "-l", str(data / "log"), "start"], pgdata=data, user=made.system_user)
        try:
            yield Database(port)
        finally:
            pg_ctl(["-m", "immediate", "stop"], pgdata=data, user=made.system_user)


class Connector:
    """Debezium's connector of a database, in a process of its own.

    Args:
        folder: Gets its offsets, its log and the compiled program.
        properties: Debezium's own, with ``_`` for ``.``; ``topic_prefix`` is the first part of the topics' names.
    """

    def __init__(self, database: Database, brokers: str, folder: Path, settings: Settings, **properties: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._child: Child | None = None
        jars = connector_jars(settings)
        given = {name.replace("_", "."): value for name, value in properties.items()}
        (folder / "connector.properties").write_text(
            "".join(f"{name}={value}\n" for name, value in {**_properties(database, folder), **given}.items())
        )
        java = find_java(settings.home) / "bin" / "java"
        class_path = os.pathsep.join(map(str, jars))
        (compiler,) = jar_paths(settings.home / "jars", "build")
        options = ["-source", "17", "-target", "17", "-nowarn", "-cp", class_path, "-d", str(folder / "classes")]
        subprocess.run([java, "-jar", compiler, *options, FOLDER / "Connector.java"], check=True)
        jvm: list[str | Path] = [java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]
        self._command = [
            *jvm,
            f"{class_path}:{folder / 'classes'}",
            "Connector",
            folder / "connector.properties",
            brokers,
        ]

    def start(self) -> None:
        """Start it where it stopped; the first time, and without its offsets, with a snapshot."""
        self._child = Child(self._command, log=self.folder / "log")

    def kill(self) -> None:
        """Kill it (SIGKILL): what it sent since it last stored its offsets, it sends again."""
        if self._child:
            self._child.kill()
            self._child = None

    def lose_offsets(self) -> None:
        """Forget what was read: the next start makes a new snapshot."""
        (self.folder / "offsets").unlink(missing_ok=True)

    def log(self) -> str:
        """What it printed."""
        return (self.folder / "log").read_text()


def connector_jars(settings: Settings) -> list[Path]:
    """Debezium's jars; fetched once."""
    directory = settings.home / "jars"
    fetch_jars(directory, home=settings.home, report=lambda _: None, groups=("debezium",), lock=LOCK)
    return [directory / jar.group / jar.file_name for jar in locked_jars("debezium", lock=LOCK)]


def _properties(database: Database, folder: Path) -> Mapping[str, str]:
    return {
        "name": "changes",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": str(folder / "offsets"),
        "offset.flush.interval.ms": "500",
        "database.hostname": "127.0.0.1",
        "database.port": str(database.port),
        "database.user": "postgres",
        "database.password": "none",
        "database.dbname": "postgres",
        "plugin.name": "pgoutput",
        "schema.include.list": "public",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    }
