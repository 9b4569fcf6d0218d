"""What made Spark, Delta or their storage fail, and what must change: packages translate it into errors of theirs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from kdi_assets.errors import KdiError
from kdi_assets.runtime.application_end import cluster_failure
from kdi_assets.runtime.environment import whoami
from kdi_assets.runtime.root_cause import NO_PROGRAM, is_jvm_loss, root_cause
from kdi_assets.wording import first_line

_CONSTRAINT = re.compile("DELTA_VIOLATE_CONSTRAINT|DELTA_NOT_NULL_CONSTRAINT")
_WORKER_UNFIT = re.compile(
    r"^ModuleNotFoundError: |\[(PACKAGE_NOT_INSTALLED|UNSUPPORTED_PACKAGE_VERSION|PYTHON_VERSION_MISMATCH)\]"
    rf"|{NO_PROGRAM} .*error=2"
)
_NO_RIGHT = re.compile(
    r"Permission denied|Operation not permitted|Read-only file system|AccessControlException|Access ?Denied"
    r"|DELTA_CANNOT_CREATE_LOG_PATH|Mkdirs failed to create|Status Code: 403|403 Forbidden"
)
_NO_ROOM = re.compile(
    r"No space left on device|Disk quota exceeded|QuotaExceeded|StorageFull|Status Code: 507|507 Insufficient Storage"
)
"""Of the file system, HDFS and S3: the texts of EACCES, EPERM, EROFS, ENOSPC and EDQUOT, and of statuses of HTTP."""
_NO_FILE = re.compile(r"FileNotFoundException|NoSuchFileException|PATH_NOT_FOUND|FILE_NOT_EXIST|does not exist")
_OLD_TOKEN = re.compile("ExpiredToken|InvalidToken")
TOKEN = re.compile(r"Bearer\s.*")
"""Java quotes the header that it does not send, such as that of a token with a line end, in whose middle it may be."""
_OF_DATA = "22"
"""Class of SQLSTATE: a value that does not fit, such as an overflow, a division by zero, a text instead of a number."""
_ABOUT_TABLES = ("DELTA_", "PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND")
"""Beginnings of conditions of an analysis that the next one may not find: they are about tables, not about the SQL."""
_ABOUT_COLUMNS = (
    "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAME",
    "DELTA_DUPLICATE_COLUMNS_FOUND",
    "DELTA_UNSUPPORTED_DATA_TYPES",
    "DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION",
)
"""Beginnings of Delta's conditions about names and types of columns, which the next analysis finds as well."""


class FailureKind(Enum):
    """What must change before a retry can help."""

    CONSTRAINT = auto()
    """A row: a CHECK or NOT NULL of the Delta table does not hold for it."""
    WORKER = auto()
    """The Python of Spark's workers: it lacks a package, has another version, or does not exist."""
    STORAGE = auto()
    """The storage: a right is missing, or room."""
    ROWS = auto()
    """An expression, which does not fit the columns or a value; or a name or type of a column."""
    TRANSIENT = auto()
    """Nothing that is known."""


@dataclass(frozen=True, slots=True)
class SparkFailure:
    """A failure of Spark, Delta or their storage.

    Attributes:
        exception: As Python got it.
        root: The cause below all wrapping, in one line.
        needs: Of kind ``STORAGE``: what someone must give.
        jvm_is_lost: The JVM ended, or does not answer.
        shows_token: What Java says has a token in it; nobody may see it.
    """

    exception: Exception
    kind: FailureKind
    root: str
    needs: str = ""
    jvm_is_lost: bool = False
    shows_token: bool = False

    @property
    def is_of_spark(self) -> bool:
        """Whether Spark raised it; otherwise delta-rs did, or the storage itself."""
        return type(self.exception).__module__.startswith(("pyspark", "py4j", "delta."))

    @property
    def is_missing_file(self) -> bool:
        """Whether it says that a file does not exist."""
        return bool(_NO_FILE.search(self.root))

    @property
    def first_line(self) -> str:
        """What Spark says of it, in one line."""
        return first_line(self.exception)[:500]


