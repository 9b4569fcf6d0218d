"""A stream's dead letters as a Dagster asset, by the date of the messages' own timestamps.

Materializing a date replays its open dead letters: messages that are good now become rows of the table.
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it decorates, and as types.
from collections.abc import Callable, Iterator
from datetime import date

import dagster as dg

from kdi_assets.components import materializations, names
from kdi_assets.components.run_failures import refusals_as_failures
from kdi_assets.components.table_run import TableRun
from kdi_assets.documents.model.stream import Stream
from kdi_assets.resources.spark import SparkResource
from kdi_assets.settings import Settings
from kdi_assets.streams.replay.dead_letter_filter import DeadLetterFilter, count_dead_letters
from kdi_assets.streams.replay.report import ReplayReport

ReplayLetters = Callable[..., ReplayReport]
"""``kdi_assets.streams.replay.replay_letters.replay_letters``; a test about Dagster alone passes another."""


def letters_asset(stream: Stream, *, replay: ReplayLetters) -> dg.AssetsDefinition:
    """One op in the table's pool, because both commit to the table.

    No sensor requests it, and no run of the table selects it: a replay helps only after somebody changed something. A
    date without a materialization has no dead letters, or only events of drains.
    """

    @dg.multi_asset(
        name=names.letters_op_name(stream),
        specs=[letters_spec(stream)],
        partitions_def=names.dates(stream),
        pool=names.pool(stream),
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def replayed(context: dg.AssetExecutionContext, spark: SparkResource) -> Iterator[dg.MaterializeResult[None]]:
        lake = Settings.from_environment().lake
        with refusals_as_failures(context), spark.watched(context.log.info):
            _replay(TableRun(context, stream, lake, spark.session), replay)
        yield from ()  # a result, or a plain return, would be one event for every date

    return replayed


def _replay(run: TableRun, replay: ReplayLetters) -> None:
    """Replay the open dead letters of the run's dates; log the new rows, and an event for each date.

    Raises:
        KdiError: The replay refuses.
    """
    context, stream, lake = run.context, run.stream, run.lake
    days = [date.fromisoformat(key) for key in context.partition_keys]
    selected = DeadLetterFilter(first=days[0], last=days[-1])
    report = replay(stream, lake=lake, session=run.session, letter_filter=selected, run_id=context.run.run_id)
    # The new rows lie at their own dates, which may differ from the dates of the messages' timestamps.
    if report.commit:
        run.log_rows(report.commit)
    counts = count_dead_letters(run.session, stream, lake, selected)
    for day in days:
        context.log_event(materializations.replayed_letters(stream, report, counts, day, lake=lake))
    context.log.info(materializations.letters_summary(stream, report))


def letters_spec(stream: Stream) -> dg.AssetSpec:
    """What the UI shows of the dead letters before the first run."""
    uri = stream.dead_letters_uri(Settings.from_environment().lake)
    select = "SELECT topic, partition, offset, timestamp, reason, field, CAST(value AS STRING) AS message"
    return dg.AssetSpec(
        names.letters_key(stream),
        # Downstream of the topic, not of the table: below the table, they would be skipped in every run without rows.
        deps=[names.topic_key(stream.cluster, stream.topic)],
        skippable=True,  # the run logs the events of its dates itself
        description=f"Messages of topic {stream.topic} that could not become rows of {stream.table}, by the date of "
        "their own timestamps, with the reason. Drains write them. Materializing a date judges its open dead letters "
        "again by the current document: messages that are good now become rows of the table, each exactly once; "
        "nothing is deleted.",
        group_name=names.LETTERS_GROUP,
        kinds={stream.cluster.system, "deltalake", "spark"},
        owners=stream.owners,
        metadata={
            "dagster/table_name": f"{stream.table}_dead_letters".replace("/", "."),
            "dead_letters_table": dg.MetadataValue.path(uri),
            "dead_letters_query": f"{select} FROM delta.`{uri}` WHERE reason IS NOT NULL ORDER BY timestamp DESC",
            "those_that_count": f"kdi dead-letters list {stream.name}",
        },
    )
