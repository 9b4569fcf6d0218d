"""What Spark fails with in commands that only read, said as a refusal; a drain translates its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kdi_assets.errors import Transient
from kdi_assets.stream import Stream


class SparkFailed(Transient):
    """Spark could not do what a command asked for."""

    stream: str
    command: str
    detail: str

    def parts(self) -> tuple[str, str, str]:
        return (
            f"{self.stream}: {self.command}: Spark failed: {self.detail}",
            "what was committed stays committed; nothing else was written.",
            "the same command once more",
        )


@contextmanager
def spark_failures(command: str, stream: Stream) -> Iterator[None]:
    """Translate what Spark fails with at run time; what it does not understand is a bug of ours, and stays one.

    Raises:
        SparkFailed: The body failed in Spark, or lost it.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import AnalysisException, PySparkException

    from kdi_assets.drain.failures import root_cause

    try:
        yield
    except AnalysisException:
        raise
    except (PySparkException, Py4JError, ConnectionError) as failed:  # the last: what py4j lets pass when the JVM died
        raise SparkFailed(stream=stream.name, command=command, detail=root_cause(failed)) from failed
