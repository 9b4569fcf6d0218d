"""Imports of the process whose forks are the runs of a code server (``kdi_assets.resources.code_server``).

A fork has the importing thread alone. So no import here may need another one: those that numpy, pyarrow and deltalake
start are OpenBLAS' and jemalloc's, which prepare for forks. State that can change may be used only by a run that has
compared it, as the definitions of ``kdi_assets.inherited_definitions``: each run opens Dagster's instance itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from dagster import DagsterInstance

from kdi_assets.resources.dagster_internals import MODULES_OF_RUNS
from kdi_assets.runtime.processes import killed_with_parent

log = logging.getLogger(__name__)
DECODERS = tuple(
    f"kdi_assets.messages.formats.{module}"
    for module in ("avro.decoder", "json", "json_schema.decoders", "protobuf.decoder", "registry.schemas")
)
"""Of formats that most streams have; a stream imports only its own, which here would be in each run."""
CLIENTS = (
    "deltalake",
    "pyarrow.acero",
    "pyspark.sql.classic.dataframe",
    "kdi_assets.messages.kafka.source",
    "kdi_assets.runtime.driver.attach",
)
"""What most drains ask Kafka, tables and Spark with, which in each run would take half a second."""


@contextmanager
def _errors_logged() -> Iterator[None]:
    """An import that fails here fails again in each run, which reports it better."""
    try:
        yield
    except Exception:
        log.exception("every run will import this again")


forking = os.getpid()
# When this process dies, the code server counts its runs as dead, and Dagster retries them: so they must end.
os.register_at_fork(after_in_child=lambda: killed_with_parent(forking))
for module in (*MODULES_OF_RUNS, *CLIENTS, *DECODERS, os.environ["KDI_DEFINITIONS_MODULE"]):
    with _errors_logged():
        import_module(module)
with _errors_logged(), DagsterInstance.get():  # imports its storage
    pass
with _errors_logged():
    make = import_module("kdi_assets.definitions").folder_definitions
    import_module("kdi_assets.inherited_definitions").make_for_forks(make)
