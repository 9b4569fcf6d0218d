"""Checks of the table: duplicate rows, dates outside the window, other columns, many small files."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from kdi_assets.delta.files import rows_at
from kdi_assets.delta.log import TableLog
from kdi_assets.messages.coordinates import coordinates
from kdi_assets.operate.monitoring.checks.finding import NO_TABLE, CheckResult
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.operate.monitoring.table_facts import SMALL_BYTES, data_files
from kdi_assets.streams.audit.offsets_in_spark import islands
from kdi_assets.streams.drain.schema_evolution import evolved, followed
from kdi_assets.streams.ledger.dates import as_dates, day_of
from kdi_assets.streams.ledger.recent_commits import recent_commits
from kdi_assets.streams.rules.errors import SchemaDisagrees
from kdi_assets.streams.rules.shape import analyse
from kdi_assets.streams.rules.table.column_tree import DATE
from kdi_assets.streams.rules.table.table_schema import follows_latest, refuse_other_schema

ROWS = 20_000_000
"""How many rows are compared at most: whole dates of the newest drains, at least one date."""
SHOWN = 20
SMALL_FILES, SMALL_SHARE = 1_000, 0.5
"""Both limits must be reached: small files of a small table are normal."""
COMMITS_SINCE_CHECKPOINT, INTERVALS = 100, 4
"""Every reader reads the commits since the last checkpoint: 1,000 take a second on a local disk."""
LOG_FILES = 50_000
"""Listing a log of 100,000 files takes half a second on a local disk, and 100 requests on object storage."""
DEFAULT_INTERVAL = 10


def no_duplicate_coordinates(subject: CheckSubject) -> CheckResult:
    """Whether two rows have the same topic, partition, offset and timestamp, and the same index within their message.

    The timestamp counts because a recreated topic gives the same offsets to other messages.
    """
    from pyspark.sql import functions as F

    log, stream = subject.log, subject.stream
    touched = _touched(subject)
    if log is None or not touched:
        return NO_TABLE
    days, rows = _within(log, touched)
    where = ".".join(f"`{step}`" for step in stream.coordinates.split("."))
    table = rows_at(subject.session(), subject.uri, log.version)
    topic = F.expr(f"{where}.{stream.source_struct.topic}").alias("topic")
    at = table.where(F.expr(day_of()).isin(days)).select(topic, *coordinates(table, stream))
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
        return CheckResult("passed", f"no duplicates in {rows:,} rows of {len(days)} dates", numbers)
    ranges = islands(doubled.select("partition", "offset").distinct(), (), topic=stream.topic)
    shown = tuple(str(r) for r, _ in ranges)
    doubled_rows = f"{seen['messages']:,} messages have duplicate rows: {shown[0]}"
    description = f"{doubled_rows}; `kdi audit {stream.name}` shows their origin"
    return CheckResult("error", description, numbers, {"offsets": shown})


def _touched(subject: CheckSubject) -> list[date]:
    """The dates of recent drains and replays, the newest commit first."""
    commits = recent_commits(TableLog.open(subject.uri), subject.stream.app_id, excluding=())
    return list(dict.fromkeys(day for c in reversed(commits) for day in sorted(c.entry.rows_by_date, reverse=True)))


def _within(log: TableLog, days: Sequence[date]) -> tuple[list[date], int]:
    """The first dates that together have at most ``ROWS`` rows by the files' statistics, and their rows."""
    if DATE not in log.partition_columns:
        return list(days[:1]), 0  # `dates_in_window` reports such a table
    rows_of = _rows_by_date(log)
    taken, rows = [days[0]], rows_of.get(days[0], 0)
    for day in days[1:]:
        if rows + rows_of.get(day, 0) <= ROWS:
            taken, rows = [*taken, day], rows + rows_of.get(day, 0)
    return taken, rows


def _rows_by_date(log: TableLog) -> dict[date | None, int]:
    """Rows of each date by the files' statistics; 0 without statistics."""
    files = log.data_files.select([f"partition.{DATE}", "num_records"]).rename_columns(["day", "rows"])
    sums = files.set_column(0, "day", as_dates(files["day"])).group_by("day").aggregate([("rows", "sum")])
    days, rows = sums["day"].to_pylist(), sums["rows_sum"].to_pylist()
    return {day: of_day or 0 for day, of_day in zip(days, rows, strict=True)}


