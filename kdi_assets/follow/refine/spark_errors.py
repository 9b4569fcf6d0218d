"""Failures of Spark in a refinement, as errors of refining."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.errors import RefiningFailed, RefiningForbidden
from kdi_assets.follow.refine.row_errors import (
    ConstraintViolated,
    OrderUnknown,
    RowsNotComputable,
    TextNotUtf8,
    TimeOutOfRange,
)
from kdi_assets.runtime.progress import WorkStep, announced
from kdi_assets.runtime.spark_failures import FailureKind, SparkFailure, translated

ORDER_UNKNOWN = "kdi: order unknown: "
"""Begins the message by which a job ends if its changes have no order; keys and places of one follow as JSON."""
OUT_OF_YEARS = "kdi: out of the years 1 to 9999: "
"""Begins the message by which a job ends if a time is out of them; the column follows, in backticks."""

NOT_UTF8 = "kdi: not UTF-8: "
"""The same, if a text is not UTF-8."""


@contextmanager
def spark_failures(table: str, doing: str) -> Iterator[None]:
    """Announce a step, and translate what Spark raises in it.

    Args:
        table: Named by progress and by the error.
        doing: What is done, e.g. ``writing rows``; named by both too.

    Raises:
        ConstraintViolated: A CHECK or NOT NULL of the table does not hold for a row.
        RefiningForbidden: A right is missing in the storage, or room.
        OrderUnknown: Changes have no order.
        TimeOutOfRange: A date or timestamp of a row is out of the years 1 to 9999.
        TextNotUtf8: A text of a row is not UTF-8.
        RowsNotComputable: An expression does not fit the columns or a value; Python workers cannot run the function.
        RefiningFailed: Spark, Delta or the storage failed otherwise, or the JVM does not answer.
    """

    def error_of(failure: SparkFailure) -> KdiError:
        if example := _told(failure, ORDER_UNKNOWN):
            return OrderUnknown(table=table, example=example[: example.rfind("}") + 1][:500])
        if column := _told(failure, OUT_OF_YEARS):
            return TimeOutOfRange(table=table, column=column[: column.rfind("`") + 1])
        if column := _told(failure, NOT_UTF8):
            return TextNotUtf8(table=table, column=column[: column.rfind("`") + 1])
        match failure.kind:
            case FailureKind.CONSTRAINT:
                return ConstraintViolated(table=table, detail=failure.root)
            case FailureKind.STORAGE:
                return RefiningForbidden(table=table, doing=doing, detail=failure.root, needs=failure.needs)
            case FailureKind.WORKER:
                return RowsNotComputable(table=table, doing=doing, detail=failure.root)
            case FailureKind.ROWS:
                return RowsNotComputable(table=table, doing=doing, detail=failure.first_line)
        return RefiningFailed(table=table, doing=doing, detail=failure.first_line)

    with announced(WorkStep(name=table, doing=doing)), translated(error_of):
        yield


def _told(failure: SparkFailure, beginning: str) -> str:
    """The rest of the line that our SQL ended the job with; empty if it did not."""
    return str(failure.exception).partition(beginning)[2].split("\n", 1)[0]
