"""What Dagster is told of a commit and of a drain: one materialization per touched date, one observation per drain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Protocol

import dagster as dg

from kdi_assets.components.names import dates, table_key
from kdi_assets.stream import OffsetRange, Stream

if TYPE_CHECKING:
    from kdi_assets.drain.drain import DrainReport

ATTEMPT_TAG = "kdi/attempt"
DATE_TAG = "kdi/date"
DATA_VERSION_TAG = "dagster/data_version"


class Committed(Protocol):
    """What a commit and the ledger entry that records it have in common."""

    @property
    def version(self) -> int: ...
    @property
    def attempt_id(self) -> str: ...
    @property
    def ranges(self) -> Sequence[OffsetRange]: ...
    @property
    def rows_by_date(self) -> Mapping[date, int]: ...
    @property
    def dead_letters(self) -> int: ...
    @property
    def tombstones(self) -> int: ...


def materializations(
    stream: Stream, commit: Committed, *, facts: Mapping[str, Any], row_counts: Mapping[date, int]
) -> Iterator[dg.AssetMaterialization]:
    """One event per date that got rows; none for a date that got none, or that Dagster's partitions do not have.

    Args:
        facts: Metadata that every event carries.
        row_counts: Rows of a date in the whole table, where they are known.
    """
    for day in touched_dates(stream, commit):
        counted = {"dagster/partition_row_count": row_counts[day]} if day in row_counts else {}
        yield materialization(stream, commit, day, metadata={**facts, **counted})


def touched_dates(stream: Stream, commit: Committed) -> list[date]:
    """The dates that got rows and that Dagster's partitions have; an unknown one would be stored and never shown."""
    known = dates(stream)
    return [d for d, rows in sorted(commit.rows_by_date.items()) if rows and known.has_partition_key(d.isoformat())]


def rows_without_partition(stream: Stream, commit: Committed) -> int:
    """Rows of dates that Dagster's partitions do not have: the window's start moved, or the stream takes every date."""
    return sum(commit.rows_by_date.values()) - sum(commit.rows_by_date[day] for day in touched_dates(stream, commit))


def materialization(
    stream: Stream, commit: Committed, day: date, *, metadata: Mapping[str, Any], data_version: int | None = None
) -> dg.AssetMaterialization:
    """The event of one date; ``data_version`` is the commit's table version unless a later one is already known.

    The tags say which commit and date it is about, so that what was told can be told from what was not: the attempt
    id, and not the version, because a table made anew begins at version 0 again.
    """
    version = commit.version if data_version is None else data_version
    return dg.AssetMaterialization(
        table_key(stream),
        partition=day.isoformat(),
        tags={DATA_VERSION_TAG: str(version), ATTEMPT_TAG: commit.attempt_id, DATE_TAG: day.isoformat()},
        metadata={"rows_added": commit.rows_by_date[day], **commit_metadata(stream, commit), **metadata},
    )


def commit_metadata(stream: Stream, commit: Committed) -> dict[str, Any]:
    """What is true of the whole commit, whichever date it is shown at."""
    return {
        "delta_version": commit.version,
        "commit_rows": sum(commit.rows_by_date.values()),
        "commit_rows_by_date": dg.MetadataValue.json(by_date(commit.rows_by_date)),
        "dead_letters": commit.dead_letters,
        "tombstones": commit.tombstones,
        "offset_ranges": dg.MetadataValue.json({str(r.topic_partition): [r.start, r.end] for r in commit.ranges}),
        "attempt_id": commit.attempt_id,
        "topic": stream.topic,
    }


def drain_observation(stream: Stream, report: DrainReport, *, day: str) -> dg.AssetObservation:
    """The drain as a whole, also one that found nothing: it touches no date, so it is no materialization.

    Args:
        day: The run's partition key; the UI lists the drain there.
    """
    return dg.AssetObservation(table_key(stream), partition=day, metadata=drain_metadata(report))


def drain_metadata(report: DrainReport) -> dict[str, Any]:
    """The numbers of a drain; unknown ones (a lag without a message, a version without a commit) are left out."""
    numbers: dict[str, Any] = {
        "rows_added": report.rows_added,
        "commits": len(report.commits),
        "dead_letters": report.dead_letters,
        "backlog_before": report.backlog_before,
        "backlog_after": report.backlog_after,
        "lag_seconds": report.lag_seconds,
        "delta_version": report.version,
        "seconds": report.seconds,
        "cpu_seconds": report.cpu_seconds,
    }
    known = {name: number for name, number in numbers.items() if number is not None}
    return {
        **known,
        "rows_by_date": dg.MetadataValue.json(by_date(report.rows_by_date)),
        "positions": dg.MetadataValue.json({str(tp): offset for tp, offset in sorted(report.positions.items())}),
    }


def by_date(rows: Mapping[date, int]) -> dict[str, int]:
    """Counts in the order of their dates, as JSON takes them."""
    return {day.isoformat(): count for day, count in sorted(rows.items())}
