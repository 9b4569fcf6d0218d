"""A stream as Dagster sees it: a table by date that drains or replays when it is materialized, and its checks."""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it decorates, and as types.
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial

import dagster as dg

from kdi_assets.audit.audit import audit
from kdi_assets.components import names
from kdi_assets.components.asset_checks import (
    check_evaluation,
    check_result,
    check_specs,
    freshness_policy,
    newest_verdict,
)
from kdi_assets.components.dead_letters_asset import letters_asset
from kdi_assets.components.run_failures import refusals_shown, refuse_retries
from kdi_assets.components.shared_drain import OnePass, drained_by
from kdi_assets.components.table_run import Drain, ReplayDates, RunDates, TableRun
from kdi_assets.drain.drain import drain
from kdi_assets.errors import Terminal, Transient
from kdi_assets.monitoring.checks.all_checks import MEASURES, Measure, found
from kdi_assets.monitoring.checks.finding import CheckResult
from kdi_assets.monitoring.checks.ledger_checks import Audit as Audit
from kdi_assets.monitoring.checks.ledger_checks import every_offset_accounted_for
from kdi_assets.monitoring.checks.subject import CheckSubject
from kdi_assets.replay.replay_dates import replay_dates
from kdi_assets.replay.replay_letters import replay_letters
from kdi_assets.settings import Settings
from kdi_assets.stream.stream import READING_ROWS, CheckName, DrainWhen, Stream
from resources.spark import SparkResource


def stream_definitions(stream: Stream, *, group: Collection[Stream] = ()) -> dg.Definitions:
    """The stream's table with its checks, and its dead letters.

    The topic is not among them: streams share it (``topics.topic_assets``).

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
    """One op for table and checks, of which a run selects any.

    A check in an op of its own would be skipped after a drain: Dagster skips what depends on an asset that yielded no
    result, and ours yields none, because a result would mark the run's own date, rows or not.
    """
    key = names.table_key(stream)
    measures: dict[CheckName, Measure] = {
        **MEASURES,
        "every_offset_accounted_for": partial(every_offset_accounted_for, audit=audit),
    }

    @dg.multi_asset(
        name=names.op_name(stream),
        specs=[table_spec(stream)],
        check_specs=check_specs(stream),
        can_subset=True,
        partitions_def=names.dates(stream),
        pool=names.pool(stream),
        backfill_policy=dg.BackfillPolicy.single_run(),  # a replay of many dates is one pass over the topic
    )
    def drained(context: dg.AssetExecutionContext, spark: SparkResource) -> Iterator[dg.AssetCheckResult]:
        run = TableRun(context, stream, Settings.from_environment().lake, spark.session)
        with refusals_shown(context), spark.watched():
            meant = run.dates() if key in context.selected_asset_keys else RunDates()
            try:
                together = drained_by(context, group) if meant.drains_under else []
                by = OnePass(together, spark.drained) if len(together) > 1 else drain
                run.carry_out(meant, drain=by, replay=replay)
            except Terminal as refusal:
                # Dagster counts a check that was selected and not made as failed, and some block what is built on the
                # table: whoever replays a date that Kafka no longer holds would hold up everything downstream.
                refuse_retries(context)
                context.log.error(str(refusal))  # now: the step fails only when the checks are made
                with suppress(Transient):  # it would hide what was refused
                    yield from _checked(run, CheckSubject(stream, run.lake, run.session), measures, meant, anew=False)
                raise
            subject = CheckSubject(stream, run.lake, run.session, drained=meant.drains_under is not None)
            yield from _checked(run, subject, measures, meant)

    return drained


def _checked(
    run: TableRun, subject: CheckSubject, measures: Mapping[CheckName, Measure], meant: RunDates, *, anew: bool = True
) -> Iterator[dg.AssetCheckResult]:
    """The checks that were selected.

    Args:
        anew: Make those too that read rows, where an earlier verdict could be told again.
    """
    context, stream = run.context, run.stream
    only_of_its_date = meant.replays is not None and not run.dates_told()
    for name in stream.check_names:
        key = names.check_key(stream, name)
        if key not in context.selected_asset_check_keys:
            continue
        earlier = None if anew or name not in READING_ROWS else newest_verdict(context.instance, key)
        evaluation = earlier or check_evaluation(stream, name, _finding(context, name, measures[name], subject))
        yield check_result(evaluation)
        if only_of_its_date:
            # Dagster takes the result for one about the run's own date, and for outdated where another date was told of
            # later: it would show nothing, and hold up nothing. Said again, it is about the table.
            context.log_event(evaluation)


def _finding(
    context: dg.AssetExecutionContext, name: CheckName, measure: Measure, subject: CheckSubject
) -> CheckResult:
    finding = found(name, subject, measure)
    if name in subject.stream.checks.blocking and finding.level == "error":
        refuse_retries(context)  # a retry would say the same, of the audit after it read the whole table again
    return finding


def table_spec(stream: Stream) -> dg.AssetSpec:
    """What the UI shows of the table before anything ran."""
    return dg.AssetSpec(
        names.table_key(stream),
        deps=[names.topic_key(stream.cluster, stream.topic)],
        skippable=True,  # a drain tells of the dates it touched itself; there may be none
        description=stream.description or f"Topic {stream.topic} of cluster {stream.cluster.name}, message by message.",
        group_name=names.group(stream),
        kinds={"kafka", "deltalake", "spark"},
        owners=stream.owners,
        freshness_policy=freshness_policy(stream),
        metadata={
            "dagster/table_name": stream.table.replace("/", "."),
            "app_id": stream.app_id,
            "drained_when": _in_words(stream.drain_when),
        },
    )


def _in_words(limits: DrainWhen) -> str:
    words = [f"{limits.backlog_messages:,} messages wait"] if limits.backlog_messages is not None else []
    words += [f"{limits.backlog_bytes:,} bytes wait"] if limits.backlog_bytes is not None else []
    words += [f"a message waits for {limits.lag_seconds:,.0f} s"] if limits.lag_seconds is not None else []
    words += [f"anything waits at {limits.cron} (cron, UTC)"] if limits.cron is not None else []
    return ", or ".join(words)
