"""VACUUM: removes files that no version needs any more, after a retention that is longer than every run.

The retention is the table's property ``delta.deletedFileRetentionDuration``, a week by default: Delta 4.4 ignores the
RETAIN of the statement. A shorter one than ``LEAST_RETENTION`` is refused: files of a running drain are in no version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from kdi_assets.delta.log import TableLog
from kdi_assets.delta.storage import storage_failures
from kdi_assets.delta.transaction import delta_log
from kdi_assets.operate.upkeep.errors import FILE_RETENTION, RetentionTooShort, RetentionUnclear, spark_failures
from kdi_assets.runtime.spark import changed_settings
from kdi_assets.wording import byte_size, counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEAST_RETENTION = timedelta(days=1)
"""Four times the longest run: Dagster ends a run after six hours (``max_runtime_seconds`` in ``dagster.yaml``)."""
_DEFAULT = "interval 1 week"
_LOGGING = "spark.databricks.delta.vacuum.logging.enabled"
_CHECK = "spark.databricks.delta.retentionDurationCheck.enabled"


@dataclass(frozen=True, slots=True)
class Vacuumed:
    """What a VACUUM removed: files, and their bytes."""

    files: int = 0
    bytes: int = 0

    def __str__(self) -> str:
        return f"VACUUM removed {counted(self.files, 'file')} of {byte_size(self.bytes)}"


def interval_of(text: str) -> timedelta | None:
    """A retention as table properties have it, ``interval 1 week``; ``None`` for another form."""
    body = text.strip().lower().removeprefix("interval ")
    pairs = re.findall(r"(\d+) (week|day|hour|minute|second)s?\b", body)
    if not pairs or not re.fullmatch(r"(\d+ (week|day|hour|minute|second)s?\s*)+", body):
        return None
    return sum((timedelta(**{f"{unit}s": int(number)}) for number, unit in pairs), timedelta())


def checked_retention(table: str, log: TableLog, *, least: timedelta = LEAST_RETENTION) -> timedelta:
    """The table's retention of files.

    Args:
        table: For errors.
        least: No run takes as long as this.

    Raises:
        RetentionTooShort: A run may need files for longer.
        RetentionUnclear: The property cannot be read.
    """
    text = log.configuration.get(FILE_RETENTION, _DEFAULT)
    kept = interval_of(text)
    if kept is None:
        raise RetentionUnclear(table=table, uri=log.uri, name=FILE_RETENTION, value=text)
    if kept < least:
        raise RetentionTooShort(table=table, uri=log.uri, retention=kept, least=least)
    return kept


def expired_files(log: TableLog, retention: timedelta) -> int | None:
    """How many files a VACUUM would remove, by a listing of the table's folder; ``None`` if delta-rs cannot tell."""
    from deltalake.exceptions import DeltaError

    hours = int(retention.total_seconds() // 3600)
    try:
        with storage_failures(log.uri):
            found = log.delta_table.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
    except DeltaError:
        return None
    # Hadoop keeps a hidden checksum beside each file on a local disk, and removes it with the file.
    return sum(1 for path in found if not path.rsplit("/", 1)[-1].startswith((".", "_")))


def vacuum(spark: SparkSession, table: str, uri: str, *, now: bool = False) -> Vacuumed:
    """Remove the files; call ``checked_retention`` first.

    Args:
        now: Whatever the retention is. Runs and readers may lose files that they need.

    Raises:
        UpkeepFailed: Spark failed.
    """
    delta_log(spark, uri)  # refuses a session that commits by another log store
    before = TableLog.existing(uri).version
    # Logged on every storage, whatever Delta's default is: the commits say what was removed.
    settings = {_LOGGING: "true"} | ({_CHECK: "false"} if now else {})
    with spark_failures(table, "VACUUM"), changed_settings(spark, settings):
        spark.sql(f"VACUUM delta.`{uri}`{' RETAIN 0 HOURS' if now else ''}").collect()
    return _recorded(uri, after=before)


def _recorded(uri: str, *, after: int) -> Vacuumed:
    files = size = 0
    for commit in TableLog.existing(uri).commits(after):
        if commit.operation == "VACUUM START":
            size = int(commit.metrics.get("sizeOfDataToDelete", 0))
        elif commit.operation == "VACUUM END":
            files = int(commit.metrics.get("numDeletedFiles", 0))
    return Vacuumed(files, size)
