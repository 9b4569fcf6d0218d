"""A stream as Dagster sees it: a table by date that drains when it is materialized, and the check of its offsets."""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it decorates, and as types.
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Protocol

import dagster as dg

from kdi_assets.components import names
from kdi_assets.components.drain_run import Drain, drain_and_tell
from kdi_assets.components.failures import plain, refusals_shown, refuse_retries
from kdi_assets.drain.drain import drain
from kdi_assets.errors import Terminal
from kdi_assets.ledger.audit import AuditReport, audit
from kdi_assets.settings import Settings
from kdi_assets.stream import Stream
from resources.spark import SparkResource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Audit(Protocol):
    """``kdi_assets.ledger.audit.audit``."""

    def __call__(self, stream: Stream, *, lake: str, session: "Callable[[], SparkSession]") -> AuditReport: ...


def stream_definitions(stream: Stream) -> dg.Definitions:
    """The stream's asset and its check. The topic is not among them: streams share it (``topics.topic_assets``)."""
    return dg.Definitions(assets=[table_asset(stream, drain=drain, audit=audit)])


def table_asset(stream: Stream, *, drain: Drain, audit: Audit) -> dg.AssetsDefinition:
    """One op for table and check, of which a run selects either or both.

    A check in an op of its own would be skipped after a drain: Dagster skips what depends on an asset that yielded no
    result, and ours yields none, because a result would mark the run's own date, rows or not.
    """
    key = names.table_key(stream)

    @dg.multi_asset(
        name=names.op_name(stream),
        specs=[table_spec(stream)],
        check_specs=[check_spec(stream)],
        can_subset=True,
        partitions_def=names.dates(stream),
        pool=names.pool(stream),
    )
    def drained(context: dg.AssetExecutionContext, spark: SparkResource) -> Iterator[dg.AssetCheckResult]:
        lake = Settings.from_environment().lake
        with refusals_shown(context), spark.watched():
            try:
                if key in context.selected_asset_keys:
                    drain_and_tell(context, stream, drain=drain, lake=lake, session=spark.session)
            except Terminal:
                # Dagster counts a check that was selected and not made as failed, and this one blocks what is built on
                # the table: whoever materializes an older date in the UI would hold up everything downstream.
                yield from _checked(context, stream, audit=audit, lake=lake, session=spark.session)
                raise
            yield from _checked(context, stream, audit=audit, lake=lake, session=spark.session)

    return drained


def _checked(
    context: dg.AssetExecutionContext, stream: Stream, *, audit: Audit, lake: str, session: "Callable[[], SparkSession]"
) -> Iterator[dg.AssetCheckResult]:
    """The check, if it was selected."""
    if names.check_key(stream) in context.selected_asset_check_keys:
        report = audit(stream, lake=lake, session=session)
        if not report.complete:
            refuse_retries(context)  # it would read the whole table again, to say the same
        yield check_result(stream, report)


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
        metadata={
            "dagster/table_name": stream.table.replace("/", "."),
            "app_id": stream.app_id,
            "drained_when": f"{stream.drain_when.backlog_messages:,} messages wait, or one of them for "
            f"{stream.drain_when.lag_seconds:,.0f} s",
        },
    )


def check_spec(stream: Stream) -> dg.AssetCheckSpec:
    """The check reads the whole table, so a sensor's run leaves it out; each drain accounts for itself anyway.

    Blocking, so that `dagster asset materialize` ends with an exit code other than 0 and nothing is built on the table.
    """
    return dg.AssetCheckSpec(
        names.ACCOUNTED_FOR,
        asset=names.table_key(stream),
        blocking=True,
        description="Every offset below the positions is in the table, a dead letter, a confirmed gap or a declared "
        "loss, and none is there twice.",
    )


def check_result(stream: Stream, report: AuditReport) -> dg.AssetCheckResult:
    """The audit's verdict, its line as description."""
    return dg.AssetCheckResult(
        passed=report.complete,
        asset_key=names.table_key(stream),
        check_name=names.ACCOUNTED_FOR,
        severity=dg.AssetCheckSeverity.ERROR,
        description=report.line(),
        metadata={f.name: _shown(getattr(report, f.name)) for f in fields(report)},
    )


def _shown(value: object) -> str | int | float:
    """Numbers as numbers, lists as the lines that `kdi audit` prints."""
    return "\n".join(map(str, value)) if isinstance(value, tuple) else plain(value)
