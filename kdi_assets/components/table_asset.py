"""A stream in Dagster: a table by date, which drains or replays when it is materialized, and its checks."""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it decorates, and as types.
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import dagster as dg

from kdi_assets.components import names
from kdi_assets.components.asset_checks import (
    check_evaluation,
    check_result,
    check_specs,
    freshness_policy,
    latest_evaluation,
    level_of,
)
from kdi_assets.components.dead_letters_asset import letters_asset
from kdi_assets.components.names import check_key
from kdi_assets.components.run_failures import forbid_retries, refusals_as_failures
from kdi_assets.components.table_run import Drain, ReplayDates, RunDates, SharedDrain, TableRun, streams_of_run
from kdi_assets.documents.model.stream import READING_ROWS, CheckName, DrainWhen, Stream
from kdi_assets.errors import Terminal, Transient
from kdi_assets.operate.monitoring.checks.all_checks import CHECKS, LOOKING_BACK, Check, run_check
from kdi_assets.operate.monitoring.checks.finding import CheckResult
from kdi_assets.operate.monitoring.checks.ledger_checks import Audit as Audit
from kdi_assets.operate.monitoring.checks.ledger_checks import every_offset_accounted_for
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.resources.dagster_internals import is_of_newest_run, log_as_newest
from kdi_assets.resources.spark import SparkResource
from kdi_assets.settings import Settings
from kdi_assets.streams.audit.audit import audit
from kdi_assets.streams.drain.drain import drain
from kdi_assets.streams.replay.replay_dates import replay_dates
from kdi_assets.streams.replay.replay_letters import replay_letters


def stream_definitions(stream: Stream, *, group: Collection[Stream] = ()) -> dg.Definitions:
    """The stream's table with its checks, and its dead letters.

    Its topic is defined once for all streams that read it (``topics.topic_assets``).

    Args:
        group: The streams of its route group, if it has one.
    """
    table = table_asset(stream, drain=drain, audit=audit, group=group)
    return dg.Definitions(assets=[table, letters_asset(stream, replay=replay_letters)])


def table_asset(
    stream: Stream,
    *,
    drain: Drain,
    audit: Audit,
    replay: ReplayDates = replay_dates,
    group: Collection[Stream] = (),
) -> dg.AssetsDefinition:
    """One op for table and checks; a run selects any of them.

    A check with an op of its own would be skipped after a drain: Dagster skips what depends on an asset without a
    result, and ours yields none, because a result would materialize the run's own date, with or without rows.
    """
    measures: dict[CheckName, Check] = {
        **CHECKS,
        "every_offset_accounted_for": partial(every_offset_accounted_for, audit=audit),
    }
    op = _TableOp(drain, replay, measures, group)

    @dg.multi_asset(
        name=names.op_name(stream),
        specs=[table_spec(stream)],
        check_specs=check_specs(stream),
        can_subset=True,
        partitions_def=names.dates(stream),
        pool=names.pool(stream),
        backfill_policy=dg.BackfillPolicy.single_run(),  # a replay of many dates reads the topic once
    )
    def drained(context: dg.AssetExecutionContext, spark: SparkResource) -> Iterator[dg.AssetCheckResult]:
        run = TableRun(context, stream, Settings.from_environment().lake, spark.session)
        with refusals_as_failures(context), spark.watched(context.log.info):
            yield from op.execute(run, spark)

    return drained


