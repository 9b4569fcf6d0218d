"""Where a writer's rows and dead letters are: what its command ``table`` prints, and how they are read."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, model_validator

from kdi_assets.tools.conformance.yaml_file import FileModel


class FoundRows(FileModel):
    """The table of rows. Paths of columns have dots for fields of structs.

    Attributes:
        columns: Where a field of the message is, if its column has another name.
        rest: A text column with the JSON of fields that have no column; empty for none.
        date: The column with the row's UTC date; empty if there is none.
    """

    uri: str
    partition: str
    offset: str
    columns: Mapping[str, str] = Field(default_factory=dict)
    rest: str = ""
    date: str = ""


class LetterValue(FileModel):
    """A column with the message's value; of several columns, the first that is not null counts."""

    column: str
    encoding: Literal["bytes", "text", "base64"] = "bytes"


class Letters(FileModel):
    """The table of dead letters.

    Attributes:
        partition, offset: Empty if the writer does not keep them; a letter is then found by its value.
        only: Column to values: only letters with one of the values count. For writers that append letters which a
            later step makes valid.
    """

    uri: str
    partition: str = ""
    offset: str = ""
    value: tuple[LetterValue, ...] = Field(min_length=1)
    only: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _both_or_none(self) -> Letters:
        if bool(self.partition) != bool(self.offset):
            raise ValueError("give both partition and offset, or none of them")
        return self


class Layout(FileModel):
    """What ``table`` prints, as one JSON object."""

    rows: FoundRows
    dead_letters: Letters | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A row or a dead letter.

    Attributes:
        place: Topic partition and offset; none for a letter without them.
        row: The row; none if it is a dead letter.
        value: A letter's value.
    """

    place: tuple[int, int] | None
    row: Mapping[str, Any] | None = None
    value: bytes | None = None


def read_tables(layout: Layout) -> list[Found]:
    """Every row and every dead letter that counts, by delta-rs; a table that does not exist has none."""
    rows, letters = layout.rows, layout.dead_letters
    found = [Found((_at(row, rows.partition), _at(row, rows.offset)), row) for row in _content(rows.uri)]
    return found + ([*_letters(letters)] if letters else [])


def _letters(letters: Letters) -> Iterator[Found]:
    for letter in _content(letters.uri):
        if all(str(_at(letter, column)) in values for column, values in letters.only.items()):
            place = (_at(letter, letters.partition), _at(letter, letters.offset)) if letters.offset else None
            yield Found(place, None, _value(letter, letters.value))


def _value(letter: Mapping[str, Any], columns: Sequence[LetterValue]) -> bytes | None:
    for each in columns:
        match _at(letter, each.column), each.encoding:
            case bytes(value), "bytes":
                return value
            case str(text), "text":
                return text.encode()
            case str(text), "base64":
                return b64decode(text)
    return None


def table_version(uri: str) -> int | None:
    """The newest version of the table; none if there is no table."""
    from deltalake import DeltaTable

    return DeltaTable(uri).version() if DeltaTable.is_deltatable(uri) else None


def value_at(row: Mapping[str, Any], path: str) -> Any:
    """The value at a path with dots; none if the row has no such column."""
    value: Any = row
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _at(row: Mapping[str, Any], path: str) -> Any:
    value: Any = row
    for part in path.split("."):
        value = value[part] if value is not None else None
    return value


def _content(uri: str) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(uri):
        return []
    content: list[dict[str, Any]] = DeltaTable(uri).to_pyarrow_table().to_pylist()
    return content
