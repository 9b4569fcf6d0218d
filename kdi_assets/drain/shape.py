"""Records to the table's columns: expressions, coordinates, the date; and the check of it before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from kdi_assets.drain.masking import masked, unlocated, without_secrets
from kdi_assets.drain.records import KAFKA_DDL, OURS, decode, first_line, mistake, stream_decoder
from kdi_assets.formats.catalyst import try_eval
from kdi_assets.formats.decoder import DECODED, RECORD, RESCUED
from kdi_assets.formats.of_stream import StreamDecoder
from kdi_assets.formats.rules import literal, name
from kdi_assets.stream import Mask, Stream

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

DATE, FILTER = "date", "filter"
_WHOLE = " whole"
"""In a tree, what is null where the struct is; no column has such a name."""

Tree = dict[str, "str | Tree"]
"""Column name to Spark SQL over the working columns, or to the columns of a struct."""


def analyse(stream: Stream, spark: SparkSession) -> StructType:
    """Check the stream's schema and expressions against Spark, without data.

    Returns:
        The columns of the stream's table: the record's, those of ``columns``, the coordinates and ``date``.

    Raises:
        ShapeMistake: The first field of the document that does not work.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F
    from pyspark.sql.types import BooleanType, NullType

    decoder = stream_decoder(stream)
    working = decode(spark.createDataFrame([], KAFKA_DDL), decoder)
    fields = [F.col(name(f.name)) for f in decoder.record.fields]
    named = working.select("kafka", *fields)  # all that Spark should suggest
    for field, sql in {**expressions(stream), **expectations(stream)}.items():
        try:
            found = named.select("*", F.expr(sql).alias("_kdi_found"))
            named.select(attempt(spark, sql))  # refuses what is legal only at the top, as explode
        except PySparkException as refused:
            raise mistake(stream, field, first_line(refused)) from refused
        if isinstance(found.schema["_kdi_found"].dataType, NullType):
            raise mistake(stream, field, "it is always null and has no type; cast it")
        given = found.schema["_kdi_found"].dataType
        if field in (FILTER, *expectations(stream)) and not isinstance(given, BooleanType):
            raise mistake(stream, field, f"it gives {given.simpleString()}; a condition is true or false")
        if "Window [" in str(found._jdf.queryExecution().analyzed().toString()):
            raise mistake(stream, field, "a window function looks at other messages; an expression sees one")
        if said := _changes(found, judges=field in (FILTER, *expectations(stream))):
            raise mistake(stream, field, said)
    return _columns(working, stream, decoder)


def columns_of(stream: Stream, spark: SparkSession) -> StructType:
    """The columns of the stream's table, as ``analyse`` answers them; of its expressions nothing is checked.

    Raises:
        ShapeMistake: They give no columns.
    """
    decoder = stream_decoder(stream)
    return _columns(decode(spark.createDataFrame([], KAFKA_DDL), decoder), stream, decoder)


def _columns(working: DataFrame, stream: Stream, decoder: StreamDecoder) -> StructType:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F

    nothing = evaluate(working, stream).withColumn(RESCUED, F.lit(None).cast("string"))
    try:
        return shape(without_secrets(nothing, stream), stream, decoder.record).schema
    except PySparkException as refused:
        raise mistake(stream, "columns", first_line(refused)) from refused


def _changes(found: DataFrame, *, judges: bool) -> str:
    """Why the last column may say something else of the same message later; empty if it cannot.

    Messages are looked at twice, for their verdicts and for the reasons of those that are condemned.
    """
    jvm: Any = found.sparkSession._jvm
    expression = found._jdf.queryExecution().analyzed().expressions().last()
    if not expression.deterministic():
        return "it gives something else each time that a message is looked at"
    if judges and expression.containsPattern(jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()):
        return "it asks the clock, which has moved on when a message is looked at again; compare with kafka.timestamp"
    return ""


def commented(columns: StructType, record: StructType) -> StructType:
    """The table's columns with the comments of the record's DDL; expressions lose them on the way."""
    from pyspark.sql.types import StructField, StructType

    said = {f.name: {"comment": f.metadata["comment"]} for f in record.fields if "comment" in f.metadata}
    return StructType([StructField(f.name, f.dataType, f.nullable, said.get(f.name)) for f in columns.fields])


def expressions(stream: Stream) -> dict[str, str]:
    """Field of the document to the Spark SQL that stands there: ``filter``, each of ``columns``, then ``date``."""
    kept = {FILTER: stream.filter} if stream.filter else {}
    written = {f"columns.{path}": sql for path, sql in stream.columns.items()}
    return {**kept, **written, "date": f"CAST(({stream.date_expression}\n) AS DATE)"}


def expectations(stream: Stream) -> dict[str, str]:
    """Field of the document to the condition that stands there, as ``expressions``; none is part of a row."""
    return {f"expectations.{expected}": e.sql for expected, e in stream.expectations.items()}


def evaluate(exposed: DataFrame, stream: Stream) -> DataFrame:
    """Evaluate the stream's expressions and expectations over every decoded record.

    Returns:
        ``kafka``, the ``_kdi_`` columns, and for each expression a struct ``{v}`` named by ``result``: null where the
        expression raised for this message, so that one bad message never fails a drain.
    """
    from pyspark.sql import functions as F

    spark = exposed.sparkSession
    # The condition is more than a shortcut: Spark hoists a subexpression that stands twice out of whatever surrounds
    # it, also out of the guard, but never out of a branch that may not be taken.
    every = {**expressions(stream), **expectations(stream)}
    attempts = [F.when(F.col(DECODED), attempt(spark, sql)).alias(result(f)) for f, sql in every.items()]
    return exposed.select(*OURS, *attempts)


