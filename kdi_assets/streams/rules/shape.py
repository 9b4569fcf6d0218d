"""Records to the table's columns: expressions, coordinates, the date; and their check before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kdi_assets.documents.model.message_format import Files
from kdi_assets.documents.model.message_rules import path_of
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.field_uses import DROPPED
from kdi_assets.messages.formats.rules import literal, name
from kdi_assets.messages.formats.stream_decoder import StreamDecoder
from kdi_assets.runtime.spark_internals import (
    has_clock,
    has_subquery,
    has_window,
    is_deterministic,
    last_expression,
)
from kdi_assets.streams.rules.evaluate import attempt, evaluate, row_fields
from kdi_assets.streams.rules.records import (
    decode,
    first_line,
    mistake,
    no_messages,
    refused_sql,
    steps_to,
    stream_decoder,
)
from kdi_assets.streams.rules.rules import MessageRule, rules_of
from kdi_assets.streams.rules.table.column_tree import DATE, ColumnTree
from kdi_assets.streams.rules.tag_masks import masks_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from kdi_assets.streams.rules.elements import Elements


class FieldsRule(MessageRule):
    """The rule of the field ``fields``: expressions saw the fields that it drops."""

    def change_columns(self, tree: ColumnTree) -> None:
        uses = self.decoder.uses
        for steps in (steps for steps, use in uses.uses.items() if use.how == DROPPED):
            column = uses.column_steps(steps)
            if steps_to(".".join(column), tree.record) == column:  # else no column can hold it
                tree.leave_out(column, f"fields.{path_of(steps)}")


class ColumnsRule(MessageRule):
    """The rule of the fields ``columns`` and ``coordinates``."""

    def expressions(self) -> dict[str, str]:
        return {f"columns.{path}": sql for path, sql in self.stream.columns.items()}

    def change_columns(self, tree: ColumnTree) -> None:
        for path in self.stream.columns:
            field = f"columns.{path}"
            if path.lower() == DATE:
                raise mistake(self.stream, field, "the table's `date` is what `date:` gives")
            tree.put(path, tree.value(field), field)
        coordinates = {c: self.stream.source_struct.path(c) for c in self.stream.source_struct.row}
        coordinates |= tree.elements.coordinates() if tree.elements else self.decoder.row_coordinates
        struct = f"named_struct({', '.join(f'{literal(c)}, {sql}' for c, sql in coordinates.items())})"
        taken = "give the coordinates a name of their own"
        tree.put(self.stream.coordinates, struct, "coordinates", taken=taken)


def analyse(stream: Stream, spark: SparkSession) -> StructType:
    """Check the stream's schema and expressions against Spark, without data.

    Returns:
        The columns of the stream's table: the record's, those of ``columns``, the coordinates and ``date``.

    Raises:
        ShapeMistake: The first field of the document that does not work.
    """
    if isinstance(stream.format, Files):  # the filter sees messages, all other expressions see rows
        decoder = stream_decoder(stream)
        _analyse(decode(no_messages(spark, decoder), decoder), decoder)
        stream = stream.of_file_rows
    decoder = stream_decoder(stream)
    working = decode(no_messages(spark, decoder), decoder)
    _analyse(working, decoder)
    return _columns(working, decoder)


def _analyse(working: DataFrame, decoder: StreamDecoder) -> None:
    """Check the expressions of all rules.

    Args:
        working: The result of ``decode``, without rows.

    Raises:
        ShapeMistake: The first that does not work.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import BooleanType

    stream, spark = decoder.stream, working.sparkSession
    fields = [F.col(name(f.name)) for f in decoder.record.fields]
    names = working.select(stream.source_struct.name, *fields)  # only what Spark may suggest
    elements = elements_of(decoder, spark)
    makes_row = row_fields(stream)
    for rule in rules_of(decoder):
        conditions = rule.conditions()
        for field, sql in {**conditions, **rule.expressions()}.items():
            found = _checked(stream, names, field, sql, elements if field in makes_row else None)
            given = found.schema["_kdi_found"].dataType
            if field in conditions and not isinstance(given, BooleanType):
                raise mistake(stream, field, f"it gives {given.simpleString()}; a condition is true or false")
            if has_window(found):
                raise mistake(stream, field, "a window function looks at other messages; an expression sees one")
            if said := _changes(found, stream, may_ask_clock=field in makes_row):
                raise mistake(stream, field, said)


