"""What Dagster is told of a stream's dead letters: one materialization per date of the messages' own timestamps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any

import dagster as dg

from kdi_assets.components.events import (
    DATA_VERSION_TAG,
    MANY_FIELDS,
    commit_told,
    letters_metadata,
    of_commit,
)
from kdi_assets.components.names import dates, letters_key
from kdi_assets.drain.report import Commit
from kdi_assets.replay.chosen import Group, Standing
from kdi_assets.replay.report import ReplayReport
from kdi_assets.stream import Stream


def materializations(stream: Stream, commit: Commit, *, lake: str) -> Iterator[dg.AssetMaterialization]:
    """One event per date of which the commit added letters or said what became of them; none if there were none."""
    for day in touched_dates(stream, commit):
        yield materialization(stream, commit, day, metadata=letters_metadata(stream, [commit], lake=lake))


def touched_dates(stream: Stream, commit: Commit) -> list[date]:
    """Those that Dagster's partitions have; letters of other dates are reached by the command line."""
    known = dates(stream)
    return [day for day in sorted(commit.letters_by_date) if known.has_partition_key(day.isoformat())]


def materialization(
    stream: Stream, commit: Commit, day: date, *, metadata: Mapping[str, Any], data_version: int = -1
) -> dg.AssetMaterialization:
    """The event of one date of the letters: tagged with the versions of the table, by which they are counted."""
    said = {
        "letters_written" if commit.ranges else "letters_judged": commit.letters_by_date.get(day, 0),
        **metadata,
        **commit_told(stream, commit),
    }
    return of_commit(letters_key(stream), commit, day, metadata=said, data_version=data_version)


def of_replay(
    stream: Stream, done: ReplayReport, standing: Standing, day: date, *, lake: str
) -> dg.AssetMaterialization:
    """The event of a date whose open letters were judged again, whatever became of them."""
    told = {
        **_standing_metadata(stream, standing, day, lake=lake),
        "replayed": dg.MetadataValue.json(outcomes(done)),
    }
    if done.commit:
        return materialization(stream, done.commit, day, metadata=told)
    tags = {DATA_VERSION_TAG: str(standing.version)}  # nothing was committed: the letters stand as they stood
    version = {"delta_version": standing.version} if standing.version >= 0 else {}
    return dg.AssetMaterialization(letters_key(stream), partition=day.isoformat(), tags=tags, metadata=told | version)


def outcomes(done: ReplayReport) -> dict[str, int]:
    """What became of the letters of all dates of a replay, and which it left alone."""
    return {**done.outcomes, "withheld": done.withheld, "waiting": done.waiting}


def in_words(stream: Stream, done: ReplayReport) -> str:
    """The replay as a line of the run's log."""
    if not done.messages:
        left = done.withheld + done.waiting
        return f"{stream.name}: no open dead letter to judge again" + (f"; {left:,} left alone" if left else "")
    became = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(outcomes(done).items()) if count)
    return f"{stream.name}: {done.messages:,} dead letters judged again: {became}"


def _standing_metadata(stream: Stream, standing: Standing, day: date, *, lake: str) -> dict[str, Any]:
    groups = standing.by_date.get(day, ())
    counts = {state: sum(g.letters for g in groups if g.state == state) for state in ("open", "resolved", "discarded")}
    still = [g for g in groups if g.state == "open"]
    return {
        **counts,
        **({"open_by_reason": dg.MetadataValue.md(_table(still))} if still else {}),
        "dead_letters_table": dg.MetadataValue.path(stream.dead_letters_uri(lake)),
        "show_them": f"kdi dead-letters show {stream.name} --from {day} --to {day}",
    }


def _table(groups: Sequence[Group]) -> str:
    """Reasons as Markdown, the most frequent first."""
    lines = [f"| {_cell(g.reason)} | {_cell(g.field)} | {g.letters:,} | {_at(g)} |" for g in groups[:MANY_FIELDS]]
    left = len(groups) - len(lines)
    more = [f"| and {left:,} more | | | |"] if left else []
    return "\n".join(["| reason | field | open letters | example |", "| --- | --- | ---: | --- |", *lines, *more])


def _at(group: Group) -> str:
    return f"{group.example[0]} offset {group.example[1]}"


def _cell(text: str) -> str:
    """A name of a field is whatever producers wrote."""
    shown = text.replace("\\", "\\\\").replace("|", "\\|")
    return "".join(c if c.isprintable() else "�" for c in shown)
