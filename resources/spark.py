"""Spark as a Dagster resource: one session per run, in the warm driver or in a JVM of the run's process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from dagster_spark.utils import flatten_dict
from pydantic import Field, PrivateAttr
from pyspark.sql import SparkSession

from kdi_assets.runtime.spark import close_session, driver_loss_named, is_open, open_session, use_in_thread
from kdi_assets.runtime.step_watch import LOG_SECONDS, LogLines, StepWatch
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.shared_read import Drained


class SparkResource(LazyPySparkResource):
    """A Spark session with the engine's settings, opened on first use."""

    spark_config: dict[str, Any] = Field(
        default={}, description="Spark's settings, nested or with dots; they override the engine's."
    )

    _drained: dict[str, Drained | None] = PrivateAttr(default_factory=dict)

    @property
    def drained(self) -> dict[str, Drained | None]:
        """State of a shared drain, for the steps of one run (``components.table_run.SharedDrain``)."""
        return self._drained

    def session(self) -> SparkSession:
        """The run's session, active in the calling thread. Pass the method itself where a session may not be needed."""
        session: SparkSession = self.spark_session
        return session

    @contextmanager
    def watched(self, log: Callable[[str], None] | None = None) -> Iterator[None]:
        """Log now and then how far the body is, and name the loss of the warm driver if that made it fail.

        Args:
            log: Takes a line for the run's log; called from a thread, too. ``None``: nothing is logged.

        Raises:
            DriverGone: The warm driver ended.
        """
        shown = LogLines(log) if log else None
        watch = StepWatch(shown, spark=lambda: self._spark_session, every=LOG_SECONDS)
        try:
            with watch.watching():
                yield
        except Exception:
            if self._spark_session is None:
                raise
            with driver_loss_named(self._spark_session):
                raise

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Detach from the warm driver. A JVM of the process stays for its next run, and ends with the process."""
        if self._spark_session is not None:
            close_session(self._spark_session)
            self._spark_session = None

    def _init_session(self) -> None:
        if self._spark_session is None or not is_open(self._spark_session):
            flat = flatten_dict(self.spark_config)  # type: ignore[no-untyped-call]
            config = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in flat}
            self._spark_session = open_session(Settings.from_environment(), config=config, app_name="kdi run")
        use_in_thread(self._spark_session)
