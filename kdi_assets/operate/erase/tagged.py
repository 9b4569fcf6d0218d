"""Erasure by tags: the condition that any column with a tag has a value, and tagged columns that a condition lacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kdi_assets.delta.column_types import table_fields
from kdi_assets.delta.log import TableLog
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.comments import tags_by_path, tags_of
from kdi_assets.messages.formats.rules import literal, name
from kdi_assets.operate.upkeep.errors import EraseRefused
from kdi_assets.runtime.spark_internals import referenced_names
from kdi_assets.streams.rules.column_comments import commented
from kdi_assets.streams.rules.table.table_schema import of_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType


@dataclass(frozen=True, slots=True)
class TaggedValue:
    """A value in the columns that have a tag.

    Attributes:
        value: Compared with the text of a column's value, also of elements of arrays and values of maps.
    """

    tag: str
    value: str

    def where(self, columns: StructType) -> str:
        """Spark SQL: any column with the tag has the value; empty if no column has the tag."""
        return " OR ".join(self._of_fields(columns, "", inherited=False))

    def _of_fields(self, columns: StructType, prefix: str, *, inherited: bool) -> Iterator[str]:
        for f in columns.fields:
            tagged = inherited or self.tag in tags_of(f.metadata)
            yield from self._of(f.dataType, f"{prefix}{name(f.name)}", tagged=tagged)

    def _of(self, type_: DataType, sql: str, *, tagged: bool) -> Iterator[str]:
        from pyspark.sql.types import ArrayType, MapType, StructType

        match type_:
            case StructType():
                yield from self._of_fields(type_, f"{sql}.", inherited=tagged)
            case ArrayType():
                yield from self._of_elements(type_.elementType, sql, tagged=tagged)
            case MapType():
                yield from self._of_elements(type_.keyType, f"map_keys({sql})", tagged=tagged)
                yield from self._of_elements(type_.valueType, f"map_values({sql})", tagged=tagged)
            case _ if tagged:
                yield f"CAST({sql} AS STRING) = {literal(self.value)}"

    def _of_elements(self, type_: DataType, sql: str, *, tagged: bool) -> Iterator[str]:
        element = f"_e{sql.count('exists(')}"
        for condition in self._of(type_, element, tagged=tagged):
            yield f"exists({sql}, {element} -> {condition})"


def where_tagged(stream: Stream, lake: str, spark: SparkSession, tagged: TaggedValue) -> str:
    """The condition over the columns of the stream's table, by the tags in it and those of schema and document now.

    Raises:
        EraseRefused: There is no such column.
    """
    log = TableLog.open(stream.table_uri(lake))
    where = tagged.where(commented(of_table(log), stream, spark)) if log else ""
    if log and not where:
        detail = f"no column of the table is tagged {tagged.tag}"
        raise EraseRefused(stream=stream.name, detail=detail, run=f"kdi erase {stream.name} --where CONDITION")
    return where


def tagged_elsewhere(stream: Stream, lake: str, spark: SparkSession, where: str) -> dict[str, list[str]]:
    """Tag to the tagged columns of the table that a condition does not name, if it names one with the same tag."""
    named = [f"{column.lower()}." for column in referenced_names(spark, where)] if where else []
    columns: dict[str, list[str]] = {}
    for path, tags in tags_by_path(table_fields(stream.table_uri(lake))).items():
        for tag in tags:
            columns.setdefault(tag, []).append(path)

    def is_named(path: str) -> bool:
        here = f"{path.lower()}."
        return any(here.startswith(column) or column.startswith(here) for column in named)

    found = {tag: [path for path in paths if not is_named(path)] for tag, paths in columns.items()}
    return {tag: others for tag, others in found.items() if others and len(others) < len(columns[tag])}