def attempt(spark: SparkSession, sql: str) -> Column:
    """The expression as a struct ``{v}``, null if it raises: ``v`` may be null, the struct then is not."""
    return try_eval(spark, f"named_struct('v', {sql}\n)")


def result(field: str) -> str:
    """The working column that holds what the expression in ``field`` gave."""
    return f"_kdi_x_{field}"


def shape(evaluated: DataFrame, stream: Stream, record: StructType) -> DataFrame:
    """The table's columns alone; of messages that are not decoded they are null.

    Raises:
        ShapeMistake: A path of ``columns`` or ``coordinates`` leads through something that is no struct.
    """
    from pyspark.sql import functions as F

    return evaluated.select(*(F.expr(sql).alias(column) for column, sql in table_columns(stream, record).items()))


def table_columns(stream: Stream, record: StructType) -> dict[str, str]:
    """Column to Spark SQL over the working columns, in the table's order: ``date`` is the last.

    Raises:
        ShapeMistake: A path of ``columns``, ``coordinates`` or ``mask`` leads to no column that it may lead to.
    """
    tree: Tree = {f.name: f"{RECORD}.{name(f.name)}" for f in record.fields if f.name.lower() != DATE}
    for path in stream.columns:
        field = f"columns.{path}"
        if path.lower() == DATE:
            raise mistake(stream, field, "the table's `date` is what `date:` gives")
        _put(tree, path, f"{name(result(field))}.v", stream, field, record)
    coordinates = ", ".join(f"'{c}', kafka.{c}" for c in ("topic", "partition", "offset", "timestamp"))
    _put(tree, stream.coordinates, f"named_struct({coordinates})", stream, "coordinates", record)
    if stream.rescued:
        if _key(tree, stream.rescued) in tree:
            raise mistake(stream, "rescued", f"{stream.rescued} is a column already; give it a name of its own")
        tree[stream.rescued] = RESCUED
    for path, mask in stream.mask.items():
        _mask(tree, path, mask, stream, record)
    if stream.mask and stream.dead_letter_payload == "mask" and (why := unlocated(stream, record)):
        raise mistake(stream, "dead_letter_payload", why)
    tree[DATE] = f"{name(result('date'))}.v"
    return {column: _sql(node) for column, node in tree.items()}


def _put(tree: Tree, path: str, sql: str, stream: Stream, field: str, record: StructType) -> None:
    """Hang an expression into the tree."""
    node, last = _opened(tree, path, stream, field, record)
    if field == "coordinates" and _key(node, last) in node:
        raise mistake(stream, field, f"{path} is a column already; give the coordinates a name of their own")
    node[_key(node, last)] = sql


def _mask(tree: Tree, path: str, mask: Mask, stream: Stream, record: StructType) -> None:
    """Put what a mask says in the place of a column."""
    field, lowered, ours = f"mask.{path}", path.lower(), stream.coordinates.lower()
    if lowered == DATE or lowered == ours or lowered.startswith(f"{ours}.") or ours.startswith(f"{lowered}."):
        raise mistake(stream, field, "the date and the coordinates of a row are never masked")
    if inner := [p for p in stream.mask if p != path and f"{p.lower()}.".startswith(f"{lowered}.")]:
        raise mistake(stream, field, f"mask.{inner[0]} lies in it: mask the whole or its parts")
    node, last = _opened(tree, path, stream, field, record, stays_null=True)
    if _key(node, last) not in node:
        raise mistake(stream, field, "the table has no such column")
    if mask.how != "drop":
        node[_key(node, last)] = masked(_sql(node[_key(node, last)]), mask)
    elif len(node.keys() - {_WHOLE}) == 1 and node is not tree:
        raise mistake(stream, field, "it is the only one of its struct; drop the struct")
    else:
        del node[_key(node, last)]


def _opened(
    tree: Tree, path: str, stream: Stream, field: str, record: StructType, *, stays_null: bool = False
) -> tuple[Tree, str]:
    """Where the last step of a path hangs; a struct of the record on its way is opened into its fields."""
    from pyspark.sql.types import StructType

    *outer, last = path.split(".")
    node, here, inside = tree, RECORD, record
    for step in outer:
        known = next((f for f in inside.fields if f.name.lower() == step.lower()), None)
        key = _key(node, step)
        here = f"{here}.{name(known.name if known else step)}"
        inside = known.dataType if known and isinstance(known.dataType, StructType) else StructType()
        if isinstance(node.get(key), str):
            if not inside.fields:
                raise mistake(stream, field, f"{step} is no struct, so nothing can lie below it")
            if node[key] != here:
                raise mistake(stream, field, f"{step} is made by an expression, so nothing can be changed inside it")
            whole = {_WHOLE: here} if stays_null else {}
            node[key] = {**whole, **{f.name: f"{here}.{name(f.name)}" for f in inside.fields}}
        node = cast(Tree, node.setdefault(key, {}))
    return node, last


def _key(node: Tree, step: str) -> str:
    """The spelling that is there already: Spark's and Delta's names ignore case."""
    return next((k for k in node if k.lower() == step.lower()), step)


def _sql(node: str | Tree) -> str:
    if isinstance(node, str):
        return node
    fields = ", ".join(f"{literal(k)}, {_sql(v)}" for k, v in node.items() if k != _WHOLE)
    struct = f"named_struct({fields})"
    return f"CASE WHEN {node[_WHOLE]} IS NOT NULL THEN {struct} END" if _WHOLE in node else struct
