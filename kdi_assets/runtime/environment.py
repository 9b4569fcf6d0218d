"""State of the process that PySpark changes: environment variables, Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from getpass import getuser


@contextmanager
def environment_set(variables: Mapping[str, str]) -> Iterator[None]:
    """Set ``variables`` for the body and restore them after it."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def interrupts_kept() -> Iterator[None]:
    """Restore the handler of Ctrl-C after the body: PySpark replaces it, and Dagster and the driver need their own."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def whoami() -> str:
    """The name of the user that runs this process."""
    try:
        return getuser()
    except (KeyError, OSError):  # a container may run with a user id that has no name
        return str(os.getuid())
