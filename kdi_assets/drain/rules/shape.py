"""Records to the table's columns: expressions, coordinates, the date; and the check of it before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from kdi_assets.drain.rules.explode import INDEX, ITEMS, Elements, apart, elements_of, exposed, in_rows
from kdi_assets.drain.rules.mask import made_of_others, masked, unlocated, without_secrets
from kdi_assets.drain.rules.records import KAFKA_DDL, decode, first_line, mistake, ours, stream_decoder
from kdi_assets.drain.rules.records import result as result
from kdi_assets.formats.catalyst import try_eval
from kdi_assets.formats.decoder import DECODED, RECORD, RESCUED
from kdi_assets.formats.rules import literal, name
from kdi_assets.formats.stream_decoder import StreamDecoder
from kdi_assets.stream.message_rules import Mask
from kdi_assets.stream.stream import Stream

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
    from pyspark.sql.types import ArrayType, BooleanType, NullType

    decoder = stream_decoder(stream)
    working = decode(spark.createDataFrame([], KAFKA_DDL), decoder)
    fields = [F.col(name(f.name)) for f in decoder.record.fields]
    named = working.select("kafka", *fields)  # all that Spark should suggest
    elements = elements_of(stream, decoder.record, spark)
    judges = {FILTER, *expectations(stream), *conditions(stream)}
    for field, sql in {**conditions(stream), **expressions(stream), **expectations(stream)}.items():
        of_element = elements if field in of_elements(stream) else None
        try:
            of_one = named if of_element is None else exposed(named, of_element)
            found = of_one.select("*", F.expr(sql).alias("_kdi_found"))
            of_one.select(attempt(spark, sql))  # refuses what is legal only at the top, as explode
            if of_element is not None:  # as it does here, and what is none inside a lambda, as a query
                items = named.withColumn(ITEMS, F.lit(None).cast(ArrayType(of_element.type)))
                items.select(attempt(spark, of_element.of_each(sql)))
        except PySparkException as refused:
            raise mistake(stream, field, first_line(refused)) from refused
        if isinstance(found.schema["_kdi_found"].dataType, NullType):
            raise mistake(stream, field, "it is always null and has no type; cast it")
        given = found.schema["_kdi_found"].dataType
        if field in judges and not isinstance(given, BooleanType):
            raise mistake(stream, field, f"it gives {given.simpleString()}; a condition is true or false")
        if "Window [" in str(found._jdf.queryExecution().analyzed().toString()):
            raise mistake(stream, field, "a window function looks at other messages; an expression sees one")
        if said := _changes(found, judges=field in judges or field.startswith("explode.")):
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

    elements = elements_of(stream, decoder.record, working.sparkSession)
    nothing = evaluate(working, stream, elements).withColumn(RESCUED, F.lit(None).cast("string"))
    try:
        return shape(without_secrets(nothing, stream), stream, decoder.record, elements).schema
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
    """Field of the document to the Spark SQL that stands there: ``filter``, ``explode``, ``columns``, then ``date``."""
    kept = {FILTER: stream.filter} if stream.filter else {}
    exploded = {f"explode.{stream.explode.name}": stream.explode.sql} if stream.explode else {}
    written = {f"columns.{path}": sql for path, sql in stream.columns.items()}
    return {**kept, **exploded, **written, DATE: f"CAST(({stream.date_expression}\n) AS DATE)"}


def of_elements(stream: Stream) -> set[str]:
    """Those of them that look at one element, and give an array for a message; none in streams that do not explode."""
    return {*(f"columns.{path}" for path in stream.columns), DATE} if stream.explodes else set()


def expectations(stream: Stream) -> dict[str, str]:
    """Field of the document to the condition that stands there, as ``expressions``; none is part of a row."""
    return {f"expectations.{expected}": e.sql for expected, e in stream.expectations.items()}


def conditions(stream: Stream) -> dict[str, str]:
    """Field of a document to the condition that stands there, as ``expressions``: what says whose a message is."""
    return stream.route.conditions if stream.route else {}


def evaluate(decoded: DataFrame, stream: Stream, elements: Elements | None) -> DataFrame:
    """Evaluate the stream's conditions, expressions and expectations over every decoded record.

    Returns:
        ``kafka``, the ``_kdi_`` columns, and for each expression a struct ``{v}`` named by ``result``: null where the
        expression raised for this message, so that one bad message never fails a drain. With elements also ``ITEMS``,
        and ``v`` of what looks at one is an array, null if it raised for any of them.
    """
    from pyspark.sql import functions as F

    spark = decoded.sparkSession
    # The condition is more than a shortcut: Spark hoists a subexpression that stands twice out of whatever surrounds
    # it, also out of the guard, but never out of a branch that may not be taken.
    every = {**conditions(stream), **expressions(stream), **expectations(stream)}
    later = of_elements(stream)

    def attempts(fields: Iterable[str], written: Callable[[str], str] = str) -> list[Column]:
        return [F.when(F.col(DECODED), attempt(spark, written(every[f]))).alias(result(f)) for f in fields]

    first = [field for field in every if field not in later]
    if elements is None:
        return decoded.select(*ours(decoded), *attempts(first))
    names = [name(c) for c in decoded.columns if c not in ours(decoded)]
    known = decoded.select(*ours(decoded), *names, *attempts(first)).withColumn(ITEMS, F.expr(elements.items))
    done = [name(result(field)) for field in first]
    return known.select(*ours(decoded), ITEMS, *done, *attempts([f for f in every if f in later], elements.of_each))


def attempt(spark: SparkSession, sql: str) -> Column:
    """The expression as a struct ``{v}``, null if it raises: ``v`` may be null, the struct then is not."""
    return try_eval(spark, f"named_struct('v', {sql}\n)")


def shape(evaluated: DataFrame, stream: Stream, record: StructType, elements: Elements | None) -> DataFrame:
    """The table's columns alone; of messages that are not decoded they are null.

    Raises:
        ShapeMistake: A path of ``columns`` or ``coordinates`` leads through something that is no struct.
    """
    columns = table_columns(stream, record, elements)
    return apart(evaluated.select(*in_rows(columns, elements)), columns, elements)


def table_columns(stream: Stream, record: StructType, elements: Elements | None) -> dict[str, str]:
    """Column to Spark SQL over the working columns, in the table's order: ``date`` is the last.

    With elements, what differs from row to row of a message is said over ``explode.ELEMENT`` and ``explode.INDEX``.

    Raises:
        ShapeMistake: A path of ``columns``, ``coordinates`` or ``mask`` leads to no column that it may lead to.
    """
    given = _given(record, elements)
    tree: Tree = {f.name: given.places[f.name] for f in given.type.fields if f.name.lower() != DATE}
    if elements and len(elements.instead_of) > 1:
        _leave_out(tree, elements.instead_of, stream, given)
    for path in stream.columns:
        field = f"columns.{path}"
        if path.lower() == DATE:
            raise mistake(stream, field, "the table's `date` is what `date:` gives")
        _put(tree, path, _value(field, elements), stream, field, given)
    _put(tree, stream.coordinates, _coordinates(elements), stream, "coordinates", given)
    if stream.rescued:
        if _key(tree, stream.rescued) in tree:
            raise mistake(stream, "rescued", f"{stream.rescued} is a column already; give it a name of its own")
        tree[stream.rescued] = RESCUED
    for path, mask in stream.mask.items():
        _mask(tree, path, mask, stream, given)
    if stream.mask and stream.dead_letter_payload == "mask" and (why := unlocated(stream, record)):
        raise mistake(stream, "dead_letter_payload", why)
    if stream.rescued and (why := made_of_others(stream, record)):
        raise mistake(stream, "rescued", f"it would keep what is masked: {why}")
    tree[DATE] = _value(DATE, elements)
    return {column: _sql(node) for column, node in tree.items()}


@dataclass(frozen=True, slots=True)
class _Given:
    """What a row has before expressions change it: its fields, and the Spark SQL of each."""

    type: StructType
    places: Mapping[str, str]


def _given(record: StructType, elements: Elements | None) -> _Given:
    from pyspark.sql.types import StructType

    places = {f.name: f"{RECORD}.{name(f.name)}" for f in record.fields}
    if elements is None:
        return _Given(record, places)
    if not elements.name:
        return _Given(elements.struct, elements.names)
    fields = [elements.field if (f.name,) == elements.instead_of else f for f in record.fields]
    fields += [] if elements.field in fields else [elements.field]
    return _Given(StructType(fields), places | elements.names)


def _value(field: str, elements: Elements | None) -> str:
    """What the expression in a field gave."""
    value = f"{name(result(field))}.v"
    return value if elements is None else f"get({value}, {INDEX})"


def _coordinates(elements: Elements | None) -> str:
    coordinates = {c: f"kafka.{c}" for c in ("topic", "partition", "offset", "timestamp")}
    coordinates |= {"index": INDEX, "count": f"size({ITEMS})"} if elements else {}
    return f"named_struct({', '.join(f'{literal(c)}, {sql}' for c, sql in coordinates.items())})"


def _leave_out(tree: Tree, steps: Sequence[str], stream: Stream, given: _Given) -> None:
    """Take a field out, and the structs that have no other one."""
    node, last = _opened(tree, ".".join(steps), stream, "explode", given, stays_null=True)
    del node[_key(node, last)]
    if node is not tree and not node.keys() - {_WHOLE}:
        _leave_out(tree, steps[:-1], stream, given)


def _put(tree: Tree, path: str, sql: str, stream: Stream, field: str, given: _Given) -> None:
    """Hang an expression into the tree."""
    node, last = _opened(tree, path, stream, field, given)
    if field == "coordinates" and _key(node, last) in node:
        raise mistake(stream, field, f"{path} is a column already; give the coordinates a name of their own")
    node[_key(node, last)] = sql


def _mask(tree: Tree, path: str, mask: Mask, stream: Stream, given: _Given) -> None:
    """Put what a mask says in the place of a column."""
    field, lowered, ours = f"mask.{path}", path.lower(), stream.coordinates.lower()
    if lowered == DATE or lowered == ours or lowered.startswith(f"{ours}.") or ours.startswith(f"{lowered}."):
        raise mistake(stream, field, "the date and the coordinates of a row are never masked")
    if inner := [p for p in stream.mask if p != path and f"{p.lower()}.".startswith(f"{lowered}.")]:
        raise mistake(stream, field, f"mask.{inner[0]} lies in it: mask the whole or its parts")
    node, last = _opened(tree, path, stream, field, given, stays_null=True)
    if _key(node, last) not in node:
        raise mistake(stream, field, "the table has no such column")
    if mask.how != "drop":
        node[_key(node, last)] = masked(_sql(node[_key(node, last)]), mask)
    elif len(node.keys() - {_WHOLE}) == 1 and node is not tree:
        raise mistake(stream, field, "it is the only one of its struct; drop the struct")
    else:
        del node[_key(node, last)]


def _opened(
    tree: Tree, path: str, stream: Stream, field: str, given: _Given, *, stays_null: bool = False
) -> tuple[Tree, str]:
    """Where the last step of a path hangs; a struct of what is given on its way is opened into its fields."""
    from pyspark.sql.types import StructType

    *outer, last = path.split(".")
    node, here, inside = tree, "", given.type
    for step in outer:
        known = next((f for f in inside.fields if f.name.lower() == step.lower()), None)
        key, spelled = _key(node, step), known.name if known else step
        here = f"{here}.{name(spelled)}" if here else given.places.get(spelled, spelled)
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
