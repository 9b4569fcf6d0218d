"""Lets the listeners that are configured hear of a run; without one, nothing of them is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kdi_assets.follow.listeners.heard import HeardCommit, HeardTable
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def listening(
    kind: str,
    table: HeardTable,
    lake: str,
    session: Callable[[], SparkSession],
    *,
    run_id: str = "",
    kept_failure: Callable[[], BaseException | None] = lambda: None,
) -> Iterator[Callable[[HeardCommit], None]]:
    """Let OpenLineage and the catalog hear of a run, if one of them is configured. They never make it fail.

    Args:
        kind, session, run_id: As in ``RunListener``.
        kept_failure: Gives the failure of a body that does not raise it.

    Yields:
        What to call with every commit of the run.
    """
    settings = Settings.from_environment()
    if not settings.has_listeners:
        yield lambda commit: None
        return
    from kdi_assets.follow.listeners.run_listener import RunListener  # a plain run enters none of it

    listener = RunListener(settings, kind, table, lake, session, run_id=run_id)
    try:
        yield listener.committed
    except BaseException as failure:
        listener.ended(failure)
        raise
    listener.ended(kept_failure())
