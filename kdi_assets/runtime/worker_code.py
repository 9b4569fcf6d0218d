"""Our own code in Spark's Python workers."""

from __future__ import annotations

from types import ModuleType


def send_by_value(*modules: ModuleType) -> None:
    """Send the functions of these modules and packages to workers by value, not by the names of their modules.

    Workers of a warm driver may still have an older release of this package, and executors elsewhere may have none.
    Packages of others are sent by name: a worker needs them.
    """
    from pyspark import cloudpickle

    for module in modules:
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
