"""PySpark without what it loads for nothing."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView

HELPERS = "pyspark.testing.utils"
NAMES = ("functions", "io", "java", "org", "scala", "PythonSQLUtils", "PythonUtils")
"""What PySpark asks the JVM for again and again: classes by their short names, and first parts of long ones."""


def spare_pandas() -> None:
    """Let PySpark find out whether numpy is installed without loading pandas and pyarrow.

    On the first call into the JVM and in ``functions.lit`` it asks its own test helpers, and they load both: a second
    of every process that attaches. In their place stands a module that knows this answer and loads them for any other.

    Source: PySpark 4.2, ``pyspark/sql/types.py`` (``NumpyScalarConverter``), ``pyspark/testing/utils.py``.
    """
    if HELPERS in sys.modules:
        return
    helpers = ModuleType(HELPERS, "Stands in for PySpark's test helpers until more of them is needed.")

    def load(name: str) -> Any:
        if name.startswith("__"):  # Python's import asks for these
            raise AttributeError(name)
        if sys.modules.get(HELPERS) is helpers:
            del sys.modules[HELPERS]
        return getattr(import_module(HELPERS), name)

    vars(helpers).update(have_numpy=find_spec("numpy") is not None, __getattr__=load)
    sys.modules[HELPERS] = helpers


def remember_names(jvm: JVMView) -> None:
    """Let the JVM say once what these names stand for; a twentieth of what a drain or a replay takes.

    It looks for a class of that name in every package that PySpark imports and in every jar, for each column anew.

    Source: Py4J 0.10.9, ``py4j/java_gateway.py`` (``JVMView.__getattr__``).
    """
    for name in NAMES:
        if name not in vars(jvm):
            setattr(jvm, name, getattr(jvm, name))
