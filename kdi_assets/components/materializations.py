"""What Dagster is told of commits, drains and replays: metadata, and one materialization per touched date.

Of a table, by the dates of its rows; of its dead letters, by the dates of the messages' own timestamps.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import dagster as dg

from kdi_assets.components.names import dates, letters_key, table_key
from kdi_assets.drain.report import Commit, DrainReport
from kdi_assets.ledger.entry import FieldCounts
from kdi_assets.ledger.freshness import freshness
from kdi_assets.replay.dead_letter_filter import DeadLetterGroup, Standing
from kdi_assets.replay.report import ReplayReport
from kdi_assets.stream.stream import Stream

ATTEMPT_TAG = "kdi/attempt"
DATA_VERSION_TAG = "dagster/data_version"
FEW_FIELDS, MANY_FIELDS = 10, 100
"""Names in the event of a date, of which a commit may have thousands, and in that of the drain."""


def touched_dates(stream: Stream, commit: Commit) -> list[date]:
    """The dates that got or lost rows and that Dagster's partitions have; another would be stored and never shown."""
    return _with_partition(stream, commit.touched)


def letters_dates(stream: Stream, commit: Commit) -> list[date]:
    """Those of its dead letters that Dagster's partitions have; letters of others are reached by the command line."""
    return _with_partition(stream, commit.letters_by_date)


def _with_partition(stream: Stream, days: Collection[date]) -> list[date]:
    known = dates(stream)
    return [day for day in sorted(days) if known.has_partition_key(day.isoformat())]


def materialization(
    stream: Stream, commit: Commit, day: date, *, metadata: Mapping[str, Any], data_version: int = -1
) -> dg.AssetMaterialization:
    """The event of one date of the table, as ``_of_commit``.

    Commit-wide counts are one value: as numbers of each date they would be plotted once per date.
    """
    # A replay takes the rows of its messages out and puts them in anew, the unchanged ones too.
    removed = {"rows_removed": commit.removed_by_date.get(day, 0)} if commit.removed_by_date else {}
    ranges = {str(r.topic_partition): f"[{r.start}, {r.end})" for r in (counts.range for counts in commit.ranges)}
    said = {
        "rows_added": commit.rows_by_date.get(day, 0),
        **removed,
        **metadata,
        **_which_commit(stream, commit),
        "offset_ranges": dg.MetadataValue.json(ranges),
        **({"expectations_not_met": dg.MetadataValue.json(dict(commit.unmet))} if commit.unmet else {}),
        **_fields_metadata(commit, most=FEW_FIELDS),
        **_freshness_metadata([commit]),
    }
    return _of_commit(table_key(stream), commit, day, metadata=said, data_version=data_version)


def letters_materialization(
    stream: Stream, commit: Commit, day: date, *, metadata: Mapping[str, Any], data_version: int = -1
) -> dg.AssetMaterialization:
    """The event of one date of the dead letters, as ``_of_commit``; versions are the table's, which they count by."""
    counted = "letters_written" if commit.ranges else "letters_judged"
    said = {counted: commit.letters_by_date.get(day, 0), **metadata, **_which_commit(stream, commit)}
    return _of_commit(letters_key(stream), commit, day, metadata=said, data_version=data_version)


def _of_commit(
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


def _which_commit(stream: Stream, commit: Commit) -> dict[str, Any]:
    brought = {
        "rows": commit.rows,
        **({"rows_removed": sum(commit.removed_by_date.values())} if commit.removed_by_date else {}),
        "dates": len(commit.touched),  # not which: a commit of 3,000 dates has 3,000 events
        "dead_letters": commit.dead_letters,
        "tombstones": commit.tombstones,
        "filtered": commit.filtered,
        "gap_offsets": commit.gap_offsets,
        "bytes": commit.bytes,
    }
    return {
        "commit": dg.MetadataValue.json(brought),
        "delta_version": commit.version,
        "attempt_id": commit.attempt_id,
        "topic": stream.topic,
    }


def where_letters_are(stream: Stream, commits: Sequence[Commit], *, lake: str) -> dict[str, Any]:
    """Where the dead letters of these commits lie, and a statement for Spark that shows them and no others."""
    attempts = [commit.attempt_id for commit in commits if commit.dead_letters]
    if not attempts:
        return {}
    uri, named = stream.dead_letters_uri(lake), ", ".join(f"'{attempt}'" for attempt in attempts)
    wanted = "SELECT partition, offset, reason, field, CAST(value AS STRING) AS message"
    query = f"{wanted} FROM delta.`{uri}` WHERE attempt_id IN ({named}) ORDER BY partition, offset"
    return {"dead_letters_table": dg.MetadataValue.path(uri), "dead_letters_query": query}


def drain_metadata(report: DrainReport, *, lag_after: float | None) -> dict[str, Any]:
    """The numbers of a drain, under other names than a date's, whose plots they would spoil; none that is unknown.

    Args:
        lag_after: Age in seconds of the oldest message that waits after the drain; ``None`` if that is unknown.
    """
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
        "drained_rows_by_date": _by_date(report.rows_by_date),
        "positions": dg.MetadataValue.json({str(tp): offset for tp, offset in sorted(report.positions.items())}),
        **_fields_metadata(report, most=MANY_FIELDS),
        **_freshness_metadata(report.commits),
    }
    return {name: value for name, value in known.items() if value is not None}


