"""Dates and timestamps outside of the years 1 to 9999, whatever made them, are dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdi_assets.documents.model.message_format import Files
from kdi_assets.messages.formats.decoder import RECORD
from kdi_assets.messages.formats.field_uses import DROPPED
from kdi_assets.messages.formats.rules import Rule, name
from kdi_assets.messages.formats.stream_decoder import StreamDecoder
from kdi_assets.messages.formats.year_bounds import is_out_of_years
from kdi_assets.streams.rules.records import result_column, value_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REASON = "out_of_range"


def range_rules(evaluated: DataFrame, decoder: StreamDecoder) -> list[Rule]:
    """The rules for the values that the table gets, of a decoded message.

    Args:
        evaluated: The result of ``evaluate``.
    """
    if isinstance(decoder.stream.format, Files):
        return []  # the rows of the files are judged, as messages of their own
    expressions = [f"columns.{path}" for path in decoder.stream.columns]
    schema = evaluated.schema if expressions else None
    found = [(f, value_of(f), schema[result_column(f)].dataType["v"].dataType) for f in expressions if schema]  # type: ignore[index]
    if not decoder.payload_decoder.bounds_times:
        dropped = {steps for steps, use in decoder.uses.uses.items() if use.how == DROPPED}
        for f in decoder.record.fields:
            if decoder.uses.message_steps((f.name,)) not in dropped:
                found.append((f.name, f"{RECORD}.{name(f.name)}", f.dataType))
    return [Rule(REASON, outside, path) for path, value, type_ in found if (outside := is_out_of_years(value, type_))]
