"""What is wrong with a table: rows twice, dates outside the window, other columns, many small files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from kdi_assets.audit.offsets_in_spark import islands
from kdi_assets.drain.rules.column_tree import DATE
from kdi_assets.drain.rules.errors import SchemaDisagrees
from kdi_assets.drain.rules.schema_evolution import evolved
from kdi_assets.drain.rules.shape import analyse
from kdi_assets.drain.rules.table_schema import refuse_other_schema
from kdi_assets.ledger.coordinates import coordinates
from kdi_assets.ledger.delta_log import TableLog
from kdi_assets.ledger.recent_commits import recent_commits
from kdi_assets.monitoring.checks.finding import NO_TABLE, CheckResult
from kdi_assets.monitoring.checks.subject import CheckSubject
from kdi_assets.monitoring.table_facts import SMALL_BYTES, data_files

ROWS = 20_000_000
"""So many rows are compared at most: the newest drains' dates first, whole dates only, at least one."""
SHOWN = 20
SMALL_FILES, SMALL_SHARE = 1_000, 0.5
"""Both: a small table has small files, and nobody minds."""
COMMITS_SINCE_CHECKPOINT, INTERVALS = 100, 4
"""Whatever opens the table reads each of these: 1,000 take a second on a local disk."""
LOG_FILES = 50_000
"""Names that a listing of the log goes through: 100,000 take half a second on a local disk, 100 requests elsewhere."""
DEFAULT_INTERVAL = 10


def no_duplicate_coordinates(subject: CheckSubject) -> CheckResult:
    """Whether two rows have the same topic, partition, offset and timestamp, and the same number within their message.

    The timestamp belongs to it: a topic that was made anew gives the same offsets to other messages.
    """
    from pyspark.sql import functions as F

    log, stream = subject.log, subject.stream
    touched = _touched(subject)
    if log is None or not touched:
        return CheckResult("passed", "nothing was drained yet")
    days, rows = _within(log, touched)
    where = ".".join(f"`{step}`" for step in stream.coordinates.split("."))
    table = subject.session().read.format("delta").option("versionAsOf", log.version).load(subject.uri)
    at = table.where(F.col(DATE).isin(days)).select(F.expr(f"{where}.topic"), *coordinates(table, stream))
    groups = at.where("offset IS NOT NULL").groupBy("topic", "partition", "offset", "timestamp", "index")
    by_row = groups.agg(F.expr("count(*) - 1 AS surplus")).where("surplus > 0")
    doubled = by_row.groupBy("topic", "partition", "offset", "timestamp").agg(F.sum("surplus").alias("surplus"))
    seen = doubled.agg(F.count("*").alias("messages"), F.sum("surplus").alias("rows")).collect()[0]
    numbers = {
        "rows_looked_at": rows,
        "dates_looked_at": len(days),
        "dates_left_out": len(touched) - len(days),
        "messages_doubled": int(seen["messages"]),
        "rows_too_many": int(seen["rows"] or 0),
    }
    if not seen["messages"]:
        return CheckResult("passed", f"no message is there twice in {rows:,} rows of {len(days)} dates", numbers)
    ranges = islands(doubled.select("partition", "offset").distinct(), (), topic=stream.topic, limit=SHOWN)
    shown = tuple(str(r) for r, _ in ranges)
    said = f"{seen['messages']:,} messages are there more than once: {shown[0]}; `kdi audit {stream.name}` says of whom"
    return CheckResult("error", said, numbers, {"offsets": shown})


def _touched(subject: CheckSubject) -> list[date]:
    """The dates of the last drains and replays, those of the newest first."""
    commits = recent_commits(TableLog.open(subject.uri), subject.stream.app_id, excluding=())
    return list(dict.fromkeys(day for c in reversed(commits) for day in sorted(c.entry.rows_by_date, reverse=True)))


def _within(log: TableLog, days: Sequence[date]) -> tuple[list[date], int]:
    """As many of the dates as have ``ROWS`` rows together, by the files' statistics, and their rows."""
    if DATE not in log.partition_columns:
        return list(days[:1]), 0  # no drain goes into such a table; `dates_in_window` says so
    rows_of = _rows_by_date(log)
    taken, rows = [days[0]], rows_of.get(days[0], 0)
    for day in days[1:]:
        if rows + rows_of.get(day, 0) <= ROWS:
            taken, rows = [*taken, day], rows + rows_of.get(day, 0)
    return taken, rows


