"""Envelopes of changes, such as Debezium's: translated into SQL and conditions, so that refining knows none of them."""

from __future__ import annotations

from dataclasses import replace

from kdi_assets.stream.refined_table import RefinedTableSpec, Upsert

_SEQUENCE, _DELETES = "_kdi_envelope_sequence", "_kdi_envelope_deletes"


def without_envelope(table: RefinedTableSpec) -> RefinedTableSpec:
    """The same table with ``sql`` and ``apply_as_deletes`` in the place of the envelope; itself if it has none.

    Source: Debezium, "Change event values": ``after`` is null of a delete, ``before`` may have the keys alone.
    """
    mode = table.mode
    if not isinstance(mode, Upsert) or mode.envelope is None:
        return table
    (upstream,) = table.upstreams
    changes = f"(\n{table.sql}\n)" if table.sql else upstream.view
    # `sequence_by` may name columns of the envelope, such as source.lsn: it is evaluated where these still exist.
    sequence = f"({mode.sequence_by}) AS {_SEQUENCE}"
    if mode.envelope == "debezium":
        # A change without both, such as a truncation, has null keys: refining refuses it.
        row = f"SELECT coalesce(after, before) AS _kdi_row, {sequence}, op = 'd' AS {_DELETES} FROM {changes}"  # noqa: S608
        sql = f"SELECT _kdi_row.*, {_SEQUENCE}, {_DELETES} FROM ({row})"  # noqa: S608
    else:
        sql = f"SELECT * EXCEPT (tombstone), {sequence}, tombstone AS {_DELETES} FROM {changes}"  # noqa: S608
    return replace(table, sql=sql, mode=replace(mode, sequence_by=_SEQUENCE, apply_as_deletes=_DELETES, envelope=None))
