"""Older dates of a table, replayed by a run of its asset; Dagster is told of every date that lost or got rows."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import TYPE_CHECKING, Any, Protocol

import dagster as dg

from kdi_assets.components.drain_run import tell
from kdi_assets.components.events import by_date
from kdi_assets.components.names import table_key
from kdi_assets.replay.report import ReplayReport
from kdi_assets.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ReplayDates(Protocol):
    """``kdi_assets.replay.replay_dates.replay_dates``; a test about Dagster alone passes another."""

    def __call__(
        self,
        stream: Stream,
        *,
        lake: str,
        session: Callable[[], SparkSession],
        first: date,
        last: date,
        run_id: str,
    ) -> ReplayReport: ...


def replay_and_tell(
    context: dg.AssetExecutionContext,
    stream: Stream,
    first: date,
    last: date,
    *,
    replay: ReplayDates,
    lake: str,
    session: Callable[[], SparkSession],
) -> None:
    """Replay dates; one materialization per date that lost or got rows, one observation of the whole.

    A date that was asked for and is what it was gets none: what is built on it has nothing to do.

    Raises:
        KdiError: What the replay refuses.
    """
    done = replay(stream, lake=lake, session=session, first=first, last=last, run_id=context.run.run_id)
    if done.commit:
        tell(context, stream, done.commit, lake=lake)
    context.log_event(observation(stream, done))
    context.log.info(in_words(done))


def observation(stream: Stream, done: ReplayReport) -> dg.AssetObservation:
    """The replay as a whole, also one that changed nothing; the UI lists it at the last of its dates.

    Its numbers have other names than those of a drain, whose plots they would spoil.
    """
    changes = {f"rows_{change}": rows for change, rows in done.changes.items()}
    return dg.AssetObservation(
        table_key(stream),
        partition=str(done.last),
        metadata={
            "replayed": f"{done.first} to {done.last}",
            "replayed_messages": done.messages,
            "replayed_into": dg.MetadataValue.json(dict(done.outcomes)),
            "replayed_changes": dg.MetadataValue.json(changes),
            "rows_added_by_date": dg.MetadataValue.json(by_date(done.rows_by_date)),
            "rows_removed_by_date": dg.MetadataValue.json(by_date(done.removed_by_date)),
            **_left_alone(done),
            **({"delta_version": done.commit.version} if done.commit else {}),
        },
    )


def in_words(done: ReplayReport) -> str:
    """The replay as a line of the run's log."""
    of = f"{done.stream}: {done.messages:,} messages of {done.first} to {done.last} replayed"
    changes = [f"{rows:,} rows {change}" for change, rows in sorted(done.changes.items()) if rows]
    return f"{of}: {', '.join(changes) if done.commit and changes else 'nothing is different'}"


def _left_alone(done: ReplayReport) -> dict[str, Any]:
    left = {"messages_waiting": done.waiting, "messages_missing": done.missing.messages}
    return {name: messages for name, messages in left.items() if messages}
