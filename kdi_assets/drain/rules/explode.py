"""Explode: one message to many rows. A message is judged as a whole, and taken apart behind its verdict.

Whatever looks at single elements is a function over the array of them: up to the verdict, and to the observation that
counts, there is one row for each message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kdi_assets.drain.rules.records import first_line, mistake, named, result, steps_to
from kdi_assets.formats.decoder import RECORD
from kdi_assets.formats.rules import Rule, literal, name
from kdi_assets.stream.message_format import RECORDS, AvroContainer
from kdi_assets.stream.message_rules import Explode
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField, StructType

ITEMS = "_kdi_items"
"""The elements of a message; never empty: where there are none, a null stands for them."""
ELEMENT, INDEX = "_kdi_element", "_kdi_index"
"""An element and its number from 0, in the Spark SQL of the table's columns."""
_ROWS = "_kdi_rows"
ROW_COUNT = f"nullif(size({_ROWS}), -1)"
"""Spark SQL over what ``in_rows`` gives of elements: how many rows a message becomes; null if it becomes none."""
_OF_AN_ELEMENT = re.compile(rf"\b({ELEMENT}|{INDEX})\b")
_PATH = re.compile(r"[\w.`]+")


@dataclass(frozen=True, slots=True)
class Elements:
    """What the messages of a stream are taken apart into.

    Attributes:
        array: Spark SQL over the working columns: the elements of a message, null or empty where it has none.
        type: Of an element.
        name: What expressions call an element, and its column; empty: the element's fields are names and columns.
        instead_of: Steps to the field of the record that holds them and is no column beside them; none if it is an
            expression that makes them.
    """

    array: str
    type: DataType
    name: str = ""
    instead_of: tuple[str, ...] = ()

    @property
    def struct(self) -> StructType:
        """The element's fields.

        Raises:
            TypeError: It has none.
        """
        from pyspark.sql.types import StructType

        if not isinstance(self.type, StructType):
            raise TypeError(f"{self.type.simpleString()} has no fields")
        return self.type

    @property
    def field(self) -> StructField:
        """The column that the element is."""
        from pyspark.sql.types import StructField

        return StructField(self.name, self.type)

    @property
    def items(self) -> str:
        """Spark SQL of ``ITEMS``."""
        return f"CASE WHEN size({self.array}) > 0 THEN {self.array} ELSE array(get({self.array}, 0)) END"

    @property
    def names(self) -> dict[str, str]:
        """The names that expressions know by an element, and the Spark SQL of each."""
        return {self.name: ELEMENT} if self.name else {f: f"{ELEMENT}.{name(f)}" for f in self.struct.names}

    def of_each(self, sql: str) -> str:
        """Spark SQL of an array: what an expression gives for every element."""
        given = f"({sql}\n)"
        if self.name:
            return f"transform({ITEMS}, {name(self.name)} -> {given})"
        for field, place in self.names.items():
            # SQL has no other way to give a value a name than to make it a lambda's argument.
            if re.search(rf"\b{re.escape(field)}\b", sql, re.IGNORECASE):
                given = f"get(transform(array({place}), {name(field)} -> {given}), 0)"
        return f"transform({ITEMS}, {ELEMENT} -> {given})"


def elements_of(stream: Stream, record: StructType, spark: SparkSession) -> Elements | None:
    """What the stream's messages are taken apart into; ``None`` if each becomes one row.

    Args:
        record: Of a message.

    Raises:
        ShapeMistake: The expression gives no array, or the element's name hides another.
    """
    if isinstance(stream.format, AvroContainer):
        return _of_container(stream, record)
    return _of_expression(stream, stream.explode, record, spark) if stream.explode else None


def exposed(frame: DataFrame, elements: Elements) -> DataFrame:
    """A frame with the names that expressions over a message know, to one with those that are known over an element."""
    from pyspark.sql import functions as F

    return frame.withColumns({n: F.lit(None).cast(t) for n, t in _typed(elements).items()})


