"""Dagster's events of commits, drains and replays: metadata, and one materialization per touched date.

A table's dates are those of its rows; dead letters have the dates of the messages' own timestamps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import dagster as dg

from kdi_assets.components.names import dates, letters_key, shown_dates, table_key, topic_key
from kdi_assets.documents.model.stream import Stream
from kdi_assets.operate.monitoring.freshness import freshness
from kdi_assets.streams.drain.report import Commit, DrainReport
from kdi_assets.streams.ledger.entry import FieldCounts
from kdi_assets.streams.replay.dead_letter_filter import DeadLetterCounts, DeadLetterGroup
from kdi_assets.streams.replay.report import ReplayReport
from kdi_assets.wording import byte_size, counted, duration

ATTEMPT_TAG = "kdi/attempt"
DATA_VERSION_TAG = "dagster/data_version"
FEW_FIELDS, MANY_FIELDS = 10, 100
"""Field names in the event of a date (a commit may have thousands of dates), and in the event of a drain."""

Metadata = dict[str, Any]


def without_unknown(metadata: Mapping[str, Any]) -> Metadata:
    """The metadata without what is unknown (``None``)."""
    return {name: value for name, value in metadata.items() if value is not None}


def touched_dates(stream: Stream, commit: Commit) -> list[date]:
    """The dates that got or lost rows, if Dagster's partitions have them: the UI would not show others."""
    return _in_partitions(stream, commit.touched)


def letters_dates(stream: Stream, commit: Commit) -> list[date]:
    """The dates of the commit's dead letters, if Dagster's partitions have them; the command line shows the others."""
    return _in_partitions(stream, commit.letters_by_date)


def _in_partitions(stream: Stream, days: Collection[date]) -> list[date]:
    return shown_dates(days, dates(stream), first=stream.date_window.first)


def materialization(
    stream: Stream, commit: Commit, day: date, *, metadata: Mapping[str, Any], data_version: int = -1
) -> dg.AssetMaterialization:
    """The event of one date of the table.

    Args:
        data_version: The date's newest version in Dagster; replaces the commit's version if it is higher.

    Counts of the whole commit are one JSON value: as numbers, the UI would plot them once per date.
    """
    ranges = {str(c.range.topic_partition): f"[{c.range.start}, {c.range.end})" for c in commit.ranges}
    event = {
        "rows_added": commit.rows_by_date.get(day, 0),
        # A replay removes all rows of its messages and adds them again, unchanged ones too.
        "rows_removed": commit.removed_by_date.get(day, 0) if commit.removed_by_date else None,
        **metadata,
        **_commit_metadata(stream, commit),
        "offset_ranges": dg.MetadataValue.json(ranges),
        "expectations_not_met": dg.MetadataValue.json(dict(commit.unmet)) if commit.unmet else None,
        **_fields_metadata(commit, most=FEW_FIELDS),
        **_freshness_metadata([commit]),
    }
    version = max(commit.version, data_version)
    return date_event(table_key(stream), day, metadata=event, version=version, attempt_id=commit.attempt_id)


def letters_materialization(
    stream: Stream, commit: Commit, day: date, *, metadata: Mapping[str, Any], data_version: int = -1
) -> dg.AssetMaterialization:
    """The event of one date of the dead letters, as ``materialization``. The version is the stream's table's."""
    count = "letters_written" if commit.ranges else "letters_judged"
    event = {count: commit.letters_by_date.get(day, 0), **metadata, **_commit_metadata(stream, commit)}
    version = max(commit.version, data_version)
    return date_event(letters_key(stream), day, metadata=event, version=version, attempt_id=commit.attempt_id)


def date_event(
    key: dg.AssetKey,
    day: date | None,
    *,
    metadata: Mapping[str, Any],
    version: int | None = None,
    attempt_id: str = "",
) -> dg.AssetMaterialization:
    """The event of one touched date of an asset. Only of a served table, Dagster makes the event of the run's result.

    Args:
        day: ``None``: the asset has no date partitions.
        metadata: What is unknown (``None``) is left out.
        version: The data version: of the table, as the date has it now. ``None``: the date did not change.
        attempt_id: Of the commit, if the event is of one. Missing events are found by it: the versions of a table that
            was created again start at 0.
    """
    tags = {} if version is None else {DATA_VERSION_TAG: str(version)}
    if attempt_id:
        tags[ATTEMPT_TAG] = attempt_id
    partition = day.isoformat() if day else None
    return dg.AssetMaterialization(key, partition=partition, tags=tags, metadata=without_unknown(metadata))


