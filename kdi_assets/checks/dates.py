"""Rows whose date lies outside the stream's window; told by the names of the files' folders."""

from __future__ import annotations

from datetime import date

from kdi_assets.checks.finding import Finding
from kdi_assets.checks.subject import Subject
from kdi_assets.drain.shape import DATE

SHOWN = 20


def dates_in_window(subject: Subject) -> Finding:
    """Whether the table has rows of dates that the window does not allow.

    A drain makes dead letters of such messages, so the rows are others', or older than a change of the window.
    """
    import pyarrow.compute as pc

    if subject.log is None:
        return Finding("passed", "there is no table yet")
    if DATE not in subject.log.partition_columns:
        return Finding("error", f"the table is not partitioned by {DATE}: it must be written anew")
    window, files = subject.stream.date_window, subject.log.data_files
    by_date = files.group_by(f"partition.{DATE}").aggregate([("num_records", "sum"), ("num_records", "count")])
    days, sums = by_date[f"partition.{DATE}"].to_pylist(), by_date["num_records_sum"].to_pylist()
    rows_of: dict[date | None, int] = {day: rows or 0 for day, rows in zip(days, sums, strict=True)}
    first, last = window.start, window.last(subject.now)
    outside = {day: rows for day, rows in rows_of.items() if day is None or not first <= day <= last}
    uncounted = int(pc.sum(pc.is_null(files["num_records"])).as_py() or 0)
    rows = sum(outside.values())
    numbers = {"rows_outside": rows, "dates_outside": len(outside), "files_without_count": uncounted}
    if not outside:
        return Finding("passed", f"all dates lie within {first} and {last}", numbers)
    shown = tuple(f"{day or 'no date'}: {outside[day]:,} rows" for day in sorted(outside, key=str)[:SHOWN])
    said = f"{rows:,} rows have dates outside {first} to {last}, which Dagster does not show: {', '.join(shown[:3])}"
    return Finding("warn", said, numbers, {"dates": shown})