def _checked(stream: Stream, names: DataFrame, field: str, sql: str, elements: Elements | None) -> DataFrame:
    """The expression in ``_kdi_found``, over the names that expressions know.

    Args:
        elements: If the expression looks at one of them.

    Raises:
        ShapeMistake: Spark refuses the expression, or it has no type.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F
    from pyspark.sql.types import NullType

    spark = names.sparkSession
    known = elements.with_null_names(names) if elements else names
    try:
        found = known.select("*", F.expr(sql).alias("_kdi_found"))
        known.select(attempt(spark, sql))  # refuses what is legal only at the top, as explode
        if elements:  # refuses what is illegal inside a lambda, as a subquery
            elements.with_null_items(names).select(attempt(spark, elements.of_each(sql)))
        if isinstance(found.schema["_kdi_found"].dataType, NullType):
            raise mistake(stream, field, "it is always null and has no type; cast it")
    except PySparkException as refused:
        raise refused_sql(stream, field, refused) from refused
    return found


def columns_of(stream: Stream, spark: SparkSession) -> StructType:
    """The columns of the stream's table, as ``analyse`` returns them; expressions are not checked.

    Raises:
        ShapeMistake: They give no columns.
    """
    if isinstance(stream.format, Files):
        stream = stream.of_file_rows
    decoder = stream_decoder(stream)
    return _columns(decode(no_messages(spark, decoder), decoder), decoder)


def _columns(working: DataFrame, decoder: StreamDecoder) -> StructType:
    from pyspark.errors import PySparkException

    elements = elements_of(decoder, working.sparkSession)
    nothing = evaluate(working, decoder, elements)
    for rule in rules_of(decoder):
        nothing = rule.with_null_columns(nothing)
    try:
        columns = shape(nothing, decoder, elements).schema
    except PySparkException as refused:
        raise mistake(decoder.stream, "columns", first_line(refused)) from refused
    masks = masks_of(decoder.stream, columns)
    for path in decoder.stream.tags:
        if not steps_to(path, columns) and not (path in masks and masks[path].how == "drop"):
            raise mistake(decoder.stream, f"tags.{path}", "the table has no such column")
    return columns


def _changes(found: DataFrame, stream: Stream, *, may_ask_clock: bool) -> str:
    """Why the last column may have another value for the same message later; empty if it cannot.

    A message may be judged twice: for its verdict, and for the reason of a dead letter.
    """
    spark, expression = found.sparkSession, last_expression(found)
    if not is_deterministic(expression):
        return "it gives something else each time that a message is looked at"
    if has_subquery(spark, expression):
        # It could also read any file that the service may read, as a table.
        return "a subquery reads other data, which may be different when a message is looked at again; join downstream"
    if not may_ask_clock and has_clock(spark, expression):
        stamp = stream.source_struct.path("timestamp")
        return f"it asks the clock, which has moved on when a message is looked at again; compare with {stamp}"
    return ""


def elements_of(decoder: StreamDecoder, spark: SparkSession) -> Elements | None:
    """The elements that a message is exploded into; ``None`` if each message becomes one row.

    Raises:
        ShapeMistake: The field ``explode`` does not work.
    """
    if not decoder.stream.explodes:
        return None
    if isinstance(decoder.stream.format, Files):
        from kdi_assets.streams.rules.file_rows import FileElements

        return FileElements.of(decoder, spark)
    from kdi_assets.streams.rules import explode

    return explode.elements_of(decoder.stream, decoder.record, spark)


def shape(evaluated: DataFrame, decoder: StreamDecoder, elements: Elements | None) -> DataFrame:
    """The table's columns alone; those of messages that are not decoded are null.

    Raises:
        ShapeMistake: A path of ``columns`` or ``coordinates`` leads through something that is not a struct.
    """
    columns = table_columns(decoder, elements)
    return explode_rows(evaluated.select(*row_structs(columns, elements)), columns, elements)


def table_columns(decoder: StreamDecoder, elements: Elements | None) -> dict[str, str]:
    """Column to Spark SQL over the working columns, in the table's order: ``date`` is the last.

    Raises:
        ShapeMistake: A path of ``columns``, ``coordinates`` or ``mask`` leads to no column that it may lead to.
    """
    decoder, elements = elements.judged_as(decoder) if elements else (decoder, None)
    tree = ColumnTree(decoder.stream, decoder.record, elements)
    for rule in rules_of(decoder):
        rule.change_columns(tree)
    return {**tree.columns(), DATE: tree.value(DATE)}


def row_structs(columns: Mapping[str, str], elements: Elements | None, *, where: str = "true") -> list[Column]:
    """The columns to select for each message; ``explode_rows`` makes rows of them.

    Args:
        columns: As ``table_columns`` returns them.
        where: Condition: the message becomes rows.
    """
    from pyspark.sql import functions as F

    if elements is not None:
        return elements.row_structs(columns, where=where)
    return [F.expr(sql).alias(column) for column, sql in columns.items()]


def explode_rows(
    messages: DataFrame, columns: Mapping[str, str], elements: Elements | None, *, beside: Sequence[str] = ()
) -> DataFrame:
    """The table's columns in their order, one row for each element of a message.

    Args:
        messages: With the columns of ``row_structs``.
        beside: Further columns of the frame that every row keeps.
    """
    if elements is not None:
        return elements.explode_rows(messages, columns, beside=beside)
    return messages.selectExpr(*map(name, (*columns, *beside)))
