"""Errors of upkeep. None of them concerns a drain: upkeep gives way, and its next run tries again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta

from kdi_assets.errors import KdiError, Terminal, Transient
from kdi_assets.runtime.progress import WorkStep, announced
from kdi_assets.runtime.spark_failures import FailureKind, SparkFailure, translated
from kdi_assets.wording import counted, duration, sql_command


class NoUpkeepNow(Terminal):
    """The table's log cannot be cleaned up in its present state."""

    stream: str
    detail: str
    run: str

    what_happened = "{stream}: the log is not cleaned up: {detail}."
    what_is_safe = "nothing was removed."
    what_to_run = "{run}"


class UpkeepFailed(Transient):
    """A step of upkeep failed, or another writer's commit came first."""

    table: str
    step: str
    detail: str

    what_happened = "{table}: {step} failed: {detail}"
    what_is_safe = "rows, positions and running drains; what the step wrote is in no version."
    what_to_run = "kdi upkeep --yes   (or wait: the next scheduled upkeep tries again)"


class UpkeepForbidden(Terminal):
    """The storage refuses a step of upkeep, and will refuse it again: a right is missing, or room."""

    table: str
    step: str
    detail: str
    needs: str

    what_happened = "{table}: {step} failed: {detail}"
    what_is_safe = "rows, positions and running drains; what the step wrote is in no version."
    what_to_run = "kdi upkeep --yes   (once {needs})"


@contextmanager
def spark_failures(table: str, step: str, *, doing: str = "", commits: bool = False) -> Iterator[None]:
    """Announce a step of upkeep, and translate failures of Spark in it.

    Args:
        doing: What the step does, for progress; by default ``step``, which the error names.
        commits: As in ``progress.WorkStep``.

    Raises:
        UpkeepForbidden: A right is missing in the storage, or room.
        UpkeepFailed: All other failures; another commit is the usual one.
    """

    def error_of(failure: SparkFailure) -> KdiError:
        if failure.kind is FailureKind.STORAGE:
            return UpkeepForbidden(table=table, step=step, detail=failure.root, needs=failure.needs)
        return UpkeepFailed(table=table, step=step, detail=failure.root)

    with announced(WorkStep(name=table, doing=doing or step, commits=commits)), translated(error_of):
        yield


class NotClusterable(Terminal):
    """The table cannot be ordered by a column of ``cluster_by``."""

    table: str
    detail: str

    what_happened = "{table}: its rows cannot be ordered by the columns of cluster_by: {detail}"
    what_is_safe = "rows and positions; the table was not rewritten."
    what_to_run = (
        "kdi upkeep --yes   (first correct cluster_by, or add the column to the property "
        "delta.dataSkippingStatsColumns)"
    )


FILE_RETENTION = "delta.deletedFileRetentionDuration"


class RetentionTooShort(Terminal):
    """VACUUM would remove files that a run may still need.

    Attributes:
        retention: How long VACUUM keeps files that no version has any more.
        least: How long they must be kept.
    """

    table: str
    uri: str
    retention: timedelta
    least: timedelta

    def message_parts(self) -> tuple[str, str, str]:
        """As for every error; the property can be copied from it."""
        hours = -(-self.least.total_seconds() // 3600)
        kept, least = duration(self.retention.total_seconds()), duration(self.least.total_seconds())
        return (
            f"{self.table}: {FILE_RETENTION} keeps files for {kept}, and a run needs them for {least}.",
            "nothing was removed.",
            sql_command(
                f'ALTER TABLE delta.`{self.uri}` SET TBLPROPERTIES ({FILE_RETENTION} = "interval {hours:.0f} hours")'
            ),
        )


class RetentionUnclear(Terminal):
    """A retention property of the table has a form that this release does not read."""

    table: str
    uri: str
    name: str
    value: str

    what_happened = "{table}: {name} is {value!r}, which is not of the form `interval 7 days`."
    what_is_safe = "nothing was removed."
    what_to_run = "kdi sql 'ALTER TABLE delta.`{uri}` SET TBLPROPERTIES ({name} = \"interval 7 days\")'"


class EraseRefused(Terminal):
    """An erasure does not apply to the present state of the stream."""

    stream: str
    detail: str
    run: str

    what_happened = "{stream}: nothing is erased: {detail}."
    what_is_safe = "nothing was changed."
    what_to_run = "{run}"


class ErasedRowsLeft(Terminal):
    """After an erasure, a table that is made of the stream's table has rows that meet the condition."""

    table: str
    rows: int
    version: int

    what_happened = "{table}: {rows:,} rows of v{version} still meet the condition: they come from other messages."
    what_is_safe = "what is erased stays erased; the table has the rows of a full recomputation."
    what_to_run = "kdi plan {table}   (kdi erase them in the tables that it names, then kdi refine)"


class ErasedRowsFrozen(Terminal):
    """After an erasure, a table that keeps rows for longer than the stream has rows of dates that the stream left."""

    table: str
    uri: str
    rows: int
    first: date

    def message_parts(self) -> tuple[str, str, str]:
        where = f"date < DATE'{self.first}' AND (CONDITION)"
        delete = " ".join(("DELETE FROM", f"delta.`{self.uri}`", "WHERE", where))
        return (
            f"{self.table}: {counted(self.rows, 'row')} of dates before {self.first} still meet the condition: the "
            "stream keeps these dates no longer, and what is erased there does not reach them.",
            "what is erased stays erased; all other dates of the table are up to date.",
            f"{sql_command(delete)}; then kdi refine {self.table} --rebuild",
        )


class EraseUnfinished(Transient):
    """The rows left the table, and a copy of erased messages beside it is still there."""

    is_repeatable = False  # rows that left the table do not meet the condition any more
    stream: str
    table: str
    detail: str

    what_happened = "{stream}: the rows are erased, and their messages are still in {table}: {detail}"
    what_is_safe = "no replay and no list shows these messages; positions stay as they are."
    what_to_run = (
        "kdi erase {stream} --again --because WHY --yes   (of a table of removed rows: --where, with the condition)"
    )
