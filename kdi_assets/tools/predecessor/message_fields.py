"""The record of the messages: the table's columns that no transform makes, and the fields that transforms read.

Types are those of the Delta log's schema JSON: ``"long"``, ``{"type": "struct", "fields": […]}``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from kdi_assets.delta.column_types import SPARK_NAMES
from kdi_assets.messages.formats.field_uses import RESERVED
from kdi_assets.tools.predecessor.errors import NotTranslated
from kdi_assets.tools.scaffold.infer_types import ddl_name

DeltaType = Any
"""A type as Delta's schema JSON has it: a name, or an object."""
Path = tuple[str | int, ...]
"""Names of fields, and numbers of elements of arrays."""

TEXT, NUMBER, NUMBER_OR_TEXT, DATE_OF_ROW = "text", "number", "number or text", "date of the row"
"""What an expression needs of a field whose exact type does not matter to it; the last is for the field ``date``."""
_DECLARED = {TEXT: "string", NUMBER: "double", NUMBER_OR_TEXT: "string", DATE_OF_ROW: "string"}
NUMBERS = ("byte", "short", "integer", "long", "float", "double")
INTEGERS = NUMBERS[:4]


def struct(fields: Collection[tuple[str, DeltaType]] = ()) -> dict[str, Any]:
    """The type of a struct."""
    return {"type": "struct", "fields": [{"name": name, "type": type_, "nullable": True} for name, type_ in fields]}


def is_number(type_: DeltaType) -> bool:
    return isinstance(type_, str) and (type_ in NUMBERS or type_.startswith("decimal"))


def type_at(columns: DeltaType, path: Path) -> DeltaType | None:
    """The type of a field at any depth; ``None`` if the columns do not have it."""
    at = columns
    for step in path:
        if isinstance(step, int):
            at = at["elementType"] if isinstance(at, dict) and at["type"] == "array" else None
        else:
            field = _field(at, step)
            at = field["type"] if field else None
        if at is None:
            return None
    return at


def sql_path(path: Path) -> str:
    """Spark SQL of a field; the element of an array that is too short is null."""
    sql = ""
    for step in path:
        if isinstance(step, int):
            sql = f"get({sql}, {step})" if step >= 0 else f"try_element_at({sql}, {step})"
        else:
            sql = f"{sql}.{ddl_name(step)}" if sql else ddl_name(step)
    return sql


def ddl_lines(columns: DeltaType) -> Iterator[str]:
    """The columns as Spark's DDL, one on each line."""
    last = len(columns["fields"]) - 1
    for n, field in enumerate(columns["fields"]):
        yield f"{_ddl_field(field, ' ')}{'' if n == last else ','}"


def ddl(type_: DeltaType) -> str:
    """A type as Spark's DDL."""
    if isinstance(type_, str):
        return SPARK_NAMES.get(type_, type_)
    match type_["type"]:
        case "struct":
            return f"struct<{', '.join(_ddl_field(field, ': ') for field in type_['fields'])}>"
        case "array":
            return f"array<{ddl(type_['elementType'])}>"
    return f"map<{ddl(type_['keyType'])}, {ddl(type_['valueType'])}>"


def _ddl_field(field: Mapping[str, Any], separator: str) -> str:
    return (
        f"{ddl_name(field['name'])}{separator}{ddl(field['type'])}{'' if field.get('nullable', True) else ' NOT NULL'}"
    )


