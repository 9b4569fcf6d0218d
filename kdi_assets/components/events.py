"""What Dagster is told of a commit and of a drain: one materialization per touched date, one observation per drain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any

import dagster as dg

from kdi_assets.components.names import dates, table_key
from kdi_assets.drain.report import Commit, DrainReport
from kdi_assets.ledger.entry import FieldCounts
from kdi_assets.ledger.freshness import freshness
from kdi_assets.stream import Stream

ATTEMPT_TAG = "kdi/attempt"
DATA_VERSION_TAG = "dagster/data_version"
FEW_FIELDS, MANY_FIELDS = 10, 100
"""Names in the event of a date, of which a commit may have thousands, and in that of the drain."""


def materializations(
    stream: Stream, commit: Commit, *, facts: Mapping[str, Any], by_date: Mapping[date, Mapping[str, Any]]
) -> Iterator[dg.AssetMaterialization]:
    """One event per date that got or lost rows; none for another, or for one that Dagster's partitions do not have.

    Args:
        facts: Metadata that every event carries.
        by_date: Metadata of a date in the whole table, where it is known.
    """
    for day in touched_dates(stream, commit):
        yield materialization(stream, commit, day, metadata={**by_date.get(day, {}), **facts})


def touched_dates(stream: Stream, commit: Commit) -> list[date]:
    """The dates that got or lost rows and that Dagster's partitions have; another would be stored and never shown."""
    known = dates(stream)
    return [day for day in commit.touched if known.has_partition_key(day.isoformat())]


def rows_without_partition(stream: Stream, commit: Commit) -> int:
    """Rows of dates that Dagster's partitions do not have: the window's start moved, or the stream takes every date."""
    return commit.rows - sum(commit.rows_by_date.get(day, 0) for day in touched_dates(stream, commit))


def materialization(
    stream: Stream, commit: Commit, day: date, *, metadata: Mapping[str, Any], data_version: int = -1
) -> dg.AssetMaterialization:
    """The event of one date of the table, as ``of_commit``."""
    said = {**rows_metadata(commit, day), **metadata, **commit_metadata(stream, commit)}
    return of_commit(table_key(stream), commit, day, metadata=said, data_version=data_version)


def of_commit(
    key: dg.AssetKey, commit: Commit, day: date, *, metadata: Mapping[str, Any], data_version: int
) -> dg.AssetMaterialization:
    """The event of one date of an asset that the commit touched, the table or its dead letters.

    A tag names the commit, so that what was told can be told from what was not: by its attempt id, because the versions
    of a table made anew begin at 0 again.

    Args:
        data_version: The date's newest version as far as Dagster knows; counts where it is above the commit's.
    """
    return dg.AssetMaterialization(
        key,
        partition=day.isoformat(),
        tags={DATA_VERSION_TAG: str(max(commit.version, data_version)), ATTEMPT_TAG: commit.attempt_id},
        metadata=metadata,
    )


def rows_metadata(commit: Commit, day: date) -> dict[str, int]:
    """The rows of a date; a replay takes those of its messages out and puts them in anew, the unchanged ones too."""
    removed = {"rows_removed": commit.removed_by_date.get(day, 0)} if commit.removed_by_date else {}
    return {"rows_added": commit.rows_by_date.get(day, 0), **removed}


def commit_metadata(stream: Stream, commit: Commit) -> dict[str, Any]:
    """What is true of the whole commit, whichever date it is shown at.

    Its counts are one value: as numbers of each date they would be plotted once per date.
    """
    ranges = {str(r.topic_partition): f"[{r.start}, {r.end})" for r in commit.ranges}
    return {
        **commit_told(stream, commit),
        "offset_ranges": dg.MetadataValue.json(ranges),
        **({"expectations_not_met": dg.MetadataValue.json(dict(commit.unmet))} if commit.unmet else {}),
        **fields_metadata(commit, most=FEW_FIELDS),
        **freshness_metadata([commit]),
    }


def commit_told(stream: Stream, commit: Commit) -> dict[str, Any]:
    """Which commit it is, and what it brought."""
    return {
        "commit": dg.MetadataValue.json(commit_counts(commit)),
        "delta_version": commit.version,
        "attempt_id": commit.attempt_id,
        "topic": stream.topic,
    }


def commit_counts(commit: Commit) -> dict[str, int]:
    """What a commit brought."""
    return {
        "rows": commit.rows,
        **({"rows_removed": sum(commit.removed_by_date.values())} if commit.removed_by_date else {}),
        "dates": len(commit.touched),  # not which: a commit of 3,000 dates has 3,000 events
        "dead_letters": commit.dead_letters,
        "tombstones": commit.tombstones,
        "filtered": commit.filtered,
        "gap_offsets": commit.gaps,
        "bytes": commit.bytes,
    }


