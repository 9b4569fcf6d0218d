"""Explode: one message to many rows. A message gets one verdict as a whole, and is exploded after that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kdi_assets.documents.model.message_format import RECORDS
from kdi_assets.documents.model.message_rules import Explode
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.comments import tags_of
from kdi_assets.messages.formats.decoder import RECORD
from kdi_assets.messages.formats.rules import Rule
from kdi_assets.streams.rules.elements import Elements
from kdi_assets.streams.rules.records import mistake, named, refused_sql, steps_to, value_of
from kdi_assets.streams.rules.rules import MessageRule
from kdi_assets.streams.rules.table.column_tree import ColumnTree

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_PATH = re.compile(r"[\w.`]+")


class ExplodeRule(MessageRule):
    """The rule of the field ``explode``."""

    def expressions(self) -> dict[str, str]:
        explode = self.stream.explode
        return {f"explode.{explode.name}": explode.sql} if explode else {}

    def change_columns(self, tree: ColumnTree) -> None:
        if tree.elements and len(tree.elements.instead_of) > 1:
            tree.leave_out(tree.elements.instead_of, "explode")


class ContainerRule(MessageRule):
    """The rule of Avro object containers, whose messages are nothing but elements."""

    def reasons(self, now: datetime) -> list[Rule]:
        return [Rule("empty_container", f"size({RECORD}.{RECORDS}) = 0")]


def elements_of(stream: Stream, record: StructType, spark: SparkSession) -> Elements:
    """The elements of a stream whose messages may become several rows.

    Args:
        record: Of a message.

    Raises:
        ShapeMistake: The expression gives no array, or the element's name hides another.
    """
    if stream.explode is None:
        return _of_container(stream, record)
    return _of_expression(stream, stream.explode, record, spark)


def _of_expression(stream: Stream, explode: Explode, record: StructType, spark: SparkSession) -> Elements:
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, NullType

    field = f"explode.{explode.name}"
    try:
        found = named(spark, stream, record).select(F.expr(explode.sql).alias("_kdi_found")).schema[0].dataType
    except PySparkException as refused:
        raise refused_sql(stream, field, refused) from refused
    if not isinstance(found, ArrayType):
        said = "; map_entries() makes an array of it" if found.typeName() == "map" else ""
        raise mistake(stream, field, f"it gives {found.simpleString()}, and only an array has elements{said}")
    if isinstance(found.elementType, NullType):
        raise mistake(stream, field, "its elements are always null and have no type; cast it")
    path = explode.sql.strip()
    place = steps_to(path.replace("`", ""), record) if _PATH.fullmatch(path) else ()
    hidden = {stream.source_struct.name, "date"} | {f.name.lower() for f in record.fields if (f.name,) != place}
    if explode.name.lower() in hidden:
        said = f"there is something called {explode.name} already; give the element its own name"
        raise mistake(stream, field, said)
    return Elements(value_of(field), found.elementType, explode.name, place, tuple(_tags(record, place)))


def _tags(record: StructType, steps: tuple[str, ...]) -> Iterator[str]:
    """The tags of a field and of the structs that it lies in."""
    here: Any = record
    for step in steps:
        yield from tags_of(here[step].metadata)
        here = here[step].dataType


def _of_container(stream: Stream, record: StructType) -> Elements:
    from pyspark.sql.types import ArrayType, StructType

    declared = record[RECORDS].dataType
    element = declared.elementType if isinstance(declared, ArrayType) else declared
    names = [n.lower() for n in element.names] if isinstance(element, StructType) else []
    if (struct := stream.source_struct.name) in names:
        raise mistake(stream, "format.avro", f"a field called {struct} would hide what expressions know by that name")
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise mistake(stream, "format.avro", f"declared twice: {', '.join(twice)}")
    return Elements(f"{RECORD}.{RECORDS}", element)
