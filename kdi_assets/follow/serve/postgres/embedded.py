"""PostgreSQL on this machine for demo and tests: the server of the package `pgserver`, reached through a socket."""

from __future__ import annotations

import atexit
import signal
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from kdi_assets.errors import Terminal
from kdi_assets.runtime.environment import environment_set

FOLDER = "postgres"
STOP_SECONDS = 20.0


class PostgresDied(Terminal):
    """The embedded PostgreSQL is not installed, or does not start."""

    data: Path
    detail: str

    what_happened = "the embedded PostgreSQL with its data in {data} does not run: {detail}"
    what_is_safe = "its data was not changed."
    what_to_run = "pip install 'kdi-assets[embedded]'    (Python below 3.13; or give served tables a url)"


@dataclass(frozen=True, slots=True)
class EmbeddedPostgres:
    """A running server; it ends with the last process that started it, its data stay.

    Attributes:
        url: Of the database ``postgres``, for the user ``postgres``.
        data: Folder of its data.
        psql: Path of its psql.
    """

    url: str
    data: Path
    psql: Path
    _cleanup: Callable[[], None]

    def stop(self) -> None:
        """Give the server up; it ends if no other process uses it."""
        self._cleanup()
        atexit.unregister(self._cleanup)


def start_postgres(data: Path) -> EmbeddedPostgres:
    """Start the server with its data in a folder, or use the one that runs there.

    Raises:
        PostgresDied: The package is not installed, or the server does not start.
    """
    data = data.absolute()
    # pgserver keeps its lock there, and warns if the folder does not exist or others may enter it.
    runtime = data.with_name(f"{data.name}-runtime")
    runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with environment_set({"XDG_RUNTIME_DIR": str(runtime)}):
            import pgserver
            from pgserver import postgres_server

            server = postgres_server.get_server(data)
    except ImportError as missing:
        raise PostgresDied(data=data, detail=str(missing)) from missing
    except (OSError, subprocess.SubprocessError, AssertionError) as failed:
        raise PostgresDied(data=data, detail=f"it did not start: {failed}") from failed
    psql = Path(pgserver.__file__).parent / "pginstall" / "bin" / "psql"
    return EmbeddedPostgres(server.get_uri(), data, psql, server._cleanup)


def postgres_runs(data: Path) -> bool:
    """Whether the server with this folder is known to run, whoever started it; what cannot be read counts as no."""
    try:
        return _process(data) is not None
    except (OSError, ValueError, IndexError, psutil.Error):  # e.g. another user's folder, or an empty file
        return False


def _process(data: Path) -> psutil.Process | None:
    try:
        server = psutil.Process(int((data / "postmaster.pid").read_text().split()[0]))
        # pgserver resolves links. Without the folder among its words, the file is old, and the number is another's now.
        return server if str(data.resolve()) in server.cmdline() else None
    except (FileNotFoundError, psutil.NoSuchProcess):
        return None


def stop_postgres(data: Path) -> None:
    """Stop the server with this folder, whoever started it: a process that was killed cannot stop its own.

    Raises:
        PostgresDied: It runs on.
    """
    if (server := _process(data)) is None:
        return
    try:
        server.send_signal(signal.SIGINT)  # PostgreSQL's "fast shutdown": it does not wait for clients
        server.wait(STOP_SECONDS)
    except psutil.NoSuchProcess:
        return
    except psutil.TimeoutExpired as runs_on:
        raise PostgresDied(data=data, detail=f"it did not end in {STOP_SECONDS:.0f} s") from runs_on
