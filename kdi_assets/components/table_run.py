"""A run of a table's asset: it drains, replays, or does both, by its dates, and tells Dagster of every commit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg

from kdi_assets.components import materializations
from kdi_assets.components.asset_checks import standing_failures
from kdi_assets.components.column_facts import column_facts
from kdi_assets.components.names import table_key
from kdi_assets.drain.report import Commit, DrainReport
from kdi_assets.monitoring.backlog_reader import read_backlog
from kdi_assets.replay.report import ReplayReport
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REQUESTED_TAG = "kdi/requested_at"
"""When a sensor decided on the run; Dagster creates it a moment later, which may be tomorrow."""
BACKFILL_TAG = "dagster/backfill"

Drain = Callable[..., DrainReport]
"""``kdi_assets.drain.drain.drain``; a test about Dagster alone passes another."""
ReplayDates = Callable[..., ReplayReport]
"""``kdi_assets.replay.replay_dates.replay_dates``; a test about Dagster alone passes another."""


@dataclass(frozen=True, slots=True)
class RunDates:
    """What is meant by the dates that a run was asked for.

    Attributes:
        drains_under: The date that a drain is shown at; ``None``: the run does not drain.
        replays: The first and the last of the dates that it replays, both inclusive; ``None``: none.
    """

    drains_under: date | None = None
    replays: tuple[date, date] | None = None


def dates_meant(first: date, last: date, *, requested: datetime) -> RunDates:
    """Dates that were over when the run was requested are replayed; with a later one among them it drains.

    A date ahead drains as well: nothing of it can be replayed, and where rows may be dated ahead, "Latest" in Dagster's
    dialog is one.

    Args:
        first, last: The run's partition keys, both inclusive.
        requested: When the root run was requested: queued at 23:59, or retried tomorrow, it still drains.
    """
    today = requested.astimezone(UTC).date()
    drains_under = max(first, today) if last >= today else None
    replays = (first, min(last, today - timedelta(days=1))) if first < today else None
    return RunDates(drains_under, replays)


@dataclass(frozen=True, slots=True)
class TableRun:
    """A stream's part in a run of Dagster's."""

    context: dg.AssetExecutionContext
    stream: Stream
    lake: str
    session: Callable[[], SparkSession]

    def dates(self) -> RunDates:
        """What the run is to do."""
        keys = self.context.partition_key_range
        first, last = date.fromisoformat(keys.start), date.fromisoformat(keys.end)
        return dates_meant(first, last, requested=self._requested_at())

    def carry_out(self, meant: RunDates, *, drain: Drain, replay: ReplayDates) -> None:
        """Do it; a run that drains and replays drains first, so that what is new does not wait for what is old.

        Raises:
            KdiError: What is refused; what was committed before is told.
        """
        if meant.drains_under:
            self._drain(meant.drains_under, drain)
        if meant.replays:
            self._replay(*meant.replays, replay)
        if BACKFILL_TAG in self.context.run.tags:
            self._tell_of_the_rest()

    def tell(self, commit: Commit) -> None:
        """Log the materializations of one commit: those of the table, and of its dead letters."""
        self.tell_of_rows(commit)
        letters = materializations.where_letters_are(self.stream, [commit], lake=self.lake)
        for day in materializations.letters_dates(self.stream, commit):
            self.context.log_event(materializations.letters_materialization(self.stream, commit, day, metadata=letters))

    def tell_of_rows(self, commit: Commit) -> None:
        """Log the materializations of the table; say how many rows Dagster's partitions have no date for."""
        if not commit.touched:
            return
        context, stream = self.context, self.stream
        facts = column_facts(stream, self.lake, version=commit.version, days=commit.touched)
        for failure in standing_failures(context.instance, stream, but=context.selected_asset_check_keys):
            context.log_event(failure)
        of_all = {**materializations.where_letters_are(stream, [commit], lake=self.lake), **facts.of_table}
        days = materializations.touched_dates(stream, commit)
        for day in days:
            metadata = {**facts.by_date.get(day, {}), **of_all}
            context.log_event(materializations.materialization(stream, commit, day, metadata=metadata))
        if hidden := commit.rows - sum(commit.rows_by_date.get(day, 0) for day in days):
            # The window's start moved, or the stream takes every date.
            context.log.warning(f"{stream.name}: {hidden:,} rows have dates outside the window; they are in the table")

    def dates_told(self) -> set[str | None]:
        """The dates of the table that the run has told of so far."""
        of_type = dg.DagsterEventType.ASSET_MATERIALIZATION
        records = self.context.instance.get_records_for_run(self.context.run.run_id, of_type=of_type).records
        logged = (record.event_log_entry.asset_materialization for record in records)
        return {e.partition for e in logged if e is not None and e.asset_key == table_key(self.stream)}

    def _drain(self, day: date, drain: Drain) -> None:
        """One materialization per touched date after each commit, one observation at the end, shown at ``day``."""
        # Commit by commit, and each only after it: a date told of stays told of, whatever happens to the run later.
        # What a crash leaves untold in between, the sensor's reconcile finds in the table's log.
        report = drain(
            self.stream,
            lake=self.lake,
            session=self.session,
            run_id=self.context.run.run_id,
            report=self.context.log.info,
            on_commit=self.tell,
        )
        lag_after = read_backlog(self.stream, self.lake).lag_seconds if report.backlog_after else 0.0
        metadata = {
            **materializations.drain_metadata(report, lag_after=lag_after),
            **materializations.where_letters_are(self.stream, report.commits, lake=self.lake),
        }
        # Also of a drain that found nothing: it touches no date, so it is no materialization.
        self.context.log_event(dg.AssetObservation(table_key(self.stream), partition=str(day), metadata=metadata))
        self.context.log.info(materializations.drain_in_words(report))

    def _replay(self, first: date, last: date, replay: ReplayDates) -> None:
        """One materialization per date that lost or got rows, one observation of the whole.

        A date that was asked for and is what it was gets none: what is built on it has nothing to do.
        """
        run_id = self.context.run.run_id
        done = replay(self.stream, lake=self.lake, session=self.session, first=first, last=last, run_id=run_id)
        if done.commit:
            self.tell(done.commit)
        metadata = materializations.replay_metadata(done)
        self.context.log_event(dg.AssetObservation(table_key(self.stream), partition=str(last), metadata=metadata))
        self.context.log.info(materializations.replay_in_words(done))

    def _tell_of_the_rest(self) -> None:
        """Log a materialization of each date of the run that got and lost nothing.

        Only a backfill needs it: one that ends without an event of a date counts that date, and itself, as failed.
        """
        told = self.dates_told()
        for day in self.context.partition_keys:
            if day not in told:
                # No attempt and no data version: it is of no commit, and the date is what it was.
                event = dg.AssetMaterialization(table_key(self.stream), partition=day, metadata={"rows_added": 0})
                self.context.log_event(event)

    def _requested_at(self) -> datetime:
        """When the root run was requested, in UTC: what a retry does was asked for then, and what a backfill's run does
        when somebody asked for the backfill, which Dagster turns into runs later."""
        instance: dg.DagsterInstance = self.context.instance
        run = self.context.run
        root = instance.get_run_record_by_id(run.root_run_id or run.run_id)
        record = root or instance.get_run_record_by_id(run.run_id)  # someone may have deleted the root
        if record is None:
            return datetime.now(UTC)
        tags = record.dagster_run.tags
        if tag := tags.get(REQUESTED_TAG):
            return datetime.fromisoformat(tag)
        if (backfill_id := tags.get(BACKFILL_TAG)) and (backfill := instance.get_backfill(backfill_id)):
            return datetime.fromtimestamp(backfill.backfill_timestamp, UTC)
        return record.create_timestamp.astimezone(UTC)