def spark_exceptions() -> tuple[type[Exception], ...]:
    """What Spark, delta-rs and their storage raise; in an ``except``, called only if something is raised."""
    from deltalake.exceptions import DeltaError
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError, DeltaError, OSError


@contextmanager
def translated(error_of: Callable[[SparkFailure], KdiError | None]) -> Iterator[None]:
    """Raise an error of ours for a failure of Spark, Delta or their storage; errors of ours pass unchanged.

    Args:
        error_of: Its error; ``None``: the failure passes unchanged.

    Raises:
        NoExecutors: A job waited in vain for an executor.
        ApplicationEnded: The cluster has ended the application.
    """
    try:
        yield
    except KdiError:
        raise
    except Exception as failed:
        if not isinstance(failed, spark_exceptions()):
            raise
        if (interrupt := interrupt_before(failed)) is not None:
            raise interrupt from None
        failure = failure_of(failed)
        if (error := cluster_failure(failure.root) or error_of(failure)) is None:
            raise
        # Dagster stores the causes of an error, and shows them.
        raise error from (None if failure.shows_token else failed)


def interrupt_before(failed: BaseException) -> BaseException | None:
    """The Ctrl-C, or Dagster's error of a run that is terminated, after which something failed.

    It may end the JVM as well, and what is undone after it fails.
    """
    before: BaseException | None = failed
    while isinstance(before, Exception | GeneratorExit):
        before = before.__context__
    return before


def failure_of(failed: Exception) -> SparkFailure:
    """Classify an exception; the only place that knows the texts and conditions of Spark's."""
    try:
        return _failure_of(failed)
    except Exception as asked:  # what Java raised is read from the JVM, which may end meanwhile
        if not is_jvm_loss(asked):
            raise
        return SparkFailure(failed, FailureKind.TRANSIENT, root_cause(asked), jvm_is_lost=True)


def _failure_of(failed: Exception) -> SparkFailure:
    lost, root = is_jvm_loss(failed), root_cause(failed)
    needs = _storage_needs(root)
    if _CONSTRAINT.search(root):
        kind = FailureKind.CONSTRAINT
    elif _WORKER_UNFIT.search(root):
        kind = FailureKind.WORKER
    elif needs:
        kind = FailureKind.STORAGE
    else:
        kind = FailureKind.ROWS if _is_permanent(failed) else FailureKind.TRANSIENT
    said = str(failed)
    if _OLD_TOKEN.search(said):
        root += " (renew the credentials; a warm driver has those of its start: kdi driver stop)"
    return SparkFailure(failed, kind, root, needs, lost, shows_token=bool(TOKEN.search(said)))


def _storage_needs(cause: str) -> str:
    """What someone must give to the storage before a retry can help; empty if the root cause is another one."""
    if _NO_ROOM.search(cause):
        return "there is room in the storage, and in its quota"
    if "ParentNotDirectoryException" in cause:
        return "the lake is a folder"
    if not _NO_RIGHT.search(cause):
        return ""
    user = os.environ.get("HADOOP_USER_NAME") or whoami()
    whose = "the credentials of AWS" if re.search(r"\bS3\b|s3a?://", cause) else f"user {user}"
    return f"{whose} may list, read, write and delete there"


def _is_permanent(failed: Exception) -> bool:
    """Whether a retry fails in the same way: the failure is about the expressions, or about a value."""
    from pyspark.errors import AnalysisException

    causes = list(_conditions(failed))
    if any(condition.startswith(_ABOUT_COLUMNS) for condition, _ in causes):
        return True
    if any(condition.startswith(_ABOUT_TABLES) for condition, _ in causes):
        return False
    return isinstance(failed, AnalysisException) or any(state.startswith(_OF_DATA) for _, state in causes)


def _conditions(failed: Exception) -> Iterator[tuple[str, str]]:
    """Condition and SQLSTATE of an exception of the JVM and of its causes; empty if it has none."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import CapturedException, convert_exception

    # A value that does not fit fails a task, and the job's exception has the task's as its cause.
    cause: Any = convert_exception(failed.java_exception) if isinstance(failed, Py4JJavaError) else failed
    while isinstance(cause, CapturedException):
        yield cause.getCondition() or "", cause.getSqlState() or ""
        cause = cause._cause