def _fields_metadata(of: Commit | DrainReport, *, most: int) -> dict[str, Any]:
    """Fields of messages that are not in their rows, the most frequent ones by path; nothing if there were none."""
    told = {"unknown_fields": of.unknown, "misfits": of.misfits}
    return {name: dg.MetadataValue.json(_counts(counts, most)) for name, counts in told.items() if counts}


def _counts(counts: FieldCounts, most: int) -> dict[str, Any]:
    shown = dict(list(counts.named.items())[:most])
    others = len(counts.named) - len(shown) + counts.others
    return {"messages": counts.messages, "by_field": shown, **({"others_at_least": others} if others else {})}


def _freshness_metadata(commits: Iterable[Commit]) -> dict[str, float]:
    """From messages' timestamps to their commit, in seconds; nothing if no message has a time."""
    seen = freshness((c.ages, c.took_seconds) for c in commits if c.took_seconds is not None)
    told = {"freshness_p50_seconds": seen.p50, "freshness_p95_seconds": seen.p95}
    return {name: seconds for name, seconds in told.items() if seconds is not None}


def _by_date(rows: Mapping[date, int]) -> dg.JsonMetadataValue:
    return dg.MetadataValue.json({day.isoformat(): count for day, count in sorted(rows.items())})


def drain_in_words(report: DrainReport) -> str:
    """The drain as a line of the run's log."""
    filtered = f", {report.filtered:,} filtered," if report.filtered else ""
    rows = f"{report.rows_added:,} rows on {len(report.rows_by_date):,} dates"
    became = f"{rows} and {report.dead_letters:,} dead letters{filtered}"
    return f"{report.stream}: {became} in {report.seconds:.1f} s; {report.backlog_after:,} offsets came meanwhile"


def replay_metadata(done: ReplayReport) -> dict[str, Any]:
    """The numbers of a replay of dates, under other names than those of a drain, whose plots they would spoil."""
    left = {"messages_waiting": done.waiting, "messages_missing": done.missing.messages}
    return {
        "replayed": f"{done.first} to {done.last}",
        "replayed_messages": done.messages,
        "replayed_into": dg.MetadataValue.json(dict(done.outcomes)),
        "replayed_changes": dg.MetadataValue.json({f"rows_{change}": rows for change, rows in done.changes.items()}),
        "rows_added_by_date": _by_date(done.rows_by_date),
        "rows_removed_by_date": _by_date(done.removed_by_date),
        **{name: messages for name, messages in left.items() if messages},
        **({"delta_version": done.commit.version} if done.commit else {}),
    }


def replay_in_words(done: ReplayReport) -> str:
    """The replay of dates as a line of the run's log."""
    of = f"{done.stream}: {done.messages:,} messages of {done.first} to {done.last} replayed"
    changes = [f"{rows:,} rows {change}" for change, rows in sorted(done.changes.items()) if rows]
    return f"{of}: {', '.join(changes) if done.commit and changes else 'nothing is different'}"


def replayed_letters(
    stream: Stream, done: ReplayReport, standing: Standing, day: date, *, lake: str
) -> dg.AssetMaterialization:
    """The event of a date whose open letters were judged again, whatever became of them."""
    groups = standing.by_date.get(day, ())
    counts = {state: sum(g.letters for g in groups if g.state == state) for state in ("open", "resolved", "discarded")}
    still = [g for g in groups if g.state == "open"]
    told: dict[str, Any] = {
        **counts,
        **({"open_by_reason": dg.MetadataValue.md(_table(still))} if still else {}),
        "dead_letters_table": dg.MetadataValue.path(stream.dead_letters_uri(lake)),
        "show_them": f"kdi dead-letters show {stream.name} --from {day} --to {day}",
        "replayed": dg.MetadataValue.json(_letters_outcomes(done)),
    }
    if done.commit:
        return letters_materialization(stream, done.commit, day, metadata=told)
    tags = {DATA_VERSION_TAG: str(standing.version)}  # nothing was committed: the letters stand as they stood
    version = {"delta_version": standing.version} if standing.version >= 0 else {}
    return dg.AssetMaterialization(letters_key(stream), partition=day.isoformat(), tags=tags, metadata=told | version)


def letters_in_words(stream: Stream, done: ReplayReport) -> str:
    """The replay of dead letters as a line of the run's log."""
    if not done.messages:
        left = done.withheld + done.waiting
        return f"{stream.name}: no open dead letter to judge again" + (f"; {left:,} left alone" if left else "")
    became = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(_letters_outcomes(done).items()) if count)
    return f"{stream.name}: {done.messages:,} dead letters judged again: {became}"


def _letters_outcomes(done: ReplayReport) -> dict[str, int]:
    """What became of the letters of all dates of a replay, and which it left alone."""
    return {**done.outcomes, "withheld": done.withheld, "waiting": done.waiting}


def _table(groups: Sequence[DeadLetterGroup]) -> str:
    """Reasons as Markdown, the most frequent first."""
    lines = [
        f"| {_cell(g.reason)} | {_cell(g.field)} | {g.letters:,} | {g.example[0]} offset {g.example[1]} |"
        for g in groups[:MANY_FIELDS]
    ]
    left = len(groups) - len(lines)
    more = [f"| and {left:,} more | | | |"] if left else []
    return "\n".join(["| reason | field | open letters | example |", "| --- | --- | ---: | --- |", *lines, *more])


def _cell(text: str) -> str:
    """A name of a field is whatever producers wrote."""
    shown = text.replace("\\", "\\\\").replace("|", "\\|")
    return "".join(c if c.isprintable() else "�" for c in shown)