def _commit_metadata(stream: Stream, commit: Commit) -> Metadata:
    removed = sum(commit.removed_by_date.values())
    # Text: a number would be plotted once for each date, and a commit may have 3,000 dates.
    whole = [f"{counted(commit.rows, 'row')} on {counted(len(commit.touched), 'date')}"]
    whole += [f"{counted(removed, 'row')} removed"] if removed else []
    return {
        "commit": ", ".join([*whole, *_other_verdicts(commit), byte_size(commit.bytes)]),
        "delta_version": commit.version,
        "topic": dg.MetadataValue.asset(topic_key(stream.cluster, stream.topic)),
    }


def _other_verdicts(counts: Commit | DrainReport) -> list[str]:
    """Messages that are not rows, and gaps, in words; without those that are 0."""
    gaps = counts.gap_offsets if isinstance(counts, Commit) else counts.gaps
    numbers = {"dead letter": counts.dead_letters, "tombstone": counts.tombstones, "filtered message": counts.filtered}
    return [counted(n, thing) for thing, n in {**numbers, "gap offset": gaps}.items() if n]


def dead_letters_metadata(stream: Stream, commits: Sequence[Commit], *, lake: str) -> Metadata:
    """The asset of the dead letters, and a Spark query for those of these commits; empty if they have none."""
    attempts = [commit.attempt_id for commit in commits if commit.dead_letters]
    if not attempts:
        return {}
    uri, listed = stream.dead_letters_uri(lake), ", ".join(f"'{attempt}'" for attempt in attempts)
    select = "SELECT partition, offset, reason, field, CAST(value AS STRING) AS message"
    query = f"{select} FROM delta.`{uri}` WHERE attempt_id IN ({listed}) ORDER BY partition, offset"
    return {"dead_letters_table": dg.MetadataValue.asset(letters_key(stream)), "dead_letters_query": query}


def drain_metadata(report: DrainReport, *, lag_after: float | None) -> Metadata:
    """The numbers of a drain, without unknown ones. The names differ from a date's: the UI plots each name.

    Args:
        lag_after: Age in seconds of the oldest message in the backlog after the drain; ``None`` if unknown.
    """
    lag_before = report.lag_seconds if report.backlog_before else 0.0
    return without_unknown(
        {
            "drained": _drained(report),
            "drained_rows": report.rows_added,
            "dead_letters": report.dead_letters,
            "backlog_before": report.backlog_before,
            "backlog_after": report.backlog_after,
            "lag_seconds_before": None if lag_before is None else round(lag_before, 1),
            "lag_seconds_after": None if lag_after is None else round(lag_after, 1),
            "seconds": round(report.seconds, 2),
            "cpu_seconds": round(report.cpu_seconds, 2),
            "delta_version": report.version,
            "positions_committed_because": "; ".join(report.position_commits) or None,
            "expectations_not_met": dg.MetadataValue.json(report.unmet) if report.unmet else None,
            "drained_rows_by_date": rows_by_date(report.rows_by_date),
            "positions": dg.MetadataValue.json({str(tp): offset for tp, offset in sorted(report.positions.items())}),
            **_fields_metadata(report, most=MANY_FIELDS),
            **_freshness_metadata(report.commits),
        }
    )


def _drained(report: DrainReport) -> str:
    """The drain in words."""
    rows = f"{counted(report.rows_added, 'row')} on {counted(len(report.rows_by_date), 'date')}"
    commits = f"{counted(len(report.commits), 'commit')} in {duration(report.seconds)}"
    return ", ".join([rows, *_other_verdicts(report), byte_size(report.bytes), commits])


def _fields_metadata(counted: Commit | DrainReport, *, most: int) -> Metadata:
    """The most frequent fields of messages that are not in the rows, by path; empty if there are none."""
    counts = {"unknown_fields": counted.unknown, "misfits": counted.misfits}
    return {name: dg.MetadataValue.json(_field_counts(found, most)) for name, found in counts.items() if found}


def _field_counts(counts: FieldCounts, most: int) -> Metadata:
    frequent = dict(list(counts.named.items())[:most])
    others = len(counts.named) - len(frequent) + counts.others
    return {"messages": counts.messages, "by_field": frequent, **({"others_at_least": others} if others else {})}


def _freshness_metadata(commits: Iterable[Commit]) -> Metadata:
    """Seconds from the messages' timestamps to their commit; empty if no message has a timestamp."""
    found = freshness((c.ages, c.took_seconds) for c in commits if c.took_seconds is not None)
    return without_unknown({"freshness_p50_seconds": found.p50, "freshness_p95_seconds": found.p95})


