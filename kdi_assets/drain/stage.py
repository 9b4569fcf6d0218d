"""Stage: messages judged, and their rows written into files that no version of the table names yet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from kdi_assets.drain.plan import Plan
from kdi_assets.drain.rules.judge import judge
from kdi_assets.drain.rules.records import knowing_schemas_of, stream_decoder
from kdi_assets.drain.rules.schema_evolution import gaining
from kdi_assets.drain.rules.shape import analyse
from kdi_assets.drain.rules.table_schema import refuse_other_schema
from kdi_assets.drain.rules.tally import Counts, PassTally
from kdi_assets.drain.spark_errors import spark_failures
from kdi_assets.formats.stream_decoder import StreamDecoder
from kdi_assets.ledger.delta_transaction import AS_IT_COMES, FileSize, Staged, stage_rows
from kdi_assets.ledger.entry import LedgerEntry
from kdi_assets.ledger.recent_commits import LARGE, LedgerCommit, recent_commits
from kdi_assets.sources.kafka.reader import OFFSETS_PER_TASK
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

UNKNOWN_TOGETHER = 2
"""Bytes on the way between tasks for each byte in a file, where no drain tells: the least that was measured. Files come
out too small for it rather than too large: messages that repeat themselves take ten times as much and more."""
SPARE = 2
"""A row takes less between tasks than the message that it came from: so many times the messages of a file are more than
it holds, and its number of rows is what ends it."""


def stage(
    messages: DataFrame,
    stream: Stream,
    uri: str,
    *,
    now: datetime,
    files: FileSize = AS_IT_COMES,
    at: Callable[[str], None] = lambda point: None,
    dry: bool = False,
) -> tuple[Staged, Counts, StreamDecoder]:
    """Judge the messages and write the rows into files: without a version no reader sees them.

    Once more if messages name schemas that were not known and the registry knows, and if they have fields that the
    record is to gain; the files before that stay unnamed.

    Args:
        messages: As ``kafka_frame.read_ranges`` gives them.
        stream: As ``evolution.evolved`` gives it.
        now: By which the date window is judged.
        dry: Whether to write no files, and only count.

    Returns:
        Files, counts, and the decoder that they were made with.

    Raises:
        ShapeMistake, SchemaDisagrees: The document does not work, or not with this table; nothing was read.
        ReadOrWriteFailed: Spark failed.
    """
    decoder: StreamDecoder | None = stream_decoder(stream)
    while decoder is not None:
        used, tally = decoder, PassTally(messages.sparkSession, now)
        rows = _rows(messages, used, now, tally)
        refuse_other_schema(stream, uri, rows.schema)
        at("before reading")
        with spark_failures(stream, "reading messages and writing files"):
            if dry:
                staged = Staged()
                rows.write.format("noop").mode("overwrite").save()
            else:
                staged = stage_rows(messages.sparkSession, rows, uri, files=files, widening=stream.contract.evolves)
            counts = tally.counts(stream)
            decoder = knowing_schemas_of(messages, used) if counts.unknown_schemas else None
            if decoder is None and (grown := gaining(messages, used.stream, used, counts, now=now)):
                decoder = stream_decoder(grown)
    return staged, counts, used


def _rows(messages: DataFrame, decoder: StreamDecoder, now: datetime, tally: PassTally) -> DataFrame:
    from pyspark.errors import AnalysisException

    stream = decoder.stream
    try:
        return judge(messages, stream, decoder, now=now, tally=tally)
    except AnalysisException:
        analyse(stream, messages.sparkSession)  # says which field of the document it is
        raise


def file_size(stream: Stream, lake: str, plan: Plan) -> FileSize:
    """What the stream asks for, as the writer of this plan can be told.

    A plan that one task carries out writes one file for each date anyhow, or several if it would be too large: nothing
    is handed from task to task for it.
    """
    if stream.target_file_size is None:
        return AS_IT_COMES
    drained = telling(recent_commits(stream.table_uri(lake), stream.app_id))
    together, rows = UNKNOWN_TOGETHER * stream.target_file_size, None
    if drained:
        rows = max(1, stream.target_file_size * drained.rows // drained.bytes)
        together = SPARE * rows * drained.message_bytes // max(drained.messages, drained.rows)
    return FileSize(together if plan.offset_count > OFFSETS_PER_TASK else None, rows)


def telling(commits: Iterable[LedgerCommit]) -> LedgerEntry | None:
    """The largest of some drains, which says what a row takes in a file; ``None`` if none of them does.

    A file of few rows says nothing: it is its own footer for the most part, and the next large drain would be cut into
    files that are much too small.
    """
    told = [c.entry for c in commits if c.entry.rows >= LARGE and c.entry.bytes and c.entry.message_bytes]
    return max(told, key=lambda entry: entry.rows, default=None)
