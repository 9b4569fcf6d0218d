"""The elements that a message is exploded into, as Spark SQL over one array for each message.

Up to the verdict and the tally there is one row for each message, so an expression over one element becomes a
function over the array of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kdi_assets.messages.formats.comments import described
from kdi_assets.messages.formats.rules import literal, name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from kdi_assets.messages.formats.stream_decoder import StreamDecoder

_ITEMS = "_kdi_items"
"""The elements of a message. Never empty: a message without elements has one that is null."""
_ELEMENT, _INDEX = "_kdi_element", "_kdi_index"
"""An element and its number from 0, in the Spark SQL of the table's columns."""
_ROWS = "_kdi_rows"
_OF_AN_ELEMENT = re.compile(rf"\b({_ELEMENT}|{_INDEX})\b")


@dataclass(frozen=True, slots=True)
class Elements:
    """The elements that the messages of a stream are exploded into.

    Attributes:
        array: Spark SQL over the working columns: the elements of a message, null or empty where it has none.
        type: Of an element.
        name: How expressions call an element, and its column; empty: the element's fields are names and columns.
        instead_of: Steps to the field of the record that holds the elements and is no column itself; empty if an
            expression makes them.
        tags: Of that field.
    """

    array: str
    type: DataType
    name: str = ""
    instead_of: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def judged_as(self, decoder: StreamDecoder) -> tuple[StreamDecoder, Elements | None]:
        """The decoder and the elements whose columns the table has."""
        return decoder, self

    @property
    def row_count(self) -> str:
        """Spark SQL: how many rows a message becomes."""
        return f"size({_ITEMS})"

    def row_of(self, record: StructType, places: Mapping[str, str]) -> tuple[StructType, Mapping[str, str]]:
        """The fields of a row before expressions change it, and the Spark SQL of each.

        Args:
            record: Of a message.
            places: The same of each of its fields.
        """
        from pyspark.sql.types import StructField, StructType

        if not self.name:
            return self._struct, self._names
        field = StructField(self.name, self.type, metadata=described({}, "", self.tags))
        fields = [field if (f.name,) == self.instead_of else f for f in record.fields]
        return StructType(fields if field in fields else [*fields, field]), {**places, **self._names}

    def of_row(self, array: str) -> str:
        """Spark SQL: the value for one row, from the array of the values for all elements."""
        return f"get({array}, {_INDEX})"

    def coordinates(self) -> dict[str, str]:
        """The coordinates of a row within its message."""
        return {"index": _INDEX, "count": self.row_count}

    def of_each(self, sql: str) -> str:
        """Spark SQL of an array: the value of an expression for each element."""
        given = f"({sql}\n)"
        if self.name:
            return f"transform({_ITEMS}, {name(self.name)} -> {given})"
        for field, place in self._names.items():
            # SQL has no other way to give a value a name than to make it a lambda's argument.
            if re.search(rf"\b{re.escape(field)}\b", sql, re.IGNORECASE):
                given = f"get(transform(array({place}), {name(field)} -> {given}), 0)"
        return f"transform({_ITEMS}, {_ELEMENT} -> {given})"

    def with_items(self, messages: DataFrame) -> DataFrame:
        """Add the array of elements."""
        from pyspark.sql import functions as F

        items = f"CASE WHEN size({self.array}) > 0 THEN {self.array} ELSE array(get({self.array}, 0)) END"
        return messages.withColumn(_ITEMS, F.expr(items))

    def with_null_items(self, frame: DataFrame) -> DataFrame:
        """Add a column of the type of that array, to check expressions."""
        from pyspark.sql import functions as F
        from pyspark.sql.types import ArrayType

        return frame.withColumn(_ITEMS, F.lit(None).cast(ArrayType(self.type)))

    def with_null_names(self, frame: DataFrame) -> DataFrame:
        """Add the names that expressions know of an element, to check expressions."""
        from pyspark.sql import functions as F

        types = {self.name: self.type} if self.name else {f.name: f.dataType for f in self._struct.fields}
        return frame.withColumns({n: F.lit(None).cast(type_) for n, type_ in types.items()})

    def row_structs(self, columns: Mapping[str, str], *, where: str) -> list[Column]:
        """The columns that are the same in all rows of a message, and one array of the others.

        Args:
            columns: The table's columns to Spark SQL.
            where: Condition: the message becomes rows.
        """
        from pyspark.sql import functions as F

        of_element = {column: sql for column, sql in columns.items() if _OF_AN_ELEMENT.search(sql)}
        struct = ", ".join(f"{literal(column)}, {sql}" for column, sql in of_element.items())
        rows = f"CASE WHEN {where} THEN transform({_ITEMS}, ({_ELEMENT}, {_INDEX}) -> named_struct({struct})) END"
        of_message = [F.expr(sql).alias(column) for column, sql in columns.items() if column not in of_element]
        return [*of_message, F.expr(rows).alias(_ROWS)]

    def explode_rows(self, messages: DataFrame, columns: Mapping[str, str], *, beside: Sequence[str]) -> DataFrame:
        """One row for each element, from what ``row_structs`` gives; arguments as in ``shape.explode_rows``."""
        from pyspark.sql import functions as F

        of_message = [F.col(name(c)) for c, sql in columns.items() if not _OF_AN_ELEMENT.search(sql)]
        rows = messages.select(*of_message, *beside, F.inline(F.col(_ROWS)))
        return rows.select(*(F.col(name(column)) for column in (*columns, *beside)))

    @property
    def _struct(self) -> StructType:
        """The element's fields.

        Raises:
            TypeError: It has none.
        """
        from pyspark.sql.types import StructType

        if not isinstance(self.type, StructType):
            raise TypeError(f"{self.type.simpleString()} has no fields")
        return self.type

    @property
    def _names(self) -> dict[str, str]:
        """The names that expressions know of an element, and the Spark SQL of each."""
        return {self.name: _ELEMENT} if self.name else {f: f"{_ELEMENT}.{name(f)}" for f in self._struct.names}
