"""Load the documents again, in a code server that can: ours can (``resources/code_server.py``), Dagster's cannot."""

from __future__ import annotations

from collections.abc import Callable


class ReloadFailed(Exception):
    """The definitions could not be loaded; those from before go on."""


_RELOADS: list[Callable[[], None]] = []
"""At most one: the code server of this process."""


def set_reload(reload: Callable[[], None]) -> None:
    """Say how this process loads its definitions again."""
    _RELOADS[:] = [reload]


def reload_location() -> bool:
    """Load the code location of this process again; false if the process cannot.

    Raises:
        ReloadFailed: The location stays as it was.
    """
    for reload in _RELOADS:
        reload()
    return bool(_RELOADS)
