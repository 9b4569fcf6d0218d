"""What Dagster is told of a commit and of a drain: one materialization per touched date, one observation per drain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from typing import Any

import dagster as dg

from kdi_assets.components.names import dates, table_key
from kdi_assets.drain.carry_out import Commit
from kdi_assets.drain.drain import DrainReport
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.stream import Stream

ATTEMPT_TAG = "kdi/attempt"
DATA_VERSION_TAG = "dagster/data_version"


def as_commit(entry: LedgerEntry) -> Commit:
    """The commit that a ledger entry records."""
    return Commit(
        version=entry.version,
        attempt_id=entry.attempt_id,
        ranges=tuple(counts.range for counts in entry.ranges),
        rows_by_date=entry.rows_by_date,
        dead_letters=entry.dead_letters,
        tombstones=entry.tombstones,
        gaps=sum(gap.offset_count for gap in entry.gaps),
        bytes=entry.bytes,
    )


def materializations(
    stream: Stream, commit: Commit, *, facts: Mapping[str, Any], row_counts: Mapping[date, int]
) -> Iterator[dg.AssetMaterialization]:
    """One event per date that got rows; none for a date that got none, or that Dagster's partitions do not have.

    Args:
        facts: Metadata that every event carries.
        row_counts: Rows of a date in the whole table, where they are known.
    """
    for day in touched_dates(stream, commit):
        counted = {"dagster/partition_row_count": row_counts[day]} if day in row_counts else {}
        yield materialization(stream, commit, day, metadata={**facts, **counted})


def touched_dates(stream: Stream, commit: Commit) -> list[date]:
    """The dates that got rows and that Dagster's partitions have; an unknown one would be stored and never shown."""
    known = dates(stream)
    return [d for d, rows in sorted(commit.rows_by_date.items()) if rows and known.has_partition_key(d.isoformat())]


def rows_without_partition(stream: Stream, commit: Commit) -> int:
    """Rows of dates that Dagster's partitions do not have: the window's start moved, or the stream takes every date."""
    return commit.rows - sum(commit.rows_by_date[day] for day in touched_dates(stream, commit))


def materialization(
    stream: Stream, commit: Commit, day: date, *, metadata: Mapping[str, Any], data_version: int = -1
) -> dg.AssetMaterialization:
    """The event of one date.

    A tag names the commit, so that what was told can be told from what was not: by its attempt id, because the versions
    of a table made anew begin at 0 again.

    Args:
        data_version: The date's newest version as far as Dagster knows; counts where it is above the commit's.
    """
    return dg.AssetMaterialization(
        table_key(stream),
        partition=day.isoformat(),
        tags={DATA_VERSION_TAG: str(max(commit.version, data_version)), ATTEMPT_TAG: commit.attempt_id},
        metadata={"rows_added": commit.rows_by_date[day], **commit_metadata(stream, commit), **metadata},
    )


def commit_metadata(stream: Stream, commit: Commit) -> dict[str, Any]:
    """What is true of the whole commit, whichever date it is shown at."""
    return {
        "delta_version": commit.version,
        "commit_rows": commit.rows,
        "commit_dates": len(commit.rows_by_date),  # not which: a commit of 3,000 dates has 3,000 events
        "dead_letters": commit.dead_letters,
        "tombstones": commit.tombstones,
        "gap_offsets": commit.gaps,
        "bytes_added": commit.bytes,
        "offset_ranges": dg.MetadataValue.json({str(r.topic_partition): [r.start, r.end] for r in commit.ranges}),
        "attempt_id": commit.attempt_id,
        "topic": stream.topic,
    }


def drain_observation(
    stream: Stream, report: DrainReport, *, day: str, lag_seconds: float | None
) -> dg.AssetObservation:
    """The drain as a whole, also one that found nothing: it touches no date, so it is no materialization.

    Args:
        day: The run's partition key; the UI lists the drain there.
        lag_seconds: Of what waits after the drain; ``None`` if that is unknown.
    """
    lag = {} if lag_seconds is None else {"lag_seconds": lag_seconds}
    return dg.AssetObservation(table_key(stream), partition=day, metadata={**drain_metadata(report), **lag})


def drain_metadata(report: DrainReport) -> dict[str, Any]:
    """The numbers of a drain; without a commit there is no version."""
    version = {} if report.version is None else {"delta_version": report.version}
    settled = {"settled": "; ".join(report.settled)} if report.settled else {}
    return {
        **version,
        **settled,
        "rows_added": report.rows_added,
        "rows_by_date": dg.MetadataValue.json(by_date(report.rows_by_date)),
        "commits": len(report.commits),
        "dead_letters": report.dead_letters,
        "backlog_before": report.backlog_before,
        "backlog_after": report.backlog_after,
        "positions": dg.MetadataValue.json({str(tp): offset for tp, offset in sorted(report.positions.items())}),
        "seconds": report.seconds,
        "cpu_seconds": report.cpu_seconds,
    }


def by_date(rows: Mapping[date, int]) -> dict[str, int]:
    """Counts in the order of their dates, as JSON takes them."""
    return {day.isoformat(): count for day, count in sorted(rows.items())}