def letters_metadata(stream: Stream, commits: Sequence[Commit], *, lake: str) -> dict[str, Any]:
    """Where the dead letters of these commits lie, and a statement for Spark that shows them and no others."""
    attempts = [commit.attempt_id for commit in commits if commit.dead_letters]
    if not attempts:
        return {}
    uri, named = stream.dead_letters_uri(lake), ", ".join(f"'{attempt}'" for attempt in attempts)
    wanted = "SELECT partition, offset, reason, field, CAST(value AS STRING) AS message"
    query = f"{wanted} FROM delta.`{uri}` WHERE attempt_id IN ({named}) ORDER BY partition, offset"
    return {"dead_letters_table": dg.MetadataValue.path(uri), "dead_letters_query": query}


def drain_observation(
    stream: Stream, report: DrainReport, *, lake: str, day: str, lag_after: float | None
) -> dg.AssetObservation:
    """The drain as a whole, also one that found nothing: it touches no date, so it is no materialization.

    Args:
        day: The run's partition key; the UI lists the drain there.
        lag_after: Age in seconds of the oldest message that waits after the drain; ``None`` if that is unknown.
    """
    letters = letters_metadata(stream, report.commits, lake=lake)
    metadata = {**drain_metadata(report, lag_after=lag_after), **letters}
    return dg.AssetObservation(table_key(stream), partition=day, metadata=metadata)


def drain_metadata(report: DrainReport, *, lag_after: float | None) -> dict[str, Any]:
    """The numbers of a drain, under other names than a date's, whose plots they would spoil; none that is unknown."""
    lag_before = report.lag_seconds if report.backlog_before else 0.0
    known = {
        "drained_rows": report.rows_added,
        "dead_letters": report.dead_letters,
        "tombstones": report.tombstones,
        "filtered": report.filtered,
        "gap_offsets": report.gaps,
        "bytes": report.bytes,
        "backlog_before": report.backlog_before,
        "backlog_after": report.backlog_after,
        "lag_seconds_before": None if lag_before is None else round(lag_before, 1),
        "lag_seconds_after": None if lag_after is None else round(lag_after, 1),
        "seconds": round(report.seconds, 2),
        "cpu_seconds": round(report.cpu_seconds, 2),
        "commits": len(report.commits),
        "delta_version": report.version,
        "positions_committed_because": "; ".join(report.settled) or None,
        "expectations_not_met": dg.MetadataValue.json(report.unmet) if report.unmet else None,
        "drained_rows_by_date": dg.MetadataValue.json(by_date(report.rows_by_date)),
        "positions": dg.MetadataValue.json({str(tp): offset for tp, offset in sorted(report.positions.items())}),
        **fields_metadata(report, most=MANY_FIELDS),
        **freshness_metadata(report.commits),
    }
    return {name: value for name, value in known.items() if value is not None}


def fields_metadata(of: Commit | DrainReport, *, most: int) -> dict[str, Any]:
    """Fields of messages that are not in their rows, the most frequent ones by path; nothing if there were none."""
    told = {"unknown_fields": of.unknown, "misfits": of.misfits}
    return {name: dg.MetadataValue.json(_counts(counts, most)) for name, counts in told.items() if counts}


def _counts(counts: FieldCounts, most: int) -> dict[str, Any]:
    shown = dict(list(counts.named.items())[:most])
    others = len(counts.named) - len(shown) + counts.others
    return {"messages": counts.messages, "by_field": shown, **({"others_at_least": others} if others else {})}


def freshness_metadata(commits: Iterable[Commit]) -> dict[str, float]:
    """From messages' timestamps to their commit, in seconds; nothing if no message has a time."""
    seen = freshness((commit.ages, commit.seconds) for commit in commits)
    told = {"freshness_p50_seconds": seen.p50, "freshness_p95_seconds": seen.p95}
    return {name: seconds for name, seconds in told.items() if seconds is not None}


def in_words(stream: Stream, report: DrainReport) -> str:
    """The drain as a line of the run's log."""
    filtered = f", {report.filtered:,} filtered," if report.filtered else ""
    rows = f"{report.rows_added:,} rows on {len(report.rows_by_date):,} dates"
    became = f"{rows} and {report.dead_letters:,} dead letters{filtered}"
    return f"{stream.name}: {became} in {report.seconds:.1f} s; {report.backlog_after:,} offsets came meanwhile"


def by_date(rows: Mapping[date, int]) -> dict[str, int]:
    """Counts in the order of their dates, as JSON takes them."""
    return {day.isoformat(): count for day, count in sorted(rows.items())}
