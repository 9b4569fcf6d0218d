"""A real PostgreSQL for the tests: one server per test process, a database of its own for each site."""

from __future__ import annotations

import atexit
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch


class Postgres:
    """A server that listens on a socket in its own folder and on no port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create_database(self, name: str) -> dict[str, str]:
        """Make an empty database; the answer is the environment by which clients find it."""
        import psycopg2

        found = {"PGHOST": str(self._folder), "PGUSER": "postgres", "PGDATABASE": name}
        with closing(psycopg2.connect(host=self._folder, user="postgres", dbname="postgres")) as connection:
            connection.autocommit = True
            connection.cursor().execute(f'CREATE DATABASE "{name}"')
        return found


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A server with nothing in it; it ends with the body, or else with this process.

    Its folder is none of pytest's: as root it runs under a user that pgserver makes, and every start of pytest takes
    its own folders back from other users.
    """
    with TemporaryDirectory(prefix="kdi-postgres-") as folder:
        # pgserver keeps a lock of its own there, and warns where there is no such folder.
        with patch.dict(os.environ, {"XDG_RUNTIME_DIR": folder}):
            from pgserver import postgres_server

            server = postgres_server.get_server(Path(folder) / "data")
        try:
            yield Postgres(Path(server.get_postmaster_info().socket_dir))
        finally:
            server.cleanup()
            atexit.unregister(server._cleanup)  # at exit it would make its lock's folder anew