def rows_by_date(rows: Mapping[date, int]) -> dg.JsonMetadataValue:
    """Rows of each date, as one value."""
    return dg.MetadataValue.json({day.isoformat(): count for day, count in sorted(rows.items())})


def drain_summary(report: DrainReport) -> str:
    """The drain as a line of the run's log."""
    filtered = f", {report.filtered:,} filtered," if report.filtered else ""
    rows = f"{report.rows_added:,} rows on {len(report.rows_by_date):,} dates"
    drained = f"{rows} and {report.dead_letters:,} dead letters{filtered} in {report.seconds:.1f} s"
    return f"{report.stream}: {drained}; backlog now {report.backlog_after:,} offsets"


def replay_metadata(report: ReplayReport) -> Metadata:
    """The numbers of a replay of dates. The names differ from a drain's: the UI plots each name."""
    return without_unknown(
        {
            "replayed": f"{report.first} to {report.last}",
            "replayed_messages": report.messages,
            "replayed_into": dg.MetadataValue.json(dict(report.outcomes)),
            "replayed_changes": dg.MetadataValue.json({f"rows_{change}": n for change, n in report.changes.items()}),
            "rows_added_by_date": rows_by_date(report.rows_by_date),
            "rows_removed_by_date": rows_by_date(report.removed_by_date),
            "messages_waiting": report.waiting or None,
            "messages_missing": report.missing.messages or None,
            "delta_version": report.commit.version if report.commit else None,
        }
    )


def replay_summary(report: ReplayReport) -> str:
    """The replay of dates as a line of the run's log."""
    replayed = f"{report.stream}: {report.messages:,} messages of {report.first} to {report.last} replayed"
    changes = [f"{rows:,} rows {change}" for change, rows in sorted(report.changes.items()) if rows]
    return f"{replayed}: {', '.join(changes) if report.commit and changes else 'no row changed'}"


def replayed_letters(
    stream: Stream, report: ReplayReport, letters: DeadLetterCounts, day: date, *, lake: str
) -> dg.AssetMaterialization:
    """The event of a date whose open dead letters were replayed, whether or not any of them changed."""
    groups = letters.by_date.get(day, ())
    counts = {state: sum(g.letters for g in groups if g.state == state) for state in ("open", "resolved", "discarded")}
    still_open = [g for g in groups if g.state == "open"]
    event: Metadata = {
        **counts,
        **({"open_by_reason": dg.MetadataValue.md(_table(still_open))} if still_open else {}),
        "dead_letters_table": dg.MetadataValue.path(stream.dead_letters_uri(lake)),
        "show_them": f"kdi dead-letters show {stream.name} --from {day} --to {day}",
        "replayed": dg.MetadataValue.json(_letter_outcomes(report)),
    }
    if report.commit:
        return letters_materialization(stream, report.commit, day, metadata=event)
    event["delta_version"] = letters.version if letters.version >= 0 else None
    # Without a commit the date keeps its version.
    return date_event(letters_key(stream), day, metadata=event, version=letters.version)


def letters_summary(stream: Stream, report: ReplayReport) -> str:
    """The replay of dead letters as a line of the run's log."""
    if not report.messages:
        left = report.withheld + report.waiting
        return f"{stream.name}: no open dead letter to replay" + (f"; {left:,} left as they are" if left else "")
    outcomes = sorted(_letter_outcomes(report).items())
    became = ", ".join(f"{count:,} {outcome}" for outcome, count in outcomes if count)
    return f"{stream.name}: {report.messages:,} dead letters replayed: {became}"


def _letter_outcomes(report: ReplayReport) -> dict[str, int]:
    """Dead letters of all dates of a replay by outcome, with those that it left as they were."""
    return {**report.outcomes, "withheld": report.withheld, "waiting": report.waiting}


def _table(groups: Sequence[DeadLetterGroup]) -> str:
    """Reasons as a Markdown table, the most frequent first."""
    lines = [
        f"| {_cell(g.reason)} | {_cell(g.field)} | {g.letters:,} | {g.example[0]} offset {g.example[1]} |"
        for g in groups[:MANY_FIELDS]
    ]
    left = len(groups) - len(lines)
    more = [f"| and {left:,} more | | | |"] if left else []
    return "\n".join(["| reason | field | open letters | example |", "| --- | --- | ---: | --- |", *lines, *more])


def _cell(text: str) -> str:
    """Text for a cell; producers choose the names of fields, so any character can occur."""
    escaped = text.replace("\\", "\\\\").replace("|", "\\|")
    return "".join(c if c.isprintable() else "�" for c in escaped)
