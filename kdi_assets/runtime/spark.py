"""Spark sessions, in a JVM of this process or in the warm driver's; both are used in the same way."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

from kdi_assets.errors import KdiError
from kdi_assets.runtime.driver.drivers import uses_warm_driver
from kdi_assets.runtime.errors import ApplicationEnded, DriverGone, OtherDriverOpen
from kdi_assets.runtime.gateway import activate, cache_jvm_names, first_session, gateway_of, has_ended, is_stopped
from kdi_assets.runtime.spark_config import RUNTIME_CONFIG, SESSION_CONFIG
from kdi_assets.runtime.spark_jvm import PATIENT_COMPILER, QUICK_COMPILER, jvm_of, start_spark
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


SMALL_DRAIN = 20_000
"""Up to so many messages, even large ones, a JVM does without the optimizing compiler, if it ends after them."""
TEST_HELPERS = "pyspark.testing.utils"


def open_session(
    settings: Settings,
    *,
    config: Mapping[str, str] | None = None,
    app_name: str = "kdi",
    output: IO[bytes] | None = None,
    only_messages: int | None = None,
) -> SparkSession:
    """Open a session with ``SESSION_CONFIG`` and ``config``, active in the calling thread.

    The first session of a process starts the JVM (driver ``own``) or attaches to the warm driver (``shared``); ``auto``
    attaches if one runs for the lake. Settings that only a new JVM could take are logged if they differ.

    Args:
        output: For the output of a JVM that it starts; by default this process's standard error.
        only_messages: How many messages a JVM that it starts is for; by default it may be for any number.

    Raises:
        DriverGone: Driver ``shared``, and the warm driver does not run.
        DriverDiffers: Driver ``shared``, and the warm driver has another Spark or another release's kernels.
        DriverOfOtherS3: Driver ``shared``, and the warm driver's endpoint or region of S3 is another one.
        OtherDriverOpen: The process has a JVM of the other kind.
        JavaMissing, JarMissing, SparkDidNotStart, ContextDidNotStart: Driver ``own``, and Spark cannot start.
        KubernetesRefused, YarnRefused, YarnNeedsOtherSettings, YarnDidNotStart: The same, and its cluster forbids it.
        FolderNotWritable, LakeNotShared: Driver ``own`` of a cluster, and the lake is a folder: the driver cannot write
            it, or executors do not see it.
        NoExecutors: The same, and the cluster gives no executor.
    """
    _stub_test_helpers()
    root = _open_root(settings)
    if root is None and not uses_warm_driver(settings):
        config = {**SESSION_CONFIG, **(config or {})}
        is_small = only_messages is not None and only_messages <= SMALL_DRAIN
        compiler = QUICK_COMPILER if is_small else PATIENT_COMPILER
        root = start_spark(settings, config=config, app_name=app_name, output=output, compiler=compiler)
        session = root.newSession()
    else:
        session = (root or _attach(settings)).newSession()
        _configure(session, {**RUNTIME_CONFIG, **(config or {})})
    cache_jvm_names(gateway_of(session))
    use_in_thread(session)
    return session


def close_session(session: SparkSession) -> None:
    """Detach from the warm driver, which cancels the jobs of this process.

    A JVM of this process stays until the process ends, so that the next session opens at once.
    """
    if _is_attached(session):
        session.stop()


def is_open(session: SparkSession) -> bool:
    """Whether the session can still be used: it is not stopped, its JVM runs, and its cluster has not ended it."""
    context = session.sparkContext
    if is_stopped(context):
        return False
    if _is_attached(session):
        jvm_runs = not context.connection.driver_ended()  # type: ignore[attr-defined]
    else:
        jvm_runs = jvm_of(session).poll() is None
    return jvm_runs and not has_ended(context)


def use_in_thread(session: SparkSession) -> None:
    """Make ``session`` the active one of the calling thread, in the JVM too.

    Delta's commit takes its settings from the JVM thread's active session, not from the session that read the table.
    The job group by which a warm driver cancels a dead process's jobs also belongs to a thread.
    """
    # PySpark's builder would otherwise answer with the warm driver's default session, which all processes share.
    activate(session)
    if _is_attached(session):
        session.sparkContext.carry_group()  # type: ignore[attr-defined]


@contextmanager
def changed_settings(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """The session's settings during the body; afterwards those of before, also if the body fails."""
    before = {name: session.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, previous in before.items():
            if previous is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, previous)


@contextmanager
def driver_loss_named(session: SparkSession) -> Iterator[None]:
    """Raise ``DriverGone`` if the body fails because the warm driver of ``session`` has ended, and can be repeated."""
    try:
        yield
    except Exception as failure:
        connection = getattr(session.sparkContext, "connection", None)
        is_repeatable = not isinstance(failure, KdiError) or failure.is_repeatable
        if is_repeatable and connection is not None and connection.driver_ended():
            reason = "it ended while this process was attached"
            if isinstance(failure, ApplicationEnded) and failure.said:  # the driver has ended because of it
                reason += f": {failure.message_parts()[0].rstrip('.')}"
            raise DriverGone(home=connection.folder, reason=reason) from failure
        raise


def _open_root(settings: Settings) -> SparkSession | None:
    """The first session of this process, if it is still open."""
    root = first_session()
    if root is None or not is_open(root):
        if root is not None and _is_attached(root):
            root.stop()
        return None
    if settings.driver != "auto" and _is_attached(root) != (settings.driver == "shared"):
        raise OtherDriverOpen(wanted=settings.driver)
    return root


def _attach(settings: Settings) -> SparkSession:
    from kdi_assets.runtime.driver.attach import attach

    return attach(settings)


def _is_attached(session: SparkSession) -> bool:
    return hasattr(session.sparkContext, "connection")


def _configure(session: SparkSession, config: Mapping[str, str]) -> None:
    from pyspark.errors import AnalysisException

    for key, value in config.items():
        if session.conf.get(key, None) == value:
            continue
        try:
            session.conf.set(key, value)
        except AnalysisException:
            log.warning("%s stays %s: only a new JVM could take %r", key, session.conf.get(key, None), value)


def _stub_test_helpers() -> None:
    """Put a stub in place of PySpark's test helpers, so that numpy, pandas and pyarrow are not loaded.

    PySpark asks them, at the first call into the JVM and in ``functions.lit``, whether numpy is installed, and they
    load all three: a second in every process. The stub answers whether numpy is loaded, because otherwise no value can
    be one of numpy's, and loads the real module for any other name.

    Source: PySpark 4.2, ``pyspark/sql/types.py`` (``NumpyScalarConverter``), ``pyspark/testing/utils.py``.
    """
    if TEST_HELPERS in sys.modules:
        return
    helpers = ModuleType(TEST_HELPERS, "Stub of PySpark's test helpers.")

    def load(name: str) -> Any:
        if name == "have_numpy":
            return "numpy" in sys.modules
        if name.startswith("__"):  # Python's import looks these up
            raise AttributeError(name)
        if sys.modules.get(TEST_HELPERS) is helpers:
            del sys.modules[TEST_HELPERS]
        return getattr(import_module(TEST_HELPERS), name)

    vars(helpers).update(__getattr__=load)
    sys.modules[TEST_HELPERS] = helpers
