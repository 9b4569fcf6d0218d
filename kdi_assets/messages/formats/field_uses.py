"""What becomes of the fields of messages that cannot be columns as they are, or that nobody needs.

Each format asks while it reads its own schema; the fields that remain are the record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from kdi_assets.documents.model.message_rules import FieldUse, path_of, steps_of
from kdi_assets.documents.model.source_struct import KAFKA, SourceStruct
from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.comments import TAGS, UNKNOWN_TAG, described, tagged_paths

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

Steps = tuple[str, ...]
"""The names on the way to a field; ``[]`` at the end of one: its elements or values."""
FORBIDDEN = frozenset(" ,;{}()\n\t=.'\"`[]\\")
"""Characters that no name of a column has, for Delta, for expressions, or for the paths of fields."""
OF_CHANGE_FEED = ("_change_type", "_commit_version", "_commit_timestamp")
RESERVED = (KAFKA.name, *OF_CHANGE_FEED)
"""Names that no field of the first level of a message of Kafka has; others begin with ``_kdi_``."""
_TEXT = "kdi.text"
"""Metadata of a string field of a record: the message has any JSON value, and the column its text."""
WHY = "kdi.why"
"""Metadata of a field of type void: why no column can hold it."""
ELEMENTS = "[]"
DROPPED: Literal["drop"] = "drop"
TEXT: Literal["text"] = "text"
_LEFT_OUT = "_kdi_left_out_"


@dataclass
class FieldUses:
    """The uses that a document gives its fields, and the problems that a schema's reader found in others.

    Attributes:
        struct: Of the messages; no field of the first level has its name.
        problems: Path of a field to why it cannot be a column; it is not in the record.
        badly_named: Those of the first level for which another name helps.
        found: The paths of ``uses`` that the schema has.
        holds_variants: Whether a column can be a variant: the messages are JSON.
        needs_tags: Whether columns are masked by their tags, so that the tags of each must be known.
    """

    uses: Mapping[Steps, FieldUse] = field(default_factory=dict)
    struct: SourceStruct = KAFKA
    problems: dict[str, str] = field(default_factory=dict)
    badly_named: set[str] = field(default_factory=set)
    found: set[Steps] = field(default_factory=set)
    holds_variants: bool = False
    needs_tags: bool = False

    @classmethod
    def of(cls, stream: Stream) -> FieldUses:
        """Of the field ``fields`` of a document."""
        uses = {steps_of(path): use for path, use in stream.fields.items()}
        return cls(uses, stream.source_struct, needs_tags=bool(stream.mask_tagged))

    def columns_of(self, names: list[str], above: Steps) -> dict[str, str]:
        """Name of a field to its column's, for the fields of one struct that can have one; problems are added.

        Args:
            above: The steps to the struct.
        """
        columns: dict[str, str] = {}
        taken: dict[str, str] = {}
        for dropped in (False, True):  # a dropped field takes no other one's name
            for name in names:
                use = self.use((*above, name))
                if (use is not None and use.how == DROPPED) is not dropped:
                    continue
                column = use.name if use and use.how == "rename" else name
                if reason := _wrong_name(column, taken, top="" if above else self.struct.name):
                    self.refuse((*above, name), reason)
                    if not above:
                        self.badly_named.add(path_of([name]))
                else:
                    columns[name] = column
                    taken[column.lower()] = column
        return {name: columns[name] for name in names if name in columns}

    def after_first_level(self, inside: str = "") -> FieldUses:
        """The uses for a record whose first level has the columns' names already.

        Args:
            inside: The step to that level.
        """
        after = {}
        first = (inside,) if inside else ()
        for (top, *others), use in self.uses.items():
            above = self.uses.get((top,))
            column = above.name if above and above.how == "rename" else top
            if others or use.how != "rename":
                after[(*first, column, *others)] = use
        return FieldUses(after, self.struct)

    def column_steps(self, steps: Steps) -> Steps:
        """The steps to the column of a field, by the names of columns."""
        names = (self.uses.get(steps[: n + 1]) for n in range(len(steps)))
        return tuple(use.name if use and use.how == "rename" else step for step, use in zip(steps, names, strict=True))

    def message_steps(self, steps: Steps) -> Steps:
        """The steps to the field of a column, by the names of messages; case does not matter in those of columns."""
        found: Steps = ()
        for step in steps:
            renamed = (
                of[-1]
                for of, use in self.uses.items()
                if use.how == "rename" and of[:-1] == found and use.name.lower() == step.lower()
            )
            found = (*found, next(renamed, step))
        return found

    def use(self, steps: Steps) -> FieldUse | None:
        """What the document says of a field."""
        use = self.uses.get(steps)
        if use is not None:
            self.found.add(steps)
        return use

    def is_text(self, steps: Steps) -> bool:
        """Whether the field becomes text."""
        use = self.use(steps)
        return use is not None and use.how == TEXT

    def refuse(self, steps: Steps, reason: str) -> None:
        """Add a problem, if the document does not drop the field or what it belongs to."""
        if not self.drops(steps):
            self.problems[path_of(steps)] = reason

    def drops(self, steps: Steps) -> bool:
        """Whether the document drops the field or what it belongs to."""
        ways = [steps[:n] for n in range(1, len(steps) + 1)]
        ways += [(*way[:-1], way[-1].rstrip(ELEMENTS)) for way in ways]
        return any((use := self.use(way)) is not None and use.how == DROPPED for way in ways)


def _wrong_name(column: str, taken: Mapping[str, str], *, top: str) -> str:
    """Why a field cannot have a column's name; ``top`` is the struct's name at the first level."""
    lowered = column.lower()
    if lowered in taken:
        other = taken[lowered]
        return "is declared twice" if other == column else f"differs from {other} in case alone, and columns do not"
    if not column or set(column) & FORBIDDEN or not column.isprintable():
        return "has a character that a column's name cannot have (a control character or one of ' ,;{}()=.\"`[]\\')"
    if top and lowered == top:
        return f"would hide the struct that expressions know as {top}"
    if top and lowered in OF_CHANGE_FEED:
        return "has a name that Delta's change data feed needs"
    if top and lowered.startswith("_kdi_"):
        return "has a name that begins with _kdi_, as working columns do"
    return ""


def proposed(uses: FieldUses) -> dict[str, FieldUse]:
    """The uses that solve the problems found: a new name where the name is the problem, else no column."""
    return {
        named: FieldUse("rename", f"source_{named.lstrip('_')}") if named in uses.badly_named else FieldUse(DROPPED)
        for named in (path.split(ELEMENTS)[0] for path in uses.problems)
    }


def below(steps: Steps) -> Steps:
    """The steps to the elements or values of an array or map."""
    return (*steps[:-1], f"{steps[-1]}{ELEMENTS}") if steps else (ELEMENTS,)


def read_struct(record: StructType, uses: FieldUses) -> StructType:
    """The fields of a declared record that can be columns, by the names that messages have.

    Problems of the others are added to ``uses``.
    """
    return _read_struct(record, (), uses)


def _read_struct(struct: StructType, above: Steps, uses: FieldUses) -> StructType:
    from pyspark.sql.types import StructField, StructType

    kept = []
    columns = uses.columns_of(struct.names, above)
    for f in struct.fields:
        here = (*above, f.name)
        if f.name not in columns:
            continue
        if uses.is_text(here):
            tags = _all_tags(f)
            if UNKNOWN_TAG in tags and uses.needs_tags:
                uses.refuse(
                    here, f"has tags that mask_tagged cannot know: {f.metadata.get(WHY, 'a schema is missing')}"
                )
            else:
                kept.append(_as_text(f, tags))
        elif WHY in f.metadata:
            uses.refuse(here, f"cannot be a column: {f.metadata[WHY]}")
        elif type_ := _read_type(f.dataType, here, uses):
            kept.append(StructField(f.name, type_, f.nullable, f.metadata))
    return StructType(kept)


def _all_tags(f: StructField) -> frozenset[str]:
    """The tags of a field and of all fields inside of it."""
    from pyspark.sql.types import StructType

    return frozenset().union(*tagged_paths(StructType([f])).values())


def _as_text(f: StructField, tags: frozenset[str]) -> StructField:
    """The field as text. It has all tags, because it holds all values."""
    from pyspark.sql.types import StringType, StructField

    others = {key: value for key, value in f.metadata.items() if key != TAGS}
    metadata = described({**others, _TEXT: True}, "", tags - {UNKNOWN_TAG})
    return StructField(f.name, StringType(), f.nullable, metadata)


def _read_type(declared: DataType, steps: Steps, uses: FieldUses) -> DataType | None:
    """The type without what cannot be a column; ``None``, with a problem, if nothing is left."""
    from pyspark.sql import types as t

    match declared:
        case t.StructType():
            inner = _read_struct(declared, steps, uses)
            if not inner.fields:
                uses.refuse(steps, "has no fields that a column could have")
                return None
            return inner
        case t.ArrayType():
            element = _read_type(declared.elementType, below(steps), uses)
            return element and t.ArrayType(element, declared.containsNull)
        case t.MapType():
            value = _read_type(declared.valueType, below(steps), uses)
            key = declared.keyType if value else None
            return t.MapType(key, value, declared.valueContainsNull) if key and value else None
        case t.CharType() | t.VarcharType():
            uses.refuse(steps, f"is {declared.simpleString()}; declare it string")
            return None
        case t.VariantType() if uses.holds_variants:
            return declared
        case t.VariantType() | t.NullType() | t.YearMonthIntervalType() | t.DayTimeIntervalType():
            uses.refuse(steps, f"is {declared.simpleString()}, which is not supported")
            return None
    return declared


def named_as_columns(source: StructType, kept: Collection[str], uses: FieldUses) -> StructType:
    """The record of messages with the columns' names, and with times of day as text.

    Args:
        source: By the names of messages.
        kept: Its fields that are columns; the others get names that no column has.
    """
    from pyspark.sql.types import StructField, StructType

    names = {steps: use.name for steps, use in uses.uses.items() if use.how == "rename"}
    named = _named(source, (), lambda above, name: (names.get((*above, name), name), name))
    fields = [
        new if old.name in kept else StructField(f"{_LEFT_OUT}{n}", new.dataType, new.nullable)
        for n, (old, new) in enumerate(zip(source.fields, named.fields, strict=True))
    ]
    return StructType(fields)


def columns_alone(named: StructType) -> StructType:
    """The result of ``named_as_columns`` without the fields that are not columns."""
    from pyspark.sql.types import StructType

    return StructType([f for f in named.fields if not f.name.startswith(_LEFT_OUT)])


def named_as_messages(record: StructType, uses: Mapping[Steps, FieldUse]) -> StructType:
    """The other way: a record with the names of messages for those of columns."""
    old = {(*steps[:-1], use.name): steps[-1] for steps, use in uses.items() if use.how == "rename"}
    return _named(record, (), lambda above, name: (old.get((*above, name), name),) * 2)


_Name = Callable[[Steps, str], tuple[str, str]]
"""Steps above a field and its name, to its new name and to its name in messages."""


def _named(struct: StructType, above: Steps, name: _Name) -> StructType:
    from pyspark.sql import types as t

    def inner(type_: DataType, steps: Steps) -> DataType:
        match type_:
            case t.StructType():
                return _named(type_, steps, name)
            case t.ArrayType():
                return t.ArrayType(inner(type_.elementType, below(steps)), type_.containsNull)
            case t.MapType():
                return t.MapType(type_.keyType, inner(type_.valueType, below(steps)), type_.valueContainsNull)
            case t.TimeType():
                return t.StringType()
        return type_

    def field_of(f: StructField) -> StructField:
        new, of_message = name(above, f.name)
        metadata = {key: value for key, value in f.metadata.items() if key != _TEXT}
        return t.StructField(new, inner(f.dataType, (*above, of_message)), f.nullable, metadata)

    return t.StructType([field_of(f) for f in struct.fields])
