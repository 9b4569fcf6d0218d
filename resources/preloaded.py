"""What the process imports that a code server forks its runs off, so that a run finds it there.

Nothing here may start a thread, which a fork would lose: a run imports deltalake and pyarrow itself. It also opens
Dagster's instance and reads the documents of its streams itself.
"""

import os
from contextlib import suppress
from importlib import import_module

from dagster import DagsterInstance
from dagster.components.definitions import LazyDefinitions

import resources.code_server  # noqa: F401

import_module("pyspark.sql")
with suppress(Exception):  # an instance that is not there yet, definitions that do not load: every run says so itself
    with DagsterInstance.get():
        pass
    for target in vars(import_module(os.environ["KDI_DEFINITIONS_MODULE"])).copy().values():
        if isinstance(target, LazyDefinitions):
            target()
