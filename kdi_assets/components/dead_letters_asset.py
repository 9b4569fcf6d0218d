"""A stream's dead letters as Dagster sees them: an asset by the date of the messages' own timestamps.

Materializing a date judges its open letters again, and brings what is good now into the table.
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of what it decorates, and as types.
from collections.abc import Callable, Iterator
from datetime import date

import dagster as dg

from kdi_assets.components import materializations, names
from kdi_assets.components.run_failures import refusals_shown
from kdi_assets.components.table_run import TableRun
from kdi_assets.replay.dead_letter_filter import DeadLetterFilter, standing_by_date
from kdi_assets.replay.report import ReplayReport
from kdi_assets.settings import Settings
from kdi_assets.stream.stream import Stream
from resources.spark import SparkResource

ReplayLetters = Callable[..., ReplayReport]
"""``kdi_assets.replay.replay_letters.replay_letters``; a test about Dagster alone passes another."""


def letters_asset(stream: Stream, *, replay: ReplayLetters) -> dg.AssetsDefinition:
    """One op, in the pool of the table: both commit to it, and one of two at once would have to look again.

    No sensor requests it and no run of the table selects it: what was condemned stays so until somebody mended
    something. A date that nobody materialized had no letters, or has those that drains told of.
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
        with refusals_shown(context), spark.watched():
            _replay_and_tell(TableRun(context, stream, lake, spark.session), replay)
        yield from ()  # a result would say the same of every date; a plain return would be one

    return replayed


def _replay_and_tell(run: TableRun, replay: ReplayLetters) -> None:
    """Judge the open letters of the run's dates again; tell of the rows that came of it, and of how each date stands.

    Raises:
        KdiError: What the replay refuses.
    """
    context, stream, lake = run.context, run.stream, run.lake
    asked = [date.fromisoformat(key) for key in context.partition_keys]
    chosen = DeadLetterFilter(first=asked[0], last=asked[-1])
    decided = replay(stream, lake=lake, session=run.session, chosen=chosen, run_id=context.run.run_id)
    # What is good now lies on the dates of its rows, which may be others than those of the messages' timestamps.
    if decided.commit:
        run.tell_of_rows(decided.commit)
    standing = standing_by_date(run.session, stream, lake, chosen)
    for day in asked:
        context.log_event(materializations.replayed_letters(stream, decided, standing, day, lake=lake))
    context.log.info(materializations.letters_in_words(stream, decided))


def letters_spec(stream: Stream) -> dg.AssetSpec:
    """What the UI shows of the letters before anything ran."""
    uri = stream.dead_letters_uri(Settings.from_environment().lake)
    wanted = "SELECT topic, partition, offset, timestamp, reason, field, CAST(value AS STRING) AS message"
    return dg.AssetSpec(
        names.letters_key(stream),
        # Of the topic, not of the table: letters are what the topic has and the table has not. Below the table they
        # would be skipped with it in every run that drains nothing.
        deps=[names.topic_key(stream.cluster, stream.topic)],
        skippable=True,  # the run tells of its dates itself
        description=f"Messages of topic {stream.topic} that could not become rows of {stream.table}, by the date of "
        "their own timestamps, with the reason. Drains write them. Materializing a date judges its open letters again "
        "by the document of now: what is good becomes rows of the table, each exactly once; nothing is deleted.",
        group_name=names.LETTERS_GROUP,
        kinds={"kafka", "deltalake", "spark"},
        owners=stream.owners,
        metadata={
            "dagster/table_name": f"{stream.table}_dead_letters".replace("/", "."),
            "dead_letters_table": dg.MetadataValue.path(uri),
            "dead_letters_query": f"{wanted} FROM delta.`{uri}` WHERE reason IS NOT NULL ORDER BY timestamp DESC",
            "those_that_count": f"kdi dead-letters list {stream.name}",
        },
    )