def dates_in_window(subject: CheckSubject) -> CheckResult:
    """Whether the table has rows with dates outside the window.

    A drain makes dead letters of such messages. So the rows are another writer's, or older than a change of the window.
    """
    if subject.log is None:
        return NO_TABLE
    if DATE not in subject.log.partition_columns:
        return CheckResult("error", f"the table is not partitioned by {DATE}: it must be rewritten")
    window, rows_of = subject.stream.date_window, _rows_by_date(subject.log)
    first, last = window.first, window.last(subject.now)
    outside = {day: rows for day, rows in rows_of.items() if day is None or not first <= day <= last}
    uncounted = subject.log.data_files["num_records"].null_count
    rows = sum(outside.values())
    numbers = {"rows_outside": rows, "dates_outside": len(outside), "files_without_count": uncounted}
    if not outside:
        return CheckResult("passed", f"all dates lie within {first} and {last}", numbers)
    shown = tuple(f"{day or 'no date'}: {outside[day]:,} rows" for day in sorted(outside, key=str)[:SHOWN])
    outside_rows = f"{rows:,} rows have dates outside {first} to {last}"
    description = f"{outside_rows}, which Dagster does not show: {', '.join(shown[:3])}"
    return CheckResult("warn", description, numbers, {"dates": shown})


def schema_as_declared(subject: CheckSubject) -> CheckResult:
    """Whether the table has the columns of the document; otherwise the next drain fails.

    Needs a session for the types of SQL expressions; reads no data.

    Raises:
        ShapeMistake: An expression of the document is wrong.
    """
    if subject.log is None:
        return NO_TABLE
    stream = evolved(subject.stream, subject.lake, subject.session())
    wanted = analyse(stream, subject.session())
    numbers = {"columns": len(subject.log.schema["fields"]), "columns_declared": len(wanted.fields)}
    try:
        refuse_other_schema(stream, TableLog.existing(subject.uri), wanted)
    except SchemaDisagrees as refusal:
        description, differences = refusal.message_parts()[0], refusal.differences
        return CheckResult(
            "error", description, {**numbers, "differences": len(differences)}, {"differences": differences}
        )
    if follows_latest(subject.stream) and not follows_latest(stream):
        said = f"the table cannot follow the newest version of its schema; the stream follows {followed(stream)}"
        return CheckResult("warn", said, {**numbers, "differences": 0})
    return CheckResult("passed", "the table has the columns of the document", {**numbers, "differences": 0})


def table_health(subject: CheckSubject) -> CheckResult:
    """Whether the files are large enough and the log short enough; only ever a warning."""
    log = subject.log
    if log is None:
        return NO_TABLE
    files = data_files(log)
    checkpoint = log.checkpoint
    since_checkpoint = log.version - (-1 if checkpoint is None else checkpoint)
    numbers = {
        "files": files.count,
        "bytes": files.bytes,
        "small_files": files.small,
        "small_share": files.small / files.count if files.count else 0.0,
        "commits_since_checkpoint": since_checkpoint,
        "log_files": len(log.commit_files()),
    }
    interval = int(log.configuration.get("delta.checkpointInterval", DEFAULT_INTERVAL))
    faults = []
    if files.small >= SMALL_FILES and numbers["small_share"] >= SMALL_SHARE:
        faults.append(f"{files.small:,} of {files.count:,} files are below {SMALL_BYTES >> 20} MiB: compact the table")
    if since_checkpoint > max(COMMITS_SINCE_CHECKPOINT, INTERVALS * interval):
        faults.append(
            f"{since_checkpoint:,} commits since the last checkpoint slow down readers: `kdi upkeep` writes one"
        )
    if numbers["log_files"] > LOG_FILES:
        faults.append(f"the log has {numbers['log_files']:,} commits: `kdi upkeep`, or a shorter logRetentionDuration")
    if faults:
        return CheckResult("warn", "; ".join(faults), numbers)
    return CheckResult(
        "passed", f"{files.count:,} files, {since_checkpoint:,} commits since the last checkpoint", numbers
    )
