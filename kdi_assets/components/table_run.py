"""A run of a table's asset: it drains, replays, or both, depending on its dates, and logs the events of each commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg

from kdi_assets.components import materializations
from kdi_assets.components.asset_checks import failed_checks, failed_meanwhile, passes_to_repeat
from kdi_assets.components.column_facts import column_facts
from kdi_assets.components.names import first_date, op_name, table_key
from kdi_assets.documents.model.stream import Stream
from kdi_assets.follow.refine.inputs import days_between
from kdi_assets.operate.monitoring.backlog_reader import read_backlog
from kdi_assets.resources.dagster_internals import log_as_newest
from kdi_assets.streams.drain.report import Commit, DrainReport
from kdi_assets.streams.drain.shared_read import Drained, drain_together
from kdi_assets.streams.replay.report import ReplayReport
from kdi_assets.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REQUESTED_TAG = "kdi/requested_at"
"""When a sensor decided on the run; Dagster creates the run a moment later, perhaps after midnight."""
BACKFILL_TAG = "dagster/backfill"

Drain = Callable[..., DrainReport]
"""``kdi_assets.streams.drain.drain.drain``; a test about Dagster alone passes another."""
ReplayDates = Callable[..., ReplayReport]
"""``kdi_assets.streams.replay.replay_dates.replay_dates``; a test about Dagster alone passes another."""


@dataclass(frozen=True, slots=True)
class RunDates:
    """What a run does with its dates.

    Attributes:
        drains_under: The date under which a drain is recorded; ``None``: the run does not drain.
        replays: First and last date to replay, both inclusive; ``None``: none.
    """

    drains_under: date | None = None
    replays: tuple[date, date] | None = None


def run_dates(first: date, last: date, *, requested: datetime) -> RunDates:
    """Replay the dates before the day of the request; drain if that day, or a later one, is among the dates.

    A later date drains because it has nothing to replay, and because Dagster's dialog offers it as "Latest" if rows may
    be dated ahead.

    Args:
        first, last: The run's partition keys, both inclusive.
        requested: When the root run was requested: a run that is queued at 23:59, or retried tomorrow, still drains.
    """
    today = requested.astimezone(UTC).date()
    drains_under = max(first, today) if last >= today else None
    replays = (first, min(last, today - timedelta(days=1))) if first < today else None
    return RunDates(drains_under, replays)


@dataclass(frozen=True, slots=True)
class TableRun:
    """One stream in one run."""

    context: dg.AssetExecutionContext
    stream: Stream
    lake: str
    session: Callable[[], SparkSession]

    def dates(self) -> RunDates:
        """What the run does with its dates."""
        keys = self.context.partition_key_range
        first, last = date.fromisoformat(keys.start), date.fromisoformat(keys.end)
        return run_dates(first, last, requested=requested_at(self.context))

    def execute(self, dates: RunDates, *, drain: Drain, replay: ReplayDates) -> None:
        """Drain, then replay: new messages do not wait for old ones.

        Raises:
            KdiError: Drain or replay refuses; the events of earlier commits are logged.
        """
        try:
            if dates.drains_under:
                self._drain(dates.drains_under, drain)
            if dates.replays:
                self._replay(*dates.replays, replay)
            if BACKFILL_TAG in self.context.run.tags:
                log_unchanged_dates(self.context, table_key(self.stream))
        finally:
            if (dates.drains_under or dates.replays) and self.logged_dates():
                self._repeat_passes()

    def log_commit(self, commit: Commit) -> None:
        """Log the materializations of one commit, of the table and of its dead letters."""
        self.log_rows(commit)
        letters = materializations.dead_letters_metadata(self.stream, [commit], lake=self.lake)
        for day in materializations.letters_dates(self.stream, commit):
            self.context.log_event(materializations.letters_materialization(self.stream, commit, day, metadata=letters))

    def log_rows(self, commit: Commit) -> None:
        """Log the materializations of the table; warn of rows whose date Dagster's partitions do not have."""
        if not commit.touched:
            return
        context, stream = self.context, self.stream
        facts = column_facts(stream, self.lake, version=commit.version, days=commit.touched)
        made_here = context.selected_asset_check_keys
        for failed in failed_checks(context.instance, stream, excluding=made_here):
            context.log_event(failed)
        of_table = {**materializations.dead_letters_metadata(stream, [commit], lake=self.lake), **facts.of_table}
        days = materializations.touched_dates(stream, commit)
        for day in days:
            metadata = {**facts.by_date.get(day, {}), **of_table}
            context.log_event(materializations.materialization(stream, commit, day, metadata=metadata))
        # Those that another run found after this one had logged the check, or a moment ago: the materializations hide
        # them, and what this run logs of the check again takes the place of what it logged, below them.
        for failed in failed_checks(context.instance, stream, excluding=made_here, not_of_run=context.run.run_id):
            log_as_newest(context.instance, failed)
        if older := [day for day in days if day < (first := first_date(stream))]:
            later = "the UI shows them once the code location is loaded again"
            counts = f"{counted(len(older), 'date')} before {first}, the first partition"
            context.log.warning(f"{stream.name}: {counts}: {later}")
        if hidden := commit.rows - sum(commit.rows_by_date.get(day, 0) for day in days):
            # The start of the window moved, or the stream accepts every date.
            context.log.warning(f"{stream.name}: {hidden:,} rows have dates outside the window; they are in the table")

    def _repeat_passes(self) -> None:
        """Log again that checks passed; at the end of the run, because commits may follow for minutes."""
        context = self.context
        for passed in passes_to_repeat(context.instance, self.stream, excluding=context.selected_asset_check_keys):
            context.log_event(passed)
            # Another run may have found a failure since the verdict was read; a drain must not hide it.
            if failed := failed_meanwhile(context.instance, passed):
                log_as_newest(context.instance, failed)

    def logged_dates(self) -> set[str | None]:
        """The dates of the table with a materialization of this run so far."""
        return logged_dates(self.context, table_key(self.stream))

    def _drain(self, day: date, drain: Drain) -> None:
        """Log materializations after each commit, and one observation of the drain at ``day``."""
        # Each commit's events right after it: they stay, whatever happens to the run later. Events that a crash in
        # between prevents, the lag sensor logs from the table's log.
        report = drain(
            self.stream,
            lake=self.lake,
            session=self.session,
            run_id=self.context.run.run_id,
            report=self.context.log.info,
            on_commit=self.log_commit,
        )
        lag_after = read_backlog(self.stream, self.lake).lag_seconds if report.backlog_after else 0.0
        metadata = {
            **materializations.drain_metadata(report, lag_after=lag_after),
            **materializations.dead_letters_metadata(self.stream, report.commits, lake=self.lake),
        }
        # An observation, because a drain that found nothing touches no date, and must be visible too.
        self.context.log_event(dg.AssetObservation(table_key(self.stream), partition=str(day), metadata=metadata))
        self.context.log.info(materializations.drain_summary(report))

    def _replay(self, first: date, last: date, replay: ReplayDates) -> None:
        """Log a materialization of each date that lost or got rows, and one observation of the replay.

        A date without a change has no materialization: downstream assets have nothing to do for it.
        """
        run_id = self.context.run.run_id
        report = replay(self.stream, lake=self.lake, session=self.session, first=first, last=last, run_id=run_id)
        if report.commit:
            self.log_commit(report.commit)
        metadata = materializations.replay_metadata(report)
        self.context.log_event(dg.AssetObservation(table_key(self.stream), partition=str(last), metadata=metadata))
        self.context.log.info(materializations.replay_summary(report))


