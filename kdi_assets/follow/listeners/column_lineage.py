"""Which fields of the message each column of the table comes from. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.field_uses import FieldUses


@dataclass(frozen=True, slots=True)
class InputFields:
    """Where a column comes from.

    Attributes:
        fields: Fields of the message, with dots where the document names nested ones.
        expression: The document's Spark SQL; empty for a field that is taken over as it is.
        masked: Whether the document masks the column or a part of it.
    """

    fields: tuple[str, ...]
    expression: str = ""
    masked: bool = False


def column_lineage(
    stream: Stream, columns: Mapping[str, Collection[str]], *, referenced: Callable[[str], Collection[str]]
) -> Mapping[str, InputFields]:
    """The origin of each column, where it can be derived; columns without one are missing.

    Args:
        columns: The table's top-level columns, each with its tags and those of what it holds.
        referenced: The names that an expression refers to, with dots.
    """
    written = _expressions(stream)
    exploded = {stream.explode.name: referenced(stream.explode.sql)} if stream.explode else {}
    derived = {*written, *exploded, stream.coordinates, stream.rescued_column}
    masked = {path.split(".")[0] for path in stream.mask}
    masked |= {column for column, tags in columns.items() if not stream.mask_tagged.keys().isdisjoint(tags)}
    uses = FieldUses.of(stream)

    def origins() -> Iterator[tuple[str, InputFields]]:
        for column in columns:
            if column in written:
                names = {name for sql in written[column] for name in referenced(sql)}
                fields = tuple(sorted(_fields(names, exploded, stream)))
                yield column, InputFields(fields, "; ".join(written[column]), column in masked)
            elif column in exploded and stream.explode:
                yield column, InputFields(tuple(sorted(exploded[column])), stream.explode.sql, column in masked)
            elif column not in derived:
                yield column, InputFields(uses.message_steps((column,)), masked=column in masked)

    return {column: origin for column, origin in origins() if origin.fields}


def _expressions(stream: Stream) -> dict[str, list[str]]:
    """The document's expressions by top-level column."""
    by_column: dict[str, list[str]] = {}
    for path, sql in stream.columns.items():
        by_column.setdefault(path.split(".")[0], []).append(sql)
    return {**by_column, "date": [stream.date_expression]}


def _fields(names: Collection[str], exploded: Mapping[str, Collection[str]], stream: Stream) -> Iterator[str]:
    """Names as fields of the message: the element of an array comes from the array, and the source's struct is none."""
    for name in names:
        first = name.split(".")[0]
        if first in exploded:
            yield from exploded[first]
        elif first != stream.source_struct.name:
            yield name