def in_rows(columns: Mapping[str, str], elements: Elements | None, *, where: str = "true") -> list[Column]:
    """The table's columns, as far as a message has them as a whole; of its rows an array.

    Args:
        columns: Column to Spark SQL, over ``ELEMENT`` and ``INDEX`` where it is not the same in all rows of a message.
        where: Spark SQL: whether the message becomes rows.
    """
    from pyspark.sql import functions as F

    if elements is None:
        return [F.expr(sql).alias(column) for column, sql in columns.items()]
    of_element = {column: sql for column, sql in columns.items() if _OF_AN_ELEMENT.search(sql)}
    struct = ", ".join(f"{literal(column)}, {sql}" for column, sql in of_element.items())
    rows = f"CASE WHEN {where} THEN transform({ITEMS}, ({ELEMENT}, {INDEX}) -> named_struct({struct})) END"
    of_message = [F.expr(sql).alias(column) for column, sql in columns.items() if column not in of_element]
    return [*of_message, F.expr(rows).alias(_ROWS)]


def apart(
    messages: DataFrame, columns: Mapping[str, str], elements: Elements | None, *, beside: Sequence[str] = ()
) -> DataFrame:
    """What ``in_rows`` gives, a row for each element, in the table's order.

    Args:
        beside: Further columns of the frame that every row keeps.
    """
    from pyspark.sql import functions as F

    wanted = [F.col(name(column)) for column in (*columns, *beside)]
    if elements is None:
        return messages.select(*wanted)
    of_message = [F.col(name(c)) for c, sql in columns.items() if not _OF_AN_ELEMENT.search(sql)]
    return messages.select(*of_message, *beside, F.inline(F.col(_ROWS))).select(*wanted)


def of_any(value: str, predicate: str, stream: Stream) -> str:
    """Spark SQL: whether what an expression gave, or for one element gave, is as the predicate says."""
    return f"exists({value}, _kdi_v -> _kdi_v {predicate})" if stream.explodes else f"{value} {predicate}"


def empty_rules(stream: Stream) -> list[Rule]:
    """What condemns a message that was decoded and has no elements: a container, which is nothing else."""
    empty = Rule("empty_container", f"size({RECORD}.{RECORDS}) = 0")
    return [empty] if isinstance(stream.format, AvroContainer) else []


def _of_expression(stream: Stream, asked: Explode, record: StructType, spark: SparkSession) -> Elements:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, NullType

    field = f"explode.{asked.name}"
    try:
        found = named(spark, record).select(F.expr(asked.sql).alias("_kdi_found")).schema[0].dataType
    except PySparkException as refused:
        raise mistake(stream, field, first_line(refused)) from refused
    if not isinstance(found, ArrayType):
        said = "; map_entries() makes an array of it" if found.typeName() == "map" else ""
        raise mistake(stream, field, f"it gives {found.simpleString()}, and only an array has elements{said}")
    if isinstance(found.elementType, NullType):
        raise mistake(stream, field, "its elements are always null and have no type; cast it")
    path = asked.sql.strip()
    place = steps_to(path.replace("`", ""), record) if _PATH.fullmatch(path) else ()
    hidden = {"kafka", "date"} | {f.name.lower() for f in record.fields if (f.name,) != place}
    if asked.name.lower() in hidden:
        raise mistake(stream, field, f"there is something called {asked.name} already; give the element its own name")
    return Elements(f"{name(result(field))}.v", found.elementType, asked.name, place)


def _of_container(stream: Stream, record: StructType) -> Elements:
    from pyspark.sql.types import ArrayType, StructType

    declared = record[RECORDS].dataType
    element = declared.elementType if isinstance(declared, ArrayType) else declared
    names = [n.lower() for n in element.names] if isinstance(element, StructType) else []
    if "kafka" in names:
        raise mistake(stream, "format.avro", "a field called kafka would hide what expressions know by that name")
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise mistake(stream, "format.avro", f"declared twice: {', '.join(twice)}")
    return Elements(f"{RECORD}.{RECORDS}", element)


def _typed(elements: Elements) -> dict[str, DataType]:
    if elements.name:
        return {elements.name: elements.type}
    return {f.name: f.dataType for f in elements.struct.fields}
