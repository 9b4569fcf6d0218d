"""Load the documents again, in a code server that can: ours can (``resources/code_server.py``), Dagster's cannot.

And end the ticks that wait for something to come, when their definitions are replaced or their code server stops.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event


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


_TICKS_END = [Event()]
"""One: set when the ticks that wait now have to end; those after it wait for another one, unless this process stops."""


def ticks_end() -> Event:
    """Set when ticks that began before have to end: their code server has other definitions, or stops."""
    return _TICKS_END[0]


def end_ticks(*, for_good: bool = False) -> None:
    """End the ticks that wait.

    Args:
        for_good: Let those that begin later not wait either: this process stops, which takes as long as its runs.
    """
    ended = _TICKS_END[0]
    if not (for_good or ended.is_set()):
        _TICKS_END[:] = [Event()]
    ended.set()