class MessageFields:
    """The fields of a message, as transforms read them.

    Args:
        table: The table's columns.
        made: The paths that transforms write; a message need not have them.
        of_schema: Whether the record is that of a schema. Its types are then unknown; the table's are assumed.

    Attributes:
        record: The type of the record.
        conversions: For columns whose field is declared with the message's type and not with the table's: Spark SQL
            that makes the table's of it, by path.
    """

    def __init__(self, table: DeltaType, made: Collection[Sequence[str]], *, of_schema: bool = False) -> None:
        self.table = table
        self._of_schema = of_schema
        self.record: DeltaType = deepcopy(dict(table))
        self.conversions: dict[tuple[str, ...], str] = {}
        for path in made:
            _remove(self.record, list(path))

    def read(self, path: Path, wanted: DeltaType) -> DeltaType:
        """The type with which the record declares a field that an expression reads; declares it if necessary.

        Args:
            wanted: One of ``TEXT`` to ``DATE_OF_ROW``, or the exact type for a field that is not declared.
        """
        declared = type_at(self.record, path)
        if declared is None:
            declared = self._declare(path, wanted)
        elif self._of_schema:
            return declared
        elif wanted == TEXT and declared not in ("string", "binary") and isinstance(declared, str):
            declared = self._redeclare(path, declared, "string")
        elif wanted == NUMBER and declared in ("timestamp", "timestamp_ntz", "date"):
            declared = self._redeclare(path, declared, "long")
        return declared

    @property
    def left_out(self) -> list[str]:
        """The fields of the record that the table does not have, each without those below it."""
        return list(_not_in(self.record, self.table, ()))

    @property
    def reserved(self) -> list[str]:
        """Names of fields that no record of ours may have."""
        return [field["name"] for field in self.record["fields"] if field["name"].lower() in RESERVED]

    def _declare(self, path: Path, wanted: DeltaType) -> DeltaType:
        declared: DeltaType = _DECLARED.get(_hashable(wanted), wanted)
        at = self.record
        if any(isinstance(step, int) and type_at(self.table, path[:n]) for n, step in enumerate(path)):
            raise NotTranslated(f"the array that it reads has no {path[-1]} in the table; convert it by hand")
        for n, step in enumerate(path[:-1]):
            inner = {"type": "array", "elementType": None} if isinstance(path[n + 1], int) else struct()
            at = _step(at, step, inner)
            if not isinstance(at, dict) or at["type"] != inner["type"]:
                raise NotTranslated(f"{sql_path(path[: n + 1])} is {ddl(at)} elsewhere; convert it by hand")
        _step(at, path[-1], declared)
        return declared

    def _redeclare(self, path: Path, declared: DeltaType, message: str) -> DeltaType:
        """Declare a field with the message's type; the table's column is made of it."""
        names = tuple(step for step in path if isinstance(step, str))
        if len(names) < len(path):
            return declared  # inside of an array there is no column to convert
        parent = self.record
        for name in names[:-1]:
            parent = type_at(parent, (name,))
        field = _field(parent, names[-1])
        if field is None:
            raise AssertionError(f"{path} is not in the record")
        field["type"], field["nullable"] = message, True
        micros = message == "long" and declared != "date"
        self.conversions[names] = f"{'timestamp_micros' if micros else 'CAST'}({sql_path(names)}" + (
            ")" if micros else f" AS {ddl(declared)})"
        )
        return message


def _hashable(wanted: DeltaType) -> str:
    return wanted if isinstance(wanted, str) else ""


def _field(at: DeltaType, name: str) -> dict[str, Any] | None:
    if not isinstance(at, dict) or at["type"] != "struct":
        return None
    return next((field for field in at["fields"] if field["name"] == name), None)


def _step(at: DeltaType, step: str | int, inner: DeltaType) -> DeltaType:
    """The type one step further; ``inner`` if nothing is there yet."""
    if isinstance(step, int):
        at["elementType"] = at["elementType"] or inner
        return at["elementType"]
    field = _field(at, step)
    if field is None:
        field = {"name": step, "type": inner, "nullable": True}
        at["fields"].append(field)
    return field["type"]


def _remove(at: DeltaType, path: list[str]) -> None:
    """Remove a field, and structs that have no other one."""
    field = _field(at, path[0])
    if field is None:
        return
    if len(path) > 1:
        _remove(field["type"], path[1:])
    if len(path) == 1 or (isinstance(field["type"], dict) and field["type"].get("fields") == []):
        at["fields"].remove(field)


def _not_in(record: DeltaType, table: DeltaType, path: tuple[str, ...]) -> Iterator[str]:
    for field in record["fields"]:
        here, there = (*path, field["name"]), _field(table, field["name"])
        if there is None:
            yield ".".join(here)
        elif isinstance(field["type"], dict) and field["type"]["type"] == "struct" and isinstance(there["type"], dict):
            yield from _not_in(field["type"], there["type"], here)
