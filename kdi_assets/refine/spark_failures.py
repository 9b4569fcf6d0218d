"""Translate what Spark and Delta raise: into an error that a retry helps, or one that someone must mend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kdi_assets.refine.errors import (
    ConstraintViolated,
    OrderUnknown,
    RefiningFailed,
    RefiningForbidden,
    RowsNotComputable,
    TimeOutOfRange,
)
from kdi_assets.runtime.spark_causes import root_cause, storage_needs, violates_constraint
from kdi_assets.wording import first_line

ORDER_UNKNOWN = "kdi: order unknown: "
"""Begins the message by which a job ends if its changes have no order; keys and places of one follow as JSON."""
OUT_OF_YEARS = "kdi: out of the years 1 to 9999: "
"""Begins the message by which a job ends if a time is out of them; the column follows, in backticks."""
_OF_DATA = "22"
"""Class of SQLSTATE: a value that does not fit, such as a text that is no number, an overflow, a division by zero."""
_COMES_AND_GOES = ("DELTA_", "PATH_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND")
"""Beginnings of conditions of an analysis that the next one may not find: they are about tables, not about the SQL."""
_OF_COLUMNS = (
    "DELTA_INVALID_CHARACTERS_IN_COLUMN_NAME",
    "DELTA_DUPLICATE_COLUMNS_FOUND",
    "DELTA_UNSUPPORTED_DATA_TYPES",
    "DELTA_BLOCK_COLUMN_MAPPING_AND_CDC_OPERATION",
)
"""Beginnings of Delta's conditions about names and types of columns, which the next analysis finds as well."""


@contextmanager
def spark_failures(table: str, doing: str) -> Iterator[None]:
    """Translate what Spark raises while something is done.

    Args:
        table: Named by the error.
        doing: What is done, e.g. ``writing rows``; named by the error too.

    Raises:
        ConstraintViolated: A CHECK or NOT NULL of the table does not hold for a row.
        RefiningForbidden: A right is missing in the storage, or room.
        OrderUnknown: Changes have no order.
        TimeOutOfRange: A date or timestamp of a row is out of the years 1 to 9999.
        RowsNotComputable: An expression does not fit the columns or a value.
        RefiningFailed: Spark, Delta or the storage failed otherwise, or the JVM does not answer.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, OSError) as failed:
        if example := _told(failed, ORDER_UNKNOWN):
            raise OrderUnknown(table=table, example=example[: example.rfind("}") + 1][:500]) from failed
        if column := _told(failed, OUT_OF_YEARS):
            raise TimeOutOfRange(table=table, column=column[: column.rfind("`") + 1]) from failed
        if violates_constraint(cause := root_cause(failed)):
            raise ConstraintViolated(table=table, detail=cause) from failed
        if needs := storage_needs(cause):
            raise RefiningForbidden(table=table, doing=doing, detail=cause, needs=needs) from failed
        detail = first_line(failed)[:500]
        kind = RowsNotComputable if _comes_again(failed) else RefiningFailed
        raise kind(table=table, doing=doing, detail=detail) from failed


def _told(failed: Exception, beginning: str) -> str:
    """The rest of the line that our SQL ended the job with; empty if it did not."""
    return str(failed).partition(beginning)[2].split("\n", 1)[0]


def _comes_again(failed: Exception) -> bool:
    """Whether a retry fails in the same way: the failure is about the expressions, or about a value."""
    from pyspark.errors import AnalysisException

    causes = list(_causes(failed))
    if any(condition.startswith(_OF_COLUMNS) for condition, _ in causes):
        return True
    if any(condition.startswith(_COMES_AND_GOES) for condition, _ in causes):
        return False
    return isinstance(failed, AnalysisException) or any(state.startswith(_OF_DATA) for _, state in causes)


def _causes(failed: Exception) -> Iterator[tuple[str, str]]:
    """Condition and SQLSTATE of an exception of the JVM and of its causes; empty if it has none."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import CapturedException, convert_exception

    # A value that does not fit fails a task, and the job's exception has the task's as its cause.
    cause: Any = convert_exception(failed.java_exception) if isinstance(failed, Py4JJavaError) else failed
    while isinstance(cause, CapturedException):
        yield cause.getCondition() or "", cause.getSqlState() or ""
        cause = cause._cause
