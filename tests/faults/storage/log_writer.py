"""Writes the commits of a log by a log store, as Delta does."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import pytest
from py4j.protocol import Py4JJavaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

THREADS = 8


class LogWriter:
    """Writes one commit.

    Args:
        store: The class of the log store.
        commit: The URI of the commit's file.
    """

    def __init__(self, spark: SparkSession, store: str, commit: str) -> None:
        self.jvm = cast("Any", spark._jvm)
        self.configuration = spark.sparkContext._jsc.hadoopConfiguration()
        self.store = getattr(self.jvm, store)(self.configuration)
        self.path = self.jvm.org.apache.hadoop.fs.Path(commit)

    def write(self, *lines: str, overwrite: bool = False) -> None:
        """Write the commit; raises the store's error."""
        actions = self.jvm.java.util.ArrayList()
        for line in lines:
            actions.add(line)
        self.store.write(self.path, actions.iterator(), overwrite, self.configuration)

    def refusal(self, *lines: str) -> str:
        """The error of a write that must fail."""
        with pytest.raises(Py4JJavaError) as refused:
            self.write(*lines)
        return str(refused.value.java_exception.toString())

    def winners(self) -> list[str]:
        """The lines that threads wrote as the commit, all at once; to the others the version was taken."""

        def write(number: int) -> str:
            try:
                self.write(line := f"of {number}")
            except Py4JJavaError as refused:
                assert "FileAlreadyExistsException" in str(refused.java_exception.toString())
                return ""
            return line

        with ThreadPoolExecutor(THREADS) as threads:
            return list(filter(None, threads.map(write, range(THREADS))))
