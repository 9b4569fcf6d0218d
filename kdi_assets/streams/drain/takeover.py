"""A table that exists, compared with the stream's document before anything is drained into it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING

from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import Stream
from kdi_assets.streams.drain.schema_evolution import evolved
from kdi_assets.streams.rules.errors import SchemaDisagrees
from kdi_assets.streams.rules.shape import analyse
from kdi_assets.streams.rules.table.column_tree import DATE
from kdi_assets.streams.rules.table.table_schema import refuse_other_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_DAY = "yyyy-MM-dd"


def refuse_unsuitable(
    stream: Stream,
    lake: str,
    log: TableLog,
    spark: SparkSession,
    *,
    analysed: Callable[[Stream, SparkSession], StructType] = analyse,
) -> None:
    """Refuse a table that the stream cannot continue.

    Reads the partition values of all files of a table whose dates are text, as no drain does.

    Args:
        analysed: ``analyse``, or one that remembers.

    Raises:
        SchemaDisagrees: With every difference.
        ShapeMistake: The document does not work.
    """
    stream = evolved(stream, lake, spark)
    other_dates = _other_dates(log)
    try:
        refuse_other_schema(stream, log, analysed(stream, spark))
    except SchemaDisagrees as refusal:
        raise replace(refusal, differences=(*refusal.differences, *other_dates)) from None
    if other_dates:
        raise SchemaDisagrees(stream=stream.name, uri=log.uri, differences=other_dates)


def _other_dates(log: TableLog) -> tuple[str, ...]:
    """What is wrong with text in the column ``date``: rows of ours would lie in folders of another form."""
    types = {f["name"]: f["type"] for f in log.schema["fields"]}
    if types.get(DATE) != "string" or DATE not in log.partition_columns or not log.data_files.num_rows:
        return ()
    texts = log.data_files[f"partition.{DATE}"].unique().to_pylist()
    others = sorted(text for text in texts if text is not None and not _is_day(text))
    return (f"column {DATE} is text of another form than {_DAY}: {others[0]!r}",) if others else ()


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
