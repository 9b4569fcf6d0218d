"""Spark sessions: in a JVM of this process, or in the warm driver's; the same to whoever uses them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kdi_assets.runtime.driver.errors import DriverGone
from kdi_assets.runtime.errors import OtherDriverOpen
from kdi_assets.runtime.spark_config import RUNTIME_CONFIG, SESSION_CONFIG
from kdi_assets.runtime.spark_jvm import jvm_of, start_spark
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from py4j.java_gateway import JVMView
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


HELPERS = "pyspark.testing.utils"
NAMES = ("functions", "io", "java", "org", "scala", "PythonSQLUtils", "PythonUtils")
"""What PySpark asks the JVM for again and again: classes by their short names, and first parts of long ones."""


def open_session(settings: Settings, *, config: Mapping[str, str] | None = None, app_name: str = "kdi") -> SparkSession:
    """Open a session with ``SESSION_CONFIG`` and ``config``, active in the calling thread.

    The first one starts the JVM (driver ``own``) or attaches to the warm driver (``shared``); later ones in the process
    are new sessions beside it. Settings that only a new JVM could take are logged when they differ.

    Raises:
        DriverGone: Driver ``shared``, and the warm driver does not run.
        DriverDiffers: Driver ``shared``, and the warm driver runs another Spark.
        OtherDriverOpen: The process has a JVM of the other kind.
        JavaMissing, JarMissing, SparkDidNotStart: Driver ``own``, and the JVM cannot start.
    """
    _spare_pandas()
    root = _open_root(settings)
    if root is None and settings.driver == "own":
        session = start_spark(settings, config={**SESSION_CONFIG, **(config or {})}, app_name=app_name).newSession()
    else:
        session = (root or _attach(settings)).newSession()
        _configure(session, {**RUNTIME_CONFIG, **(config or {})})
    _remember_names(session._jvm)
    use_in_thread(session)
    return session


def close_session(session: SparkSession) -> None:
    """Give up the sessions of this process: detached from the warm driver, what still runs there is cancelled.

    A JVM of our own stays: it ends with the process, and the next session of the process opens in it at once.
    """
    if _is_attached(session):
        session.stop()


def is_open(session: SparkSession) -> bool:
    """Whether the session can still be used: neither stopped nor closed, and its JVM runs."""
    context = session.sparkContext
    if context._jsc is None:
        return False
    if _is_attached(session):
        return not context.connection.driver_ended()  # type: ignore[attr-defined]
    return jvm_of(session).poll() is None


def use_in_thread(session: SparkSession) -> None:
    """Make ``session`` the one of the calling thread, in the JVM too.

    Delta's commit takes the settings of the JVM thread's active session, not of the session that the table was read
    with; the job group by which a warm driver cancels a dead process's jobs belongs to a thread as well.
    """
    from pyspark.sql import SparkSession

    jvm_sessions = SparkSession._get_j_spark_session_class(session._jvm)
    jvm_sessions.setActiveSession(session._jsparkSession)
    # PySpark's builder answers this one; the warm driver's default session, which it starts from, belongs to everyone.
    SparkSession._activeSession = SparkSession._instantiatedSession = session
    if _is_attached(session):
        session.sparkContext.carry_group()  # type: ignore[attr-defined]


@contextmanager
def driver_loss_named(session: SparkSession) -> Iterator[None]:
    """Turn whatever PySpark raises once the warm driver has ended into ``DriverGone``.

    Raises:
        DriverGone: The body failed, and the driver of ``session`` has ended.
    """
    try:
        yield
    except Exception as failure:
        connection = getattr(session.sparkContext, "connection", None)
        if connection is not None and connection.driver_ended():
            raise DriverGone(home=connection.home, reason="it ended while this process was attached") from failure
        raise


def _open_root(settings: Settings) -> SparkSession | None:
    """The session that this process took its others from, if it still stands."""
    from pyspark.sql import SparkSession

    root = SparkSession._instantiatedSession
    if root is None or not is_open(root):
        if root is not None and _is_attached(root):
            root.stop()
        return None
    if _is_attached(root) != (settings.driver == "shared"):
        raise OtherDriverOpen(wanted=settings.driver)
    return root


def _attach(settings: Settings) -> SparkSession:
    from kdi_assets.runtime.driver.attach import attach

    return attach(settings.home)


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


def _spare_pandas() -> None:
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


def _remember_names(jvm: JVMView) -> None:
    """Let the JVM say once what these names stand for; a twentieth of what a drain or a replay takes.

    It looks for a class of that name in every package that PySpark imports and in every jar, for each column anew.

    Source: Py4J 0.10.9, ``py4j/java_gateway.py`` (``JVMView.__getattr__``).
    """
    for name in NAMES:
        if name not in vars(jvm):
            setattr(jvm, name, getattr(jvm, name))
