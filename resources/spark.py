"""Spark as a Dagster resource: one session per run, in the warm driver or in a JVM of the run's own process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dagster as dg
from dagster_pyspark import LazyPySparkResource
from dagster_spark.utils import flatten_dict
from pydantic import Field, PrivateAttr
from pyspark.sql import SparkSession

from kdi_assets.drain.shared_read import Drained
from kdi_assets.runtime.spark import close_session, driver_loss_named, is_open, open_session, use_in_thread
from kdi_assets.settings import Settings


class SparkResource(LazyPySparkResource):
    """A Spark session with what the engine needs, opened when it is first asked for."""

    spark_config: dict[str, Any] = Field(
        default={}, description="Spark's settings, nested or with dots; they go before the engine's."
    )

    _drained: dict[str, Drained | None] = PrivateAttr(default_factory=dict)

    @property
    def drained(self) -> dict[str, Drained | None]:
        """By stream, what a step of the run did for one whose own step comes later; ``None`` once that has come."""
        return self._drained

    def session(self) -> SparkSession:
        """The run's session, active in the calling thread; pass the method itself to whoever may need none."""
        session: SparkSession = self.spark_session
        return session

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Name the end of the warm driver when that is why the body failed.

        Raises:
            DriverGone: It is.
        """
        try:
            yield
        except Exception:
            if self._spark_session is None:
                raise
            with driver_loss_named(self._spark_session):
                raise

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        """Detach from the warm driver; a JVM of the process's own stays for its next run, and ends with the process."""
        if self._spark_session is not None:
            close_session(self._spark_session)
            self._spark_session = None

    def _init_session(self) -> None:
        if self._spark_session is None or not is_open(self._spark_session):
            flat = flatten_dict(self.spark_config)  # type: ignore[no-untyped-call]
            config = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in flat}
            self._spark_session = open_session(Settings.from_environment(), config=config, app_name="kdi run")
        use_in_thread(self._spark_session)
