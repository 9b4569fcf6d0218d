"""The table's columns as a tree of names, which the rules change by path."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from kdi_assets.documents.model.stream import Stream
from kdi_assets.messages.formats.decoder import RECORD
from kdi_assets.messages.formats.rules import literal, name
from kdi_assets.streams.rules.records import mistake, value_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kdi_assets.streams.rules.elements import Elements

DATE = "date"
_IF_NULL = " whole"
"""Key in a struct's node: the old struct's Spark SQL. Where it is null, the new one is. No column has this name."""

_Node = dict[str, "str | _Node"]
"""Column name to Spark SQL over the working columns, or to the node of a struct."""


class ColumnTree:
    """The columns of a table, without ``date``.

    Args:
        record: The type of a message's record.
        elements: Into which a message is exploded; ``None``: it becomes one row.
    """

    def __init__(self, stream: Stream, record: StructType, elements: Elements | None) -> None:
        places = {f.name: f"{RECORD}.{name(f.name)}" for f in record.fields}
        self.stream, self.record, self.elements = stream, record, elements
        self.row, self._places = elements.row_of(record, places) if elements else (record, places)
        self._root: _Node = {f.name: self._places[f.name] for f in self.row.fields if f.name.lower() != DATE}

    def value(self, field: str) -> str:
        """Spark SQL of what the expression in a field of the document gives for a row."""
        return self.elements.of_row(value_of(field)) if self.elements else value_of(field)

    def put(self, path: str, sql: str, field: str, *, taken: str = "") -> None:
        """Add a column, or replace it.

        Args:
            path: Dots nest.
            field: The field of the document that demands it.
            taken: The error text if there is such a column already; empty: it is replaced.

        Raises:
            ShapeMistake: The path leads through something that is not a struct, or the column is taken.
        """
        node, last = self._parent(path, field)
        key = _key(node, last)
        if taken and key in node:
            raise mistake(self.stream, field, f"{path} is a column already; {taken}")
        node[key] = sql

    def change(self, path: str, field: str, change: Callable[[str], str] | None) -> None:
        """Change the Spark SQL of a column, or remove the column.

        Args:
            change: Old Spark SQL to new; ``None`` removes.

        Raises:
            ShapeMistake: There is no such column, or it is the last one of its struct.
        """
        node, last = self._parent(path, field, stays_null=True)
        key = _key(node, last)
        if key not in node:
            raise mistake(self.stream, field, "the table has no such column")
        if change is not None:
            node[key] = change(_sql(node[key]))
        elif len(node.keys() - {_IF_NULL}) == 1 and node is not self._root:
            raise mistake(self.stream, field, "it is the only one of its struct; drop the struct")
        else:
            del node[key]

    def has(self, path: str) -> bool:
        """Whether there is such a column, or one that it may lie in."""
        node: str | _Node = self._root
        for step in path.split("."):
            if isinstance(node, str):
                return True
            key = _key(node, step)
            if key not in node:
                return False
            node = node[key]
        return True

    def leave_out(self, steps: Sequence[str], field: str) -> None:
        """Remove a field, and the structs that have no other one."""
        node, last = self._parent(".".join(steps), field, stays_null=True)
        node.pop(_key(node, last), None)
        if node is not self._root and not node.keys() - {_IF_NULL}:
            self.leave_out(steps[:-1], field)

    def columns(self) -> dict[str, str]:
        """Column to Spark SQL over the working columns, in the table's order."""
        return {column: _sql(node) for column, node in self._root.items()}

    def _parent(self, path: str, field: str, *, stays_null: bool = False) -> tuple[_Node, str]:
        """The node that the last step of a path belongs to, and that step. Structs on the way become nodes."""
        from pyspark.sql.types import StructType

        *outer, last = path.split(".")
        node, here, inside = self._root, "", self.row
        for step in outer:
            known = next((f for f in inside.fields if f.name.lower() == step.lower()), None)
            key, spelled = _key(node, step), known.name if known else step
            here = f"{here}.{name(spelled)}" if here else self._places.get(spelled, spelled)
            inside = known.dataType if known and isinstance(known.dataType, StructType) else StructType()
            if isinstance(node.get(key), str):
                if not inside.fields:
                    raise mistake(self.stream, field, f"{step} is not a struct, so nothing can lie below it")
                if node[key] != here:
                    said = f"{step} is made by an expression, so nothing can be changed inside it"
                    raise mistake(self.stream, field, said)
                whole = {_IF_NULL: here} if stays_null else {}
                node[key] = {**whole, **{f.name: f"{here}.{name(f.name)}" for f in inside.fields}}
            node = cast(_Node, node.setdefault(key, {}))
        return node, last


def _key(node: Mapping[str, object], step: str) -> str:
    """The key of a step: column names of Spark and Delta ignore case."""
    return next((k for k in node if k.lower() == step.lower()), step)


def _sql(node: str | _Node) -> str:
    if isinstance(node, str):
        return node
    fields = ", ".join(f"{literal(k)}, {_sql(v)}" for k, v in node.items() if k != _IF_NULL)
    struct = f"named_struct({fields})"
    return f"CASE WHEN {node[_IF_NULL]} IS NOT NULL THEN {struct} END" if _IF_NULL in node else struct
