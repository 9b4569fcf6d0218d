"""What the process imports that a code server forks its runs off, so that a run finds it there.

Nothing here may start a thread, which a fork would lose: a run imports deltalake and pyarrow itself. Nothing may be
kept that can change: a run opens Dagster's instance and reads the documents of its streams itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from dagster import DagsterInstance

from kdi_assets.runtime.processes import killed_with_parent

log = logging.getLogger(__name__)


@contextmanager
def _said() -> Iterator[None]:
    """What fails here fails in every run once more, which can tell more of it."""
    try:
        yield
    except Exception:
        log.exception("every run will import this anew")


forking = os.getpid()
# The code server takes the runs for dead when this process dies, and they are tried again.
os.register_at_fork(after_in_child=lambda: killed_with_parent(forking))
for module in ("dagster._cli.api", "dagster._grpc.server", "pyspark.sql", os.environ["KDI_DEFINITIONS_MODULE"]):
    with _said():
        import_module(module)
with _said(), DagsterInstance.get():  # imports its storage
    pass
