"""Keep secrets out of what py4j logs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident


@contextmanager
def unlogged_by_py4j() -> Iterator[None]:
    """Log no call of this thread: at DEBUG py4j logs every argument, also one that is a secret."""
    thread, loggers = get_ident(), [logging.getLogger(f"py4j.{module}") for module in ("java_gateway", "clientserver")]

    def of_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    for logger in loggers:
        logger.addFilter(of_others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(of_others)
