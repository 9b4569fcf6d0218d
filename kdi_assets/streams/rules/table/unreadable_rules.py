"""Values at which other readers of a table fail are dead letters, whatever made them.

These are dates and timestamps outside of the years 1 to 9999, and text that is not UTF-8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kdi_assets.documents.model.message_format import Files
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.decoder import RECORD
from kdi_assets.messages.formats.field_uses import DROPPED
from kdi_assets.messages.formats.rules import Rule, name
from kdi_assets.messages.formats.stream_decoder import StreamDecoder
from kdi_assets.messages.formats.unreadable import is_not_utf8, is_out_of_years
from kdi_assets.runtime.spark_internals import columns_of_bytes_as_text
from kdi_assets.streams.rules.records import result_column, value_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

    from kdi_assets.streams.rules.elements import Elements


def unreadable_rules(evaluated: DataFrame, decoder: StreamDecoder, elements: Elements | None) -> list[Rule]:
    """The rules for the values that the table gets, of a decoded message.

    Args:
        evaluated: The result of ``evaluate``.
    """
    if isinstance(decoder.stream.format, Files):
        return []  # the rows of the files are judged, as messages of their own
    values, found = list(_of_expressions(evaluated, decoder.stream, elements)), []
    if values:
        of_bytes = columns_of_bytes_as_text(evaluated)
        texts = [part for part in values if result_column(part[0]) in of_bytes]
        found = [Rule("invalid_utf8", is_not_utf8(value, type_), path) for path, value, type_ in texts]
    values += [] if decoder.payload_decoder.bounds_times else list(_of_record(decoder))
    found += [Rule("out_of_range", is_out_of_years(value, type_), path) for path, value, type_ in values]
    return [rule for rule in found if rule.predicate]


def _of_expressions(
    evaluated: DataFrame, stream: Stream, elements: Elements | None
) -> Iterator[tuple[str, str, DataType]]:
    """Field of the document, Spark SQL and type of each value that an expression gives to a column."""
    fields = [f"columns.{path}" for path in stream.columns]
    if stream.explode and elements and not elements.instead_of:
        fields.append(f"explode.{stream.explode.name}")
    schema = evaluated.schema if fields else None
    for field in fields:
        yield field, value_of(field), schema[result_column(field)].dataType["v"].dataType  # type: ignore[index]


def _of_record(decoder: StreamDecoder) -> Iterator[tuple[str, str, DataType]]:
    """Path, Spark SQL and type of each field of the record that becomes a column."""
    dropped = {steps for steps, use in decoder.uses.uses.items() if use.how == DROPPED}
    for f in decoder.record.fields:
        if decoder.uses.message_steps((f.name,)) not in dropped:
            yield f.name, f"{RECORD}.{name(f.name)}", f.dataType
