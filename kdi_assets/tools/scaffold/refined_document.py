"""The document of the refined table that has a source's rows as they are now, made of the table of its changes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from kdi_assets.documents.loading.loader import REFINED_TABLE
from kdi_assets.documents.model.refined_modes import Upsert
from kdi_assets.follow.refine.columns import made_columns
from kdi_assets.tools.scaffold.changes import Changes
from kdi_assets.tools.scaffold.infer_types import ddl_name


def refined_document(changes: Changes, *, bronze: str, silver: str) -> Iterator[str]:
    """The lines of the document.

    Args:
        bronze: Path of the table of changes.
        silver: Path of the refined table.
    """
    yield "# The rows of the source as they are now, by the keys of its messages."
    yield "# With `scd_type: 2` beside the keys it has what each row was as well."
    yield f"type: {REFINED_TABLE}"
    yield "attributes:"
    yield f"  table: {json.dumps(silver)}"
    renamed = _renamed(changes)
    if changes.read or renamed:
        yield f"  from: {{table: {json.dumps(bronze)}, as: changes}}"
        if changes.read:
            yield "  # What Connect sends in another form becomes what it is in the source."
        for name, other in renamed.items():
            yield f"  # The table has a column {name} of its own: that of the source is {other}."
        yield "  sql: |"
        yield from (f"    {line}" for line in _sql(changes, renamed))
    else:
        yield f"  from: {json.dumps(bronze)}"
    yield "  mode:"
    yield "    upsert:"
    yield f"      keys: {json.dumps(list(changes.keys), ensure_ascii=False)}"
    yield "      envelope: debezium"
    yield f"      sequence_by: {json.dumps(changes.sequence_by)}"
    yield "  partition_by: null"


def _renamed(changes: Changes) -> dict[str, str]:
    """The source's columns that are called like those that the table makes, and their names in the table."""
    mode = Upsert(tuple(changes.keys), changes.sequence_by, envelope="debezium")
    rest = [name for name in changes.row.fields if name not in changes.keys]
    return {name: f"source_{name}" for name in rest if name.lower() in made_columns(mode)}


def _sql(changes: Changes, renamed: Mapping[str, str]) -> Iterator[str]:
    envelope = changes.envelope
    yield f"SELECT {envelope}op, {envelope}source, message_key, kafka,"
    for side, columns in (("before", changes.keys), ("after", list(changes.row.fields))):
        yield "  named_struct("
        for number, name in enumerate(columns):
            value = changes.read.get(name, "{0}").format(f"{envelope}{side}.{ddl_name(name)}")
            quoted = renamed.get(name, name).replace("\\", "\\\\").replace("'", "\\'")
            yield f"    '{quoted}', {value}{',' if number < len(columns) - 1 else ''}"
        yield f"  ) AS {side}{',' if side == 'before' else ''}"
    yield "FROM changes"