def _rows_by_date(log: TableLog) -> dict[date | None, int]:
    """Rows of each date by the files' statistics; 0 where these have none."""
    sums = log.data_files.group_by(f"partition.{DATE}").aggregate([("num_records", "sum")])
    days, rows = sums[f"partition.{DATE}"].to_pylist(), sums["num_records_sum"].to_pylist()
    return {day: of_day or 0 for day, of_day in zip(days, rows, strict=True)}


def dates_in_window(subject: CheckSubject) -> CheckResult:
    """Whether the table has rows of dates that the window does not allow.

    A drain makes dead letters of such messages, so the rows are others', or older than a change of the window.
    """
    if subject.log is None:
        return NO_TABLE
    if DATE not in subject.log.partition_columns:
        return CheckResult("error", f"the table is not partitioned by {DATE}: it must be written anew")
    window, rows_of = subject.stream.date_window, _rows_by_date(subject.log)
    first, last = window.start, window.last(subject.now)
    outside = {day: rows for day, rows in rows_of.items() if day is None or not first <= day <= last}
    uncounted = subject.log.data_files["num_records"].null_count
    rows = sum(outside.values())
    numbers = {"rows_outside": rows, "dates_outside": len(outside), "files_without_count": uncounted}
    if not outside:
        return CheckResult("passed", f"all dates lie within {first} and {last}", numbers)
    shown = tuple(f"{day or 'no date'}: {outside[day]:,} rows" for day in sorted(outside, key=str)[:SHOWN])
    said = f"{rows:,} rows have dates outside {first} to {last}, which Dagster does not show: {', '.join(shown[:3])}"
    return CheckResult("warn", said, numbers, {"dates": shown})


def schema_as_declared(subject: CheckSubject) -> CheckResult:
    """Whether the next drain would find the columns that it gives; it refuses anything else.

    Types of SQL expressions are Spark's to say, so this needs a session; it reads no data.

    Raises:
        ShapeMistake: The document itself does not work.
    """
    if subject.log is None:
        return NO_TABLE
    stream = evolved(subject.stream, subject.lake, subject.session())
    wanted = analyse(stream, subject.session())
    numbers = {"columns": len(subject.log.schema["fields"]), "columns_declared": len(wanted.fields)}
    try:
        refuse_other_schema(stream, TableLog.existing(subject.uri), wanted)
    except SchemaDisagrees as refusal:
        said, differences = refusal.message_parts()[0], refusal.differences
        return CheckResult("error", said, {**numbers, "differences": len(differences)}, {"differences": differences})
    return CheckResult("passed", "the table has the columns of the document", {**numbers, "differences": 0})


def table_health(subject: CheckSubject) -> CheckResult:
    """Whether the files are large enough and the log short enough; nobody is called for it."""
    log = subject.log
    if log is None:
        return NO_TABLE
    files = data_files(log)
    checkpoint = log.checkpoint
    behind = log.version - (-1 if checkpoint is None else checkpoint)
    numbers = {
        "files": files.count,
        "bytes": files.bytes,
        "small_files": files.small,
        "small_share": files.small / files.count if files.count else 0.0,
        "commits_since_checkpoint": behind,
        "log_files": len(log.commit_files()),
    }
    interval = int(log.configuration.get("delta.checkpointInterval", DEFAULT_INTERVAL))
    faults = []
    if files.small >= SMALL_FILES and numbers["small_share"] >= SMALL_SHARE:
        faults.append(f"{files.small:,} of {files.count:,} files are below {SMALL_BYTES >> 20} MiB: compact the table")
    if behind > max(COMMITS_SINCE_CHECKPOINT, INTERVALS * interval):
        faults.append(f"{behind:,} commits since the last checkpoint, which each reader reads: `kdi upkeep` writes one")
    if numbers["log_files"] > LOG_FILES:
        faults.append(f"the log has {numbers['log_files']:,} commits: `kdi upkeep`, or a shorter logRetentionDuration")
    if faults:
        return CheckResult("warn", "; ".join(faults), numbers)
    return CheckResult("passed", f"{files.count:,} files, {behind:,} commits since the last checkpoint", numbers)
