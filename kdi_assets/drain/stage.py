"""Stage: messages judged, and their rows written into files that no version of the table names yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from kdi_assets.drain.counts import Counts
from kdi_assets.drain.evolution import gaining
from kdi_assets.drain.failures import spark_failures
from kdi_assets.drain.judge import counted, judge
from kdi_assets.drain.records import knowing_schemas_of, stream_decoder, suffices, undecoded
from kdi_assets.drain.shape import analyse
from kdi_assets.drain.table_schema import refuse_other_schema
from kdi_assets.formats.of_stream import StreamDecoder
from kdi_assets.ledger.delta import AS_IT_COMES, FileSize, Staged, stage_rows
from kdi_assets.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation


def stage(
    messages: DataFrame,
    stream: Stream,
    uri: str,
    *,
    now: datetime,
    topic_partitions: int,
    files: FileSize = AS_IT_COMES,
    at: Callable[[str], None] = lambda point: None,
    decoded_by: StreamDecoder | None = None,
    dry: bool = False,
) -> tuple[Staged, Counts, StreamDecoder]:
    """Judge the messages and write the rows into files: without a version no reader sees them.

    Once more if messages name schemas that were not known and the registry knows, and if they have fields that the
    record is to gain; the files before that stay unnamed.

    Args:
        messages: As ``kafka_frame.read_ranges`` gives them, or ``records.with_records``.
        stream: As ``evolution.evolved`` gives it.
        now: By which the date window is judged.
        topic_partitions: How many the messages are of.
        decoded_by: What decoded them, if something has.
        dry: Whether to write no files, and only count.

    Returns:
        Files, counts, and the decoder that they were made with.

    Raises:
        ShapeMistake, SchemaDisagrees: The document does not work, or not with this table; nothing was read.
        ReadOrWriteFailed: Spark failed.
    """
    from pyspark.sql import Observation

    decoder: StreamDecoder | None = stream_decoder(stream)
    if decoded_by and decoder and suffices(decoded_by, decoder):
        # By what decoded them: this one may know schemas that were unknown then, and would take them for bad messages.
        decoder = replace(decoded_by, stream=stream)
    else:
        messages = undecoded(messages)
    while decoder is not None:
        used, observation = decoder, Observation()
        rows = _rows(messages, used, now, topic_partitions, observation)
        refuse_other_schema(stream, uri, rows.schema)
        at("before reading")
        with spark_failures(stream, "reading messages and writing files"):
            if dry:
                staged = Staged()
                rows.write.format("noop").mode("overwrite").save()
            else:
                staged = stage_rows(messages.sparkSession, rows, uri, files=files, widening=stream.contract.evolves)
            counts = counted(observation, stream)
            decoder = knowing_schemas_of(messages, used) if counts.unknown_schemas else None
            if decoder is None and (grown := gaining(undecoded(messages), used.stream, used, counts, now=now)):
                decoder = stream_decoder(grown)
        messages = undecoded(messages)  # once more: what was decoded ahead lacks what the next decoder knows
    return staged, counts, used


def _rows(
    messages: DataFrame, decoder: StreamDecoder, now: datetime, topic_partitions: int, observation: Observation
) -> DataFrame:
    from pyspark.errors import AnalysisException

    stream = decoder.stream
    try:
        return judge(messages, stream, decoder, now=now, topic_partitions=topic_partitions, counts=observation)
    except AnalysisException:
        analyse(stream, messages.sparkSession)  # says which field of the document it is
        raise
