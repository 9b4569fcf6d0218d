"""Stage: judge the messages, and write their rows into files that no version of the table names yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from kdi_assets.delta.log import TableLog
from kdi_assets.delta.transaction import ONE_FILE_PER_TASK, FileSize, Staged, stage_rows
from kdi_assets.documents.model.message_format import Files
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.stream_decoder import StreamDecoder
from kdi_assets.messages.source import OFFSETS_PER_TASK
from kdi_assets.streams.drain.plan import Plan
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.streams.ledger.recent_commits import LARGE_DRAIN_OFFSETS, LedgerCommit, recent_commits
from kdi_assets.streams.rules.column_comments import with_new_commented
from kdi_assets.streams.rules.judge import judge
from kdi_assets.streams.rules.records import stream_decoder, with_schemas_of
from kdi_assets.streams.rules.shape import analyse
from kdi_assets.streams.rules.table.table_rows import in_table_form
from kdi_assets.streams.rules.table.table_schema import of_table, refuse_other_schema
from kdi_assets.streams.rules.tally import Counts, PassTally
from kdi_assets.streams.spark_errors import spark_failures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHUFFLED_BYTES_PER_FILE_BYTE = 2
"""Of a stream without a large drain: the lowest ratio that was measured. Files become too small by it rather than too
large; messages that repeat themselves have ratios of ten and more."""
SPARE_MESSAGES = 2
"""Tasks hand over so many times the messages of one file: the limit of rows then ends the file, not the bytes."""


def stage(
    messages: DataFrame,
    stream: Stream,
    uri: str,
    *,
    now: datetime,
    files: FileSize = ONE_FILE_PER_TASK,
    distinct: Collection[str] = (),
    offsets: int | None = None,
    before_read: Callable[[], None] = lambda: None,
    dry: bool = False,
) -> tuple[Staged, Counts, StreamDecoder]:
    """Judge the messages and write the rows into files that no version of the table names: no reader sees them.

    Another pass follows if the registry knows schemas that the decoder did not know, or if the record gains fields.

    Args:
        messages: As ``Source.read`` gives them.
        now: The clock of the date window.
        distinct: Columns that are written without a dictionary, by their paths in files.
        offsets: How many there are, for progress.
        before_read: Called before each pass.
        dry: Write no files, only count.

    Raises:
        ShapeMistake, SchemaDisagrees: The document does not work, or not with this table; nothing was read.
        ReadOrWriteFailed: Spark failed.
    """
    decoder: StreamDecoder | None = with_files_of(messages, stream_decoder(stream), now=now)
    while decoder is not None:
        used, tally = decoder, PassTally(messages.sparkSession, stream, now)
        rows = _rows(messages, used, now, tally)
        rows = _in_form_of_table(rows, stream, uri, used)
        before_read()
        with spark_failures(stream, "reading messages and writing files", offsets=offsets, done=tally.messages):
            try:
                staged = _only_counted(rows) if dry else _written(rows, stream, uri, files, distinct)
            finally:  # rows that nobody judged may break the pass as well
                _refuse_changed_files(used)
            counts = tally.counts(stream)
            decoder = _decoder_of_next_pass(messages, used, counts, now)
    return staged, counts, used


def _in_form_of_table(rows: DataFrame, stream: Stream, uri: str, used: StreamDecoder) -> DataFrame:
    """In the form of the table as it is now: it may have been dropped or altered since the plan."""
    table = TableLog.existing(uri)
    refuse_other_schema(stream, table, rows.schema)
    return with_new_commented(in_table_form(rows, of_table(table), stream), of_table(table), used.stream)


def _decoder_of_next_pass(
    messages: DataFrame, used: StreamDecoder, counts: Counts, now: datetime
) -> StreamDecoder | None:
    """The decoder that knows more than the one that was used; ``None`` if no other pass is needed."""
    decoder = with_schemas_of(messages, used) if counts.unknown_schemas else None
    if decoder is None and used.stream.contract.evolves:
        from kdi_assets.streams.drain.schema_evolution import gaining

        decoder = stream_decoder(grown) if (grown := gaining(messages, used, counts, now=now)) else None
    return decoder


def with_files_of(messages: DataFrame, decoder: StreamDecoder, *, now: datetime) -> StreamDecoder:
    """The decoder, and if messages name files, with what it has to know of them (``rules.files.knowing_files``)."""
    if not isinstance(decoder.stream.format, Files):
        return decoder
    from kdi_assets.streams.rules.files import knowing_files

    with spark_failures(decoder.stream, "reading the files that messages name"):
        return knowing_files(messages, decoder, now=now)


def _refuse_changed_files(decoder: StreamDecoder) -> None:
    """If messages name files: refuse rows that no pass has judged (``rules.files.refuse_changed_files``)."""
    if isinstance(decoder.stream.format, Files):
        from kdi_assets.streams.rules.files import refuse_changed_files

        refuse_changed_files(decoder)


def _only_counted(rows: DataFrame) -> Staged:
    rows.write.format("noop").mode("overwrite").save()
    return Staged()


def _written(rows: DataFrame, stream: Stream, uri: str, files: FileSize, distinct: Collection[str]) -> Staged:
    return stage_rows(rows.sparkSession, rows, uri, files=files, distinct=distinct, widening=stream.contract.evolves)


def _rows(messages: DataFrame, decoder: StreamDecoder, now: datetime, tally: PassTally) -> DataFrame:
    from pyspark.errors import AnalysisException

    try:
        return judge(messages, decoder, now=now, tally=tally)
    except AnalysisException:
        analyse(decoder.stream, messages.sparkSession)  # refuses with the field of the document
        raise


def file_size(stream: Stream, plan: Plan) -> FileSize:
    """The stream's ``target_file_size`` as limits for the writer of this plan.

    Tasks hand each other rows only in a plan of several tasks: one task writes one file for each date anyway, or
    several if it would be too large.
    """
    if stream.target_file_size is None:
        return ONE_FILE_PER_TASK
    drained = largest_drain(recent_commits(plan.ledger.log, stream.app_id))
    together, rows = SHUFFLED_BYTES_PER_FILE_BYTE * stream.target_file_size, None
    if drained:
        rows = max(1, stream.target_file_size * drained.rows // drained.bytes)
        together = SPARE_MESSAGES * rows * drained.message_bytes // max(drained.messages, drained.rows)
    return FileSize(together if plan.offset_count > OFFSETS_PER_TASK else None, rows)


def largest_drain(commits: Iterable[LedgerCommit]) -> LedgerEntry | None:
    """The largest of these drains, for the bytes of a row in a file; ``None`` if none of them is large.

    A file of few rows is mostly its own footer: the next large drain would be cut into files that are much too small.
    """
    large = [
        c.entry for c in commits if c.entry.rows >= LARGE_DRAIN_OFFSETS and c.entry.bytes and c.entry.message_bytes
    ]
    return max(large, key=lambda entry: entry.rows, default=None)
