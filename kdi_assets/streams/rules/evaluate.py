"""Evaluate the expressions of a document over decoded records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.decoder import DECODED
from kdi_assets.messages.formats.rules import name
from kdi_assets.messages.formats.stream_decoder import StreamDecoder
from kdi_assets.runtime.spark_internals import try_eval, with_kernel_expressions
from kdi_assets.streams.rules.records import result_column, working_columns
from kdi_assets.streams.rules.rules import rules_of
from kdi_assets.streams.rules.table.column_tree import DATE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from kdi_assets.streams.rules.elements import Elements


def row_fields(stream: Stream) -> set[str]:
    """Fields of the document whose expression gives a value of a row, and decides no verdict."""
    return {*(f"columns.{path}" for path in stream.columns), DATE}


def evaluate(decoded: DataFrame, decoder: StreamDecoder, elements: Elements | None) -> DataFrame:
    """Evaluate the conditions and expressions of all rules over every decoded record.

    Returns:
        The source's struct, the ``_kdi_`` columns, and for each expression a struct ``{v}`` named by ``result_column``,
        null where the expression raised: one bad message never fails a drain. With elements, ``v`` of ``columns`` and
        ``date`` is an array, and the struct is null if any element raised. Lazy.
    """
    from pyspark.sql import functions as F

    spark = decoded.sparkSession
    every = {
        field: sql for rule in rules_of(decoder) for field, sql in (rule.conditions() | rule.expressions()).items()
    }
    later = row_fields(decoder.stream) if elements else set()
    ours = working_columns(decoded, decoder.stream)

    def attempts(fields: Iterable[str], written: Callable[[str], str] = str) -> list[Column]:
        # The condition is more than a shortcut: Spark hoists a subexpression that occurs twice, also out of the guard,
        # but never out of a branch that may not be taken.
        return [F.when(F.col(DECODED), attempt(spark, written(every[f]))).alias(result_column(f)) for f in fields]

    first = [field for field in every if field not in later]
    if elements is None:
        return with_kernel_expressions(decoded.select(*ours, *attempts(first)))
    names = [name(c) for c in decoded.columns if c not in ours]
    known = elements.with_items(decoded.select(*ours, *names, *attempts(first)))
    kept = [name(c) for c in known.columns if c not in decoded.columns or c in ours]
    return with_kernel_expressions(known.select(*kept, *attempts([f for f in every if f in later], elements.of_each)))


def attempt(spark: SparkSession, sql: str) -> Column:
    """The expression as a struct ``{v}``, null if it raises: ``v`` may be null, the struct then is not."""
    return try_eval(spark, f"named_struct('v', {sql}\n)")
