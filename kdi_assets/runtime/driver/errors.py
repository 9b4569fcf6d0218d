"""Errors of the warm driver."""

from __future__ import annotations

from pathlib import Path

from kdi_assets.errors import Terminal, Transient


class DriverDiffers(Terminal):
    """The warm driver runs another Spark than this process speaks."""

    theirs: str
    ours: str

    what_happened = "the warm driver runs Spark {theirs}, this process has PySpark {ours}."
    what_is_safe = "nothing was read or written."
    what_to_run = "kdi driver stop && kdi driver run"


class DriverGone(Transient):
    """There is no warm driver to attach to, or it ended while this process was attached."""

    home: Path
    reason: str

    what_happened = "the warm driver of {home} is gone: {reason}."
    what_is_safe = "what was committed stays committed; the next drain starts from what the table says."
    what_to_run = "kdi driver run    (and then the same again; or KDI_DRIVER=own for a driver in the process itself)"


class DriverJvmEnded(Transient):
    """The JVM of the warm driver ended under it."""

    exit_code: int
    log: Path

    what_happened = "the warm driver's JVM ended with code {exit_code}; {log} says why."
    what_is_safe = "what was committed stays committed; the next drains start from what the tables say."
    what_to_run = "kdi driver run"


class DriverRuns(Terminal):
    """A home has one warm driver."""

    home: Path

    what_happened = "a warm driver of {home} runs already, or is about to start or end."
    what_is_safe = "it was left alone."
    what_to_run = "kdi driver status    (or kdi driver stop, and then the same again)"
