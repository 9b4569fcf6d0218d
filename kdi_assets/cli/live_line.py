"""One line on a terminal that shows how far the work is, and is gone when a step ends."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from kdi_assets.cli.output import print_progress
from kdi_assets.runtime.step_watch import LOG_SECONDS, HowFar, LogLines, Show, StepWatch
from kdi_assets.wording import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession
    from rich.console import Console, RenderableType
    from rich.live import Live

LIVE_SECONDS = 0.5
"""How often the line changes; a shorter step never shows."""
BAR = 24


class LiveLine:
    """The line on a terminal's standard error."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def show(self, now: HowFar) -> None:
        """As ``Show``."""
        from rich.live import Live

        if self._live is None:
            # Standard output has the results and is not ours; what others print on standard error stays above the line.
            self._live = Live(
                console=self._console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=True
            )
            self._live.start()
        self._live.update(_line(now), refresh=True)

    def clear(self) -> None:
        """Erase the line."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def _line(now: HowFar) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    share = now.share
    bar = ProgressBar(total=1.0, completed=share, width=BAR) if share is not None else Text("")
    grid.add_row(Text(now.head()), bar, Text(", ".join(now.facts())))
    return grid


def watch_of_command(*, as_json: bool, spark: Callable[[], SparkSession | None] = lambda: None) -> StepWatch:
    """A watch that shows a line on a terminal, else a line of text every 30 seconds; with ``--json`` nothing.

    Args:
        spark: As in ``StepWatch``.
    """
    if as_json:
        return StepWatch(None, every=LIVE_SECONDS)
    # With KDI_VERBOSE, Kafka's clients and Spark write to the same terminal, past Python.
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("KDI_VERBOSE"):
        from rich.console import Console

        shown: Show = LiveLine(Console(stderr=True, highlight=False))
        return StepWatch(shown, spark=spark, every=LIVE_SECONDS)
    return StepWatch(LogLines(print_progress), spark=spark, every=LOG_SECONDS)


def interrupted_text(watch: StepWatch) -> str:
    """What Ctrl-C left: what is safe, and what to look at."""
    step, name = watch.interrupted or (None, "")
    where = f" ({f'{name}: ' if name else ''}{step.doing})" if step else ""
    if step and step.commits:
        return f"interrupted{where}: this commit landed whole or not at all; kdi status shows which"
    if watch.commits:
        landed = counted(watch.commits, "commit")
        return f"interrupted{where}: {landed} landed before; nothing else was committed; kdi status shows what waits"
    return f"interrupted{where}: nothing was committed; the same command begins again"