def logged_dates(context: dg.AssetExecutionContext, key: dg.AssetKey) -> set[str | None]:
    """The dates of an asset with a materialization of this run so far."""
    of_type = dg.DagsterEventType.ASSET_MATERIALIZATION
    records = context.instance.get_records_for_run(context.run.run_id, of_type=of_type).records
    logged = (record.event_log_entry.asset_materialization for record in records)
    return {e.partition for e in logged if e is not None and e.asset_key == key}


def log_unchanged_dates(context: dg.AssetExecutionContext, key: dg.AssetKey) -> None:
    """Log a materialization of each date of the run without a change; for backfills only.

    Dagster counts a date of a backfill without an event as failed, and the backfill with it.
    """
    logged, asked = logged_dates(context, key), context.partition_key_range
    # Not Dagster's list: with `start: auto` the partitions may begin later since the table has rows.
    for day in days_between(date.fromisoformat(asked.start), date.fromisoformat(asked.end)):
        if day.isoformat() not in logged:
            # No attempt and no data version: the event is of no commit, and the date did not change.
            context.log_event(materializations.date_event(key, day, metadata={"rows_added": 0}))


def requested_at(context: dg.AssetExecutionContext) -> datetime:
    """When the root run, or the backfill that it is part of, was requested, in UTC."""
    instance: dg.DagsterInstance = context.instance
    run = context.run
    root = instance.get_run_record_by_id(run.root_run_id or run.run_id)
    record = root or instance.get_run_record_by_id(run.run_id)  # the root may be deleted
    if record is None:
        return datetime.now(UTC)
    tags = record.dagster_run.tags
    if tag := tags.get(REQUESTED_TAG):
        return datetime.fromisoformat(tag)
    if (backfill_id := tags.get(BACKFILL_TAG)) and (backfill := instance.get_backfill(backfill_id)):
        return datetime.fromtimestamp(backfill.backfill_timestamp, UTC)
    return record.create_timestamp.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class SharedDrain:
    """A ``Drain`` for tables of one route group in one run: the first step reads for all, each logs its own commits.

    Each table keeps its step, so that its refusals, retries and checks stay its own.

    Attributes:
        group: The streams that the run drains.
        drained: By stream, the result of the shared drain; ``None`` once the stream's own step has used it.
    """

    group: Sequence[Stream]
    drained: dict[str, Drained | None]

    def __call__(self, stream: Stream, *, on_commit: Callable[[Commit], None], **options: Any) -> DrainReport:
        def log_own(of: Stream, commit: Commit) -> None:
            if of is stream:
                on_commit(commit)

        if done := self.drained.get(stream.name):
            self.drained[stream.name] = None
            for commit in done.commits:
                on_commit(commit)
            return done.result()
        # A retried step comes here too, and drains again: the result of its first try is used up.
        members = [stream, *(s for s in self.group if s.name not in {stream.name, *self.drained})]
        results = drain_together(members, on_commit=log_own, **options)
        self.drained.update({**results, stream.name: None})
        return results[stream.name].result()


def streams_of_run(context: dg.AssetExecutionContext, group: Collection[Stream]) -> list[Stream]:
    """The streams of a group whose tables the run selects and whose steps it takes."""
    # The run's job has the selected assets only; a retry of failed steps takes some of its steps.
    keys, steps = set(context.job_def.asset_layer.executable_asset_keys), context.run.step_keys_to_execute
    return [s for s in group if table_key(s) in keys and (steps is None or op_name(s) in steps)]
