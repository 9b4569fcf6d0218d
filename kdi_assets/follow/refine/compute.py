"""Compute: the change of a plan, as the table's mode says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kdi_assets.delta.files import TableAt
from kdi_assets.delta.markers import topics_of
from kdi_assets.documents.model.refined_modes import OFFSETS, Aggregate, Append, Deduplicate, Mode, ReplaceDates, Upsert
from kdi_assets.follow.refine.columns import SEQUENCE
from kdi_assets.follow.refine.deletes import record_deletes, recorded_deletes
from kdi_assets.follow.refine.inputs import Inputs, in_dates
from kdi_assets.follow.refine.modes.aggregate import aggregate_change
from kdi_assets.follow.refine.modes.deduplicate import deduplicate_change
from kdi_assets.follow.refine.modes.states import DELETES, has_null_key
from kdi_assets.follow.refine.modes.upsert import can_delete, deletes_of, upsert_change
from kdi_assets.follow.refine.read import of_kept_dates
from kdi_assets.follow.refine.row_errors import DatesMoved, NullKeys, SequenceOfTwoTopics
from kdi_assets.follow.refine.table_change import NoRows, RowsOfDates, RowsOfKeys, TableChange, WholeTable
from kdi_assets.follow.refine.transform import refuse_clock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Computed:
    """The change of a plan, and the version of the table of deletes that belongs to it."""

    change: TableChange
    deletes: int | None = None


def compute(inputs: Inputs, lake: str) -> Computed:
    """The change that brings the table to the plan's upstream versions; lazy, except for the deletes of upserts.

    Raises:
        DatesMoved: Of mode replace_dates, rows of the dates that changed have other dates.
        NullKeys: Changes have no keys or no sequence.
        SequenceOfTwoTopics: Offsets are the sequence, and the upstream stream's topic was made again.
        QueryMistake: An expression of the mode asks the clock.
        KdiError: As ``transform``.
    """
    computed = _computed(inputs, inputs.table.mode, lake)
    change = computed.change
    refuse_clock(inputs.table, change.rows, "mode")
    if isinstance(change.replaces, WholeTable):  # all other changes are of new rows, or of dates that are kept
        change = replace(change, rows=of_kept_dates(change.rows, inputs.plan.kept.first))
    return replace(computed, change=replace(change, small_enough=change.small_enough or inputs.small_enough))


def _computed(inputs: Inputs, mode: Mode, lake: str) -> Computed:
    match mode:
        case Append() | ReplaceDates():
            return Computed(_rows_as_they_are(inputs))
        case Deduplicate():
            return Computed(deduplicate_change(inputs, mode))
        case Aggregate():
            return Computed(aggregate_change(inputs, mode))
        case Upsert():
            return _upserted(inputs, mode, lake)


def _rows_as_they_are(inputs: Inputs) -> TableChange:
    if inputs.plan.kind == "rebuild":
        return TableChange(inputs.all_rows(), WholeTable())
    if inputs.plan.kind == "dates":
        replaced = RowsOfDates(inputs.plan.dates)
        if isinstance(inputs.table.mode, ReplaceDates):
            if made_by_date := inputs.rows_made_by_date():
                rows, few = made_by_date
                return TableChange(rows, replaced, small_enough=few)
            _refuse_moved_dates(inputs)
        return TableChange(inputs.rows_of(inputs.plan.dates), replaced)
    return TableChange(inputs.new_rows(), NoRows())


def _refuse_moved_dates(inputs: Inputs) -> None:
    """Each row that what changed upstream has become lies on a date that is computed."""
    for rows in inputs.rows_of_changed_dates():
        moved = rows.where(f"NOT coalesce({in_dates(inputs.plan.dates)}, false)")
        (found,) = moved.selectExpr("count(*) AS rows", "CAST(min(date) AS STRING) AS example").collect()
        if found["rows"]:
            raise DatesMoved(table=inputs.table.name, rows=found["rows"], example=found["example"] or "none at all")


def _upserted(inputs: Inputs, mode: Upsert, lake: str) -> Computed:
    plan, uri = inputs.plan, inputs.table.deletes_uri(lake)
    if mode.sequence_by in OFFSETS:
        _refuse_two_topics(inputs)
    known = recorded_deletes(inputs.spark, uri, plan.deletes, remember_days=mode.remember_deletes)
    change, changes = upsert_change(inputs, mode, known)
    again = change.replaces.keys if isinstance(change.replaces, RowsOfKeys) and not inputs.only_added else None
    version = record_deletes(
        uri,
        deletes_of(changes, mode),
        count=_counted_deletes(inputs, mode, changes, keys_counted=change.counted is not None),
        pinned=plan.deletes,
        attempt_id=plan.attempt_id,
        again=again,
        remember_days=mode.remember_deletes,
    )
    return Computed(change, version)


def _refuse_two_topics(inputs: Inputs) -> None:
    """Rows do not show of which topic they are, so no key can be named."""
    (upstream,) = inputs.plan.upstreams
    known = TableAt.open(inputs.spark, upstream.uri, upstream.version).transaction_ids
    if any(len(topics) > 1 for topics in topics_of(known).values()):
        raise SequenceOfTwoTopics(table=inputs.table.name, upstream=upstream.table)


def _counted_deletes(inputs: Inputs, mode: Upsert, changes: DataFrame, *, keys_counted: bool) -> int:
    """How many of the changes are deletes.

    Args:
        keys_counted: Null keys are counted while the rows are written, so only deletes need a job here.

    Raises:
        NullKeys: Changes have a null key or sequence.
    """
    nullable = any(f.nullable for f in changes.schema.fields if f.name in {*mode.keys, SEQUENCE})
    if not can_delete(mode) and (keys_counted or not nullable):
        return 0
    counts = f"count_if({has_null_key(mode)}) AS unknown", f"count_if({DELETES}) AS deletes"
    (found,) = changes.selectExpr(*counts).collect()
    if found["unknown"]:
        raise NullKeys(table=inputs.table.name, rows=found["unknown"])
    return int(found["deletes"])
