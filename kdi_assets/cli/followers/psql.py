"""`kdi psql`: a shell of the embedded PostgreSQL."""

from __future__ import annotations

import subprocess
from typing import Annotated

import typer

from kdi_assets.settings import Settings


def psql(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[-- ARGUMENT…]", help="Passed on to psql.")] = None,
    command: Annotated[str | None, typer.Option("-c", help="Run one statement, and end.")] = None,
) -> None:
    """Open the embedded PostgreSQL, which serves tables whose documents have no url.

    The server runs while a process uses it; its data stay in KDI_HOME.

    Exit codes: those of psql; 1 also if the server does not start.
    """
    from kdi_assets.follow.serve.postgres.embedded import FOLDER, start_postgres

    server = start_postgres(Settings.from_environment().home / FOLDER)
    more = ["-c", command] if command else []
    try:
        ended = subprocess.run([server.psql, server.url, *more, *(arguments or ())], check=False)
    finally:
        server.stop()
    raise typer.Exit(ended.returncode)
