"""The rows of the files that messages name, as messages of their own, with the coordinates of the naming message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.message_format import FileRows, Parquet
from kdi_assets.messages.formats.decoder import DOCUMENT
from kdi_assets.messages.formats.files.decoder import FilesDecoder
from kdi_assets.messages.formats.rules import name
from kdi_assets.messages.formats.stream_decoder import StreamDecoder
from kdi_assets.streams.rules.elements import Elements
from kdi_assets.streams.rules.evaluate import evaluate
from kdi_assets.streams.rules.records import decode, no_messages, stream_decoder
from kdi_assets.streams.rules.rules import rules_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_PLACES_DDL = (
    "_kdi_file string, file string, key binary, topic string, partition int, offset bigint, micros bigint, "
    "timestampType int, headers array<struct<key: string, value: binary>>, first bigint, count int"
)
_MESSAGE = ("partition", "offset")
_AT = ("_kdi_at_partition", "_kdi_at_offset")
_NO_GLOBS = {"__globPaths__": "false"}
"""Spark's option: a path is a name, also with characters that are patterns elsewhere."""


At = tuple[int, int]
"""Number of the topic partition, and offset."""


@dataclass(frozen=True, slots=True)
class PlacedFile:
    """A file as one message names it.

    Attributes:
        uri: As ``messages.formats.files.names.canonical`` spells it.
        message: The message's columns, as ``reader.read_ranges`` gives them, with the timestamp as ``micros`` of 1970:
            Python's times of an hour that occurs twice would not survive the way to the driver and back.
        first: The number of the file's first row among the rows of the message.
        count: Rows of the message, all of its files together.
    """

    uri: str
    message: Mapping[str, Any]
    first: int
    count: int

    @property
    def at(self) -> At:
        """Where the message is."""
        return self.message["partition"], self.message["offset"]

    def row(self, more: Iterable[str]) -> tuple[Any, ...]:
        """The values of ``_PLACES_DDL``, and further columns of the message."""
        columns = ("key", "topic", "partition", "offset", "micros", "timestampType", "headers")
        place = (self.message[c] for c in columns)
        return (self.uri, self.uri, *place, self.first, self.count, *(self.message[c] for c in more))


def rows_of(spark: SparkSession, files: Sequence[PlacedFile], decoder: StreamDecoder) -> DataFrame:
    """Every row of the files, once for each message that names its file.

    Args:
        decoder: Of the rows (``Stream.of_file_rows``).

    Returns:
        The columns of ``reader.read_ranges``, ``file: string, index: int, count: int``; ``value`` is what the decoder
        decodes: a struct with the columns of a Parquet file, or a line. Lazy.
    """
    from pyspark.sql import functions as F

    if not files:
        return no_messages(spark, decoder)
    struct = decoder.stream.source_struct
    rows = [file.row(struct.more) for file in files]
    places = F.broadcast(spark.createDataFrame(rows, _PLACES_DDL + struct.more_ddl))
    read = numbered_rows(spark, [file.uri for file in files], decoder)
    index = F.expr("CAST(first + _kdi_row AS INT)").alias("index")
    timestamp = F.expr("timestamp_micros(micros)").alias("timestamp")
    place = ("topic", "partition", "offset", timestamp, "timestampType", "headers")
    return read.join(places, "_kdi_file").select("key", "value", *place, *struct.more, "file", index, "count")


def numbered_rows(spark: SparkSession, uris: Sequence[str], decoder: StreamDecoder) -> DataFrame:
    """The rows of files, each with its file and its number in it.

    Returns:
        ``value``, ``_kdi_file: string`` (as ``PlacedFile.uri``), ``_kdi_row: bigint``. Lazy.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    paths = list(dict.fromkeys(uris))
    # Spark percent-encodes some characters, and writes a path of this machine as file:/a or file:///a.
    decoded = "url_decode(replace(_metadata.file_path, '+', '%2B'))"
    file = F.expr(f"regexp_replace(regexp_replace({decoded}, '^file:/+', '/'), '^s3a:', 's3:')").alias("_kdi_file")
    if isinstance(decoder.stream.format, FileRows) and isinstance(decoder.stream.format.of, Parquet):
        read = spark.read.schema(decoder.source).options(**_NO_GLOBS).parquet(*paths)
        value = F.struct(*(F.col(name(f.name)) for f in decoder.source.fields)).alias("value")
        return read.select(value, file, F.col("_metadata.row_index").alias("_kdi_row"))
    read = spark.read.options(**_NO_GLOBS).text(paths)
    line = F.expr("CAST(value AS BINARY) AS value")
    block = F.col("_metadata.file_block_start").alias("_kdi_block")
    lines = read.select(line, file, block, F.monotonically_increasing_id().alias("_kdi_id"))
    order = Window.partitionBy("_kdi_file").orderBy("_kdi_block", "_kdi_id")
    return lines.select("value", "_kdi_file", (F.row_number().over(order) - 1).cast("bigint").alias("_kdi_row"))


@dataclass(frozen=True, slots=True)
class FileElements(Elements):
    """The rows of files as elements of the messages that name them: read apart, and joined with the good messages.

    Attributes:
        rows_decoder: Decodes the rows.
        files: Of the messages that are rows.
    """

    rows_decoder: StreamDecoder = field(kw_only=True)
    files: Sequence[PlacedFile] = field(kw_only=True)

    @classmethod
    def of(cls, decoder: StreamDecoder, spark: SparkSession) -> FileElements:
        """The elements of a stream of files, as far as its decoder knows the files."""
        known = decoder.payload_decoder
        files = known.files if isinstance(known, FilesDecoder) else ()
        rows = stream_decoder(decoder.stream.of_file_rows)
        return cls("", rows.record, rows_decoder=rows, files=tuple(files))

    def judged_as(self, decoder: StreamDecoder) -> tuple[StreamDecoder, Elements | None]:
        return self.rows_decoder, None

    @property
    def row_count(self) -> str:
        return f"CAST(coalesce({DOCUMENT}.rows, 0L) AS INT)"

    def with_items(self, messages: DataFrame) -> DataFrame:
        return messages

    def row_structs(self, columns: Mapping[str, str], *, where: str) -> list[Column]:
        from pyspark.sql import functions as F

        at = zip(map(self.rows_decoder.stream.source_struct.path, _MESSAGE), _AT, strict=True)
        return [F.expr(place).alias(column) for place, column in at]

    def explode_rows(self, messages: DataFrame, columns: Mapping[str, str], *, beside: Sequence[str]) -> DataFrame:
        from pyspark.sql import functions as F

        read = rows_of(messages.sparkSession, self.files, self.rows_decoder)
        evaluated = evaluate(decode(read, self.rows_decoder), self.rows_decoder, None)
        for rule in rules_of(self.rows_decoder):
            evaluated = rule.with_columns(evaluated, where="true")
        struct = self.rows_decoder.stream.source_struct
        at = [F.col(struct.path(c)).alias(f"_kdi_row_{c}") for c in _MESSAGE]
        rows = evaluated.select(*(F.expr(sql).alias(column) for column, sql in columns.items()), *at)
        same = F.expr(f"_kdi_row_partition = {_AT[0]} AND _kdi_row_offset = {_AT[1]}")
        # The messages are few, and they are the side that is read once and as a whole: the tally counts there.
        joined = rows.join(F.broadcast(messages), same, "right" if not self.files else "inner")
        return joined.select(*(F.col(name(column)) for column in (*columns, *beside)))
