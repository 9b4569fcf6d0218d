"""Texts of Avro schemas that Spark can read: without what cannot be a column, and with names that Avro's parser takes.

Avro's resolution skips a writer's field that the reader's schema lacks, so a schema that lacks a field reads every
message that the whole schema reads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from kdi_assets.documents.model.message_rules import path_of
from kdi_assets.messages.formats.avro.schema_text import NAMED, PRIMITIVE, WITHIN, definitions, with_full_names
from kdi_assets.messages.formats.field_uses import FieldUses, Steps, below

MOST_DIGITS = 38
"""Of a decimal column."""
_LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parsable(text: str) -> str:
    """The schema with legal namespaces: registries accept a dash in them, and Avro's parser does not.

    A text without such names stays as it is.
    """
    try:
        schema = with_full_names(text)
        named = [name for name, _ in definitions(schema)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return text  # the parser says what is wrong
    if all(_LEGAL.fullmatch(step) for name in named for step in name.split(".")):
        return text
    return json.dumps(_with_legal_names(schema), ensure_ascii=False)


def _with_legal_names(node: Any) -> Any:
    """A schema with full names, in which every step of a namespace is legal."""
    if isinstance(node, str):
        return node if node in PRIMITIVE else _legal(node)
    if isinstance(node, list):
        return [_with_legal_names(branch) for branch in node]
    kind = node["type"]
    if kind in WITHIN:
        return {**node, WITHIN[kind]: _with_legal_names(node[WITHIN[kind]])}
    if kind not in NAMED:
        return node
    legal = {**node, "namespace": _legal(node["namespace"])}
    if "fields" in node:
        legal["fields"] = [{**field, "type": _with_legal_names(field["type"])} for field in node["fields"]]
    return legal


def _legal(name: str) -> str:
    steps = (re.sub(r"\W", "_", step, flags=re.ASCII) for step in name.split("."))
    return ".".join(step if _LEGAL.fullmatch(step) else f"_{step}" for step in steps if step)


def readable(text: str, uses: FieldUses) -> str:
    """The schema without the fields that cannot be columns, and the first level with the columns' names.

    Problems are added to ``uses``. A text without problems and renamed fields stays as it is.
    """
    try:
        schema = with_full_names(text)
        known = dict(definitions(schema))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return text  # the parser says what is wrong
    writer = _SchemaWriter(known, uses)
    found = writer.of(schema, (), ())
    return json.dumps(found, ensure_ascii=False) if writer.changes and found is not None else text


class _SchemaWriter:
    """Writes the schema again, each record at each of its places: one place may lack what another has."""

    def __init__(self, known: Mapping[str, Any], uses: FieldUses) -> None:
        self._known, self._uses = known, uses
        self._defined: set[str] = set()
        self.changes = False

    def of(self, node: Any, steps: Steps, above: tuple[str, ...]) -> Any:
        """A type as Spark can read it; ``None``, with a problem, if there is none.

        Args:
            above: The full names of the records around it.
        """
        if isinstance(node, str):
            if node in PRIMITIVE or node not in self._known:
                return node
            node = self._known[node]
        if isinstance(node, list):
            branches = [self.of(branch, steps, above) for branch in node]
            return None if None in branches else branches
        kind = node["type"]
        if node.get("logicalType") == "decimal" and int(node.get("precision", 0)) > MOST_DIGITS:
            said = f"decimal({node['precision']},{node.get('scale', 0)})"
            return self._refused(steps, f"is {said}, and a column has at most {MOST_DIGITS} digits")
        if kind in WITHIN:
            inner = self.of(node[WITHIN[kind]], below(steps), above)
            return None if inner is None else {**node, WITHIN[kind]: inner}
        if kind not in NAMED:
            return node
        full = f"{node.get('namespace', '')}.{node['name']}".lstrip(".")
        if "fields" in node:
            return self._record(node, full, steps, above)
        if full in self._defined:
            return full
        self._defined.add(full)
        return node

    def _record(self, node: Any, full: str, steps: Steps, above: tuple[str, ...]) -> Any:
        if full in above:
            return self._refused(steps, f"contains itself ({full}), and a table has a fixed depth")
        place = full
        namespace = node.get("namespace", "")
        while place in self._defined:
            namespace = f"kdi{len(self._defined)}"
            place = f"{namespace}.{node['name']}"
        self._defined.add(place)
        columns = self._uses.columns_of([field["name"] for field in node["fields"]], steps)
        if steps:  # names inside are changed after reading, by place
            columns = {name: name for name in columns}
            self._refuse_one_spelling(list(columns), steps)
        fields = []
        for field in node["fields"]:
            name, here = field["name"], (*steps, field["name"])
            if name not in columns:
                self.changes = True
                continue
            if field["type"] in ("null", ["null"]):
                self._refused(here, "can only be null")
                continue
            inner = self.of(field["type"], here, (*above, full))
            if inner is None:
                continue
            written = {**field, "type": inner}
            if columns[name] != name:
                self.changes = True
                written |= {"name": columns[name], "aliases": [name]}
            fields.append(written)
        if not fields and steps:
            return self._refused(steps, "has no fields that a column could have")
        return {**node, "namespace": namespace, "fields": fields}

    def _refuse_one_spelling(self, names: list[str], steps: Steps) -> None:
        """Spark finds fields inside a record whatever their case, so one of two spellings cannot be read."""
        for number, name in enumerate(names):
            if name.lower() in (other.lower() for other in names[:number]):
                said = f"differs from another field of {path_of(steps)} in case alone, and columns do not"
                self._refused((*steps, name), said)

    def _refused(self, steps: Steps, reason: str) -> None:
        self.changes = True
        self._uses.refuse(steps, reason)
