"""No message is in the table twice, in the dates that drains touched last."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from kdi_assets.checks.finding import Finding
from kdi_assets.checks.subject import Subject
from kdi_assets.drain.shape import DATE
from kdi_assets.ledger.log import TableLog
from kdi_assets.ledger.offsets import coordinates, islands
from kdi_assets.ledger.recent import recent_commits

ROWS = 20_000_000
"""So many rows are compared at most: the newest drains' dates first, whole dates only, at least one."""
SHOWN = 20


def no_duplicate_coordinates(subject: Subject) -> Finding:
    """Whether two rows have the same topic, partition, offset and timestamp, and the same number within their message.

    The timestamp belongs to it: a topic that was made anew gives the same offsets to other messages.
    """
    from pyspark.sql import functions as F

    log, stream = subject.log, subject.stream
    touched = _touched(subject)
    if log is None or not touched:
        return Finding("passed", "nothing was drained yet")
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
        return Finding("passed", f"no message is there twice in {rows:,} rows of {len(days)} dates", numbers)
    ranges = islands(doubled.select("partition", "offset").distinct(), (), limit=SHOWN)
    shown = tuple(f"{stream.topic}/{r['partition']} [{r['start']}, {r['end']})" for r in ranges)
    said = f"{seen['messages']:,} messages are there more than once: {shown[0]}; `kdi audit {stream.name}` says of whom"
    return Finding("error", said, numbers, {"offsets": shown})


def _touched(subject: Subject) -> list[date]:
    """The dates of the last drains and replays, those of the newest first."""
    commits = recent_commits(subject.uri, subject.stream.app_id, without=())
    return list(dict.fromkeys(day for c in reversed(commits) for day in sorted(c.entry.rows_by_date, reverse=True)))


def _within(log: TableLog, days: Sequence[date]) -> tuple[list[date], int]:
    """As many of the dates as have ``ROWS`` rows together, by the files' statistics, and their rows."""
    if DATE not in log.partition_columns:
        return list(days[:1]), 0  # no drain goes into such a table; `dates_in_window` says so
    sums = log.data_files.group_by(f"partition.{DATE}").aggregate([("num_records", "sum")])
    rows_of = dict(zip(sums[f"partition.{DATE}"].to_pylist(), sums["num_records_sum"].to_pylist(), strict=True))
    taken, rows = [days[0]], rows_of.get(days[0]) or 0
    for day in days[1:]:
        if rows + (rows_of.get(day) or 0) <= ROWS:
            taken, rows = [*taken, day], rows + (rows_of.get(day) or 0)
    return taken, rows
