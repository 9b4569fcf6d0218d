"""The transforms of a command line as the fields ``columns``, ``date``, ``coordinates``, ``schema`` and ``mask``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kdi_assets.tools.predecessor.command import Given
from kdi_assets.tools.predecessor.errors import NotTranslated
from kdi_assets.tools.predecessor.jmespath_sql import Translator
from kdi_assets.tools.predecessor.jmespath_tree import KAFKA
from kdi_assets.tools.predecessor.message_fields import DATE_OF_ROW, DeltaType, MessageFields, ddl, sql_path, type_at
from kdi_assets.tools.predecessor.option_notes import OptionNote, note, undecided
from kdi_assets.tools.predecessor.sql_types import to_type

DATE = "date"
COORDINATES: Mapping[str, DeltaType] = {
    "topic": "string",
    "partition": "integer",
    "offset": "long",
    "timestamp": "timestamp",
}
WIDE: Mapping[str, DeltaType] = {"partition": "long", "timestamp": "long"}
"""Types that tables of kafka-delta-ingest may have instead: its timestamp is a number of microseconds."""
NUMBERED: Mapping[str, DeltaType] = {"index": "integer", "count": "integer"}
"""Further coordinates if a message may become several rows."""
OPTIONAL = "timestamp"
"""The coordinate that tables of kafka-delta-ingest may lack."""


@dataclass
class TranslatedColumns:
    """What the transforms become.

    Attributes:
        fields: The record of the messages.
        columns: Target to Spark SQL.
        sources: The transform of each target, as it was written.
        date: Spark SQL; empty if there is none.
        added: Columns that the table needs: path to type; the flag says whether it must have them.
    """

    fields: MessageFields
    columns: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    date: str = ""
    coordinates: str = "kafka"
    added: dict[str, tuple[DeltaType, bool]] = field(default_factory=dict)
    notes: list[OptionNote] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Transform:
    """``PROPERTY: SOURCE``."""

    given: Given
    target: str
    source: str

    @property
    def steps(self) -> tuple[str, ...]:
        return tuple(self.target.split("."))


def translate_transforms(
    given: Sequence[Given], table: DeltaType, *, explodes: bool, of_schema: bool
) -> TranslatedColumns:
    """Translate all transforms.

    Args:
        table: The table's columns.
        explodes: Whether a message may become several rows.
        of_schema: Whether the record is that of a schema; otherwise it is declared here.
    """
    notes: list[OptionNote] = []
    transforms = list(_parsed(given, table, notes))
    coordinates = _coordinates_column(transforms, table)
    made = [*(t.steps for t in transforms), *([tuple(coordinates.split("."))] if coordinates else [])]
    found = TranslatedColumns(MessageFields(table, made, of_schema=of_schema), notes=notes)
    found.coordinates = coordinates or _free_name(table)
    translated = [t for t in transforms if not (coordinates and t.target.startswith(f"{coordinates}."))]
    notes += [note(t.given, f"coordinates: {coordinates}") for t in transforms if t not in translated]
    for _ in range(2):  # the first pass finds the types that all of them need of the record's fields
        added = [_translated(t, Translator(found.fields), found) for t in translated]
    notes += added
    if (DATE,) not in [t.steps for t in transforms] and type_at(table, (DATE,)) is not None:
        found.date = DATE
    for path, sql in found.fields.conversions.items():
        found.columns.setdefault(".".join(path), sql)
    if found.fields.conversions.get((DATE,)):
        found.columns.pop(DATE, None)
    found.added = dict(_missing_coordinates(found.coordinates, table, explodes=explodes))
    return found


def _parsed(given: Sequence[Given], table: DeltaType, notes: list[OptionNote]) -> Iterator[Transform]:
    by_target: dict[str, Transform] = {}
    for one in given:
        target, colon, source = (part.strip() for part in one.value.partition(":"))
        if not colon or not target or not source:
            notes.append(undecided(one, "is not PROPERTY: SOURCE"))
        elif type_at(table, tuple(target.split("."))) is None:
            notes.append(note(one, f"left out: the table has no column {target}, so it wrote nothing"))
        else:
            by_target[target] = Transform(one, target, source)
    for transform in by_target.values():
        if outer := next((t for t in by_target if transform.target.startswith(f"{t}.")), None):
            said = f"writes into {outer}, which another transform makes, in no certain order"
            notes.append(undecided(transform.given, said))
        else:
            yield transform


def _translated(transform: Transform, translator: Translator, found: TranslatedColumns) -> OptionNote:
    """Translate one transform; returns what is to be said of it."""
    steps, fields = transform.steps, found.fields
    is_date = transform.target == DATE
    wanted = DATE_OF_ROW if is_date else type_at(fields.table, steps)
    try:
        sql = translator.source(transform.source, wanted)
        text = to_type(sql, wanted)
        if sql.may_be_null:
            # There, a null result leaves the target as the message has it.
            own = replace(sql, text=sql_path(steps), type=fields.read(steps, wanted))
            text = f"coalesce({text}, {to_type(own, wanted)})"
    except NotTranslated as reason:
        return undecided(transform.given, str(reason))
    if not all(ord(c) > 32 and c != "`" for c in transform.target):
        return undecided(transform.given, "the path of a column must not have blanks or backticks")
    if is_date:
        found.date = text
    else:
        found.columns[transform.target] = text
    found.sources[transform.target] = transform.given.value
    return note(transform.given, f"date: {text}" if is_date else f"columns.{transform.target}: {text}")


def _coordinates_column(transforms: Sequence[Transform], table: DeltaType) -> str:
    """The struct that transforms fill with coordinates, and that holds nothing else; empty if there is none."""
    for transform in transforms:
        parent, _, name = transform.target.rpartition(".")
        if transform.source != f"kafka.{name}" or transform.source not in KAFKA or not parent:
            continue
        columns = type_at(table, tuple(parent.split(".")))
        allowed = {**COORDINATES, **NUMBERED}
        others = [t for t in transforms if t.target.startswith(f"{parent}.") and t.source != f"kafka.{t.steps[-1]}"]
        if (
            columns
            and not others
            and all(f["type"] in (allowed.get(f["name"]), WIDE.get(f["name"])) for f in columns["fields"])
        ):
            return parent
    return ""


def _free_name(table: DeltaType) -> str:
    taken = {column["name"].lower() for column in table["fields"]}
    return next(name for name in ("kafka", "coordinates", "kafka_coordinates") if name not in taken)


def _missing_coordinates(
    path: str, table: DeltaType, *, explodes: bool
) -> Iterator[tuple[str, tuple[DeltaType, bool]]]:
    needed = {**COORDINATES, **(NUMBERED if explodes else {})}
    steps = tuple(path.split("."))
    if type_at(table, steps) is None:
        fields = [{"name": name, "type": type_, "nullable": True} for name, type_ in needed.items()]
        yield path, ({"type": "struct", "fields": fields}, True)
        return
    for name, type_ in needed.items():
        if type_at(table, (*steps, name)) is None:
            yield f"{path}.{name}", (type_, name != OPTIONAL)


def alter_table(uri: str, added: Mapping[str, DeltaType]) -> str:
    """The statement that adds columns to a table."""
    columns = ", ".join(f"{sql_path(tuple(path.split('.')))} {ddl(type_)}" for path, type_ in added.items())
    return f"ALTER TABLE delta.`{uri}` ADD COLUMNS ({columns})"