@dataclass(frozen=True, slots=True)
class _TableOp:
    """What the op of a table does in a run: drain, replay, and make the selected checks."""

    drain: Drain
    replay: ReplayDates
    measures: Mapping[CheckName, Check]
    group: Collection[Stream]

    def execute(self, run: TableRun, spark: SparkResource) -> Iterator[dg.AssetCheckResult]:
        context, stream = run.context, run.stream
        selected = names.table_key(stream) in context.selected_asset_keys
        dates = run.dates() if selected else RunDates()
        try:
            shared = streams_of_run(context, self.group) if self.group and dates.drains_under else []
            drain = SharedDrain(shared, spark.drained) if len(shared) > 1 else self.drain
            run.execute(dates, drain=drain, replay=self.replay)
        except Terminal as refusal:
            # Dagster counts a selected check without a result as failed, and a blocking one holds downstream assets: a
            # replay of a date that Kafka no longer has would hold them all. So the checks are made all the same.
            forbid_retries(context)
            context.log.error(str(refusal))  # now: the step fails only after the checks
            with suppress(Transient):  # a failed check must not replace the refusal
                yield from self._check(run, CheckSubject(stream, run.lake, run.session), dates, read_rows=False)
            raise
        if context.selected_asset_check_keys:
            subject = CheckSubject(stream, run.lake, run.session, drained=dates.drains_under is not None)
            yield from self._check(run, subject, dates)

    def _check(
        self, run: TableRun, subject: CheckSubject, dates: RunDates, *, read_rows: bool = True
    ) -> Iterator[dg.AssetCheckResult]:
        """Make the selected checks.

        Args:
            read_rows: If false, a check that reads rows repeats its latest evaluation, if it has one.
        """
        context, stream = run.context, run.stream
        only_own_date = dates.replays is not None and not run.logged_dates()
        for name in stream.check_names:
            key = check_key(stream, name)
            if key not in context.selected_asset_check_keys:
                continue
            repeated = latest_evaluation(context.instance, key) if name in READING_ROWS and not read_rows else None
            evaluation = repeated or self._evaluate(context, name, subject)
            yield check_result(evaluation)
            if only_own_date:
                # Dagster takes the result for one of the run's own date, and ignores it if another date has a later
                # materialization: the UI would not show it, and it would hold nothing. The event is of the table.
                context.log_event(evaluation)
            if not is_of_newest_run(context.instance, key, context.run.run_id):
                # A drain repeated an earlier result after this run was planned, and would hide this one.
                log_as_newest(context.instance, evaluation)

    def _evaluate(
        self, context: dg.AssetExecutionContext, name: CheckName, subject: CheckSubject
    ) -> dg.AssetCheckEvaluation:
        result = self._result(context, name, subject)
        if name in subject.stream.checks.blocking and result.level == "error":
            forbid_retries(context)  # a retry would find the same, and the audit would read the whole table again
        return check_evaluation(subject.stream, name, result)

    def _result(self, context: dg.AssetExecutionContext, name: CheckName, subject: CheckSubject) -> CheckResult:
        """After a drain, a check that passed before looks at the newest commits; at all others if these do not pass."""
        if subject.drained and name in LOOKING_BACK:
            latest = latest_evaluation(context.instance, check_key(subject.stream, name))
            passed_before = latest is not None and level_of(latest) == "passed"
            if passed_before and (result := run_check(name, subject.of_newest_commits, self.measures[name])).passed:
                return result
        return run_check(name, subject, self.measures[name])


def table_spec(stream: Stream) -> dg.AssetSpec:
    """What the UI shows of the table before the first run."""
    return dg.AssetSpec(
        names.table_key(stream),
        deps=[names.topic_key(stream.cluster, stream.topic)],
        skippable=True,  # a drain logs the events of the dates it touched, perhaps of none
        description=stream.description or f"Topic {stream.topic} of cluster {stream.cluster.name}, message by message.",
        group_name=names.group(stream),
        kinds={stream.cluster.system, "deltalake", "spark"},
        owners=stream.owners,
        freshness_policy=freshness_policy(stream),
        metadata={
            "dagster/table_name": stream.table.replace("/", "."),
            "app_id": stream.app_id,
            "drained_when": _limits_text(stream.drain_when),
        },
    )


def _limits_text(limits: DrainWhen) -> str:
    texts = [f"{limits.backlog_messages:,} messages wait"] if limits.backlog_messages is not None else []
    texts += [f"{limits.backlog_bytes:,} bytes wait"] if limits.backlog_bytes is not None else []
    texts += [f"a message waits for {limits.lag_seconds:,.0f} s"] if limits.lag_seconds is not None else []
    texts += [f"anything waits at {limits.cron} (cron, UTC)"] if limits.cron is not None else []
    return ", or ".join(texts)
