"""Compute: the change of a plan, as the table's mode says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kdi_assets.delta.files import rows_at
from kdi_assets.documents.model.refined_modes import Aggregate, Append, Deduplicate, Mode, ReplaceDates, Upsert
from kdi_assets.follow.refine.columns import SEQUENCE
from kdi_assets.follow.refine.deletes import record_deletes, recorded_deletes
from kdi_assets.follow.refine.errors import NotByDate
from kdi_assets.follow.refine.inputs import Inputs
from kdi_assets.follow.refine.modes.aggregate import aggregate_change
from kdi_assets.follow.refine.modes.deduplicate import deduplicate_change
from kdi_assets.follow.refine.modes.states import DELETES, has_null_key, is_by_offset
from kdi_assets.follow.refine.modes.upsert import can_delete, deletes_of, upsert_change
from kdi_assets.follow.refine.other_dates import are_made_of_own_dates, different_dates
from kdi_assets.follow.refine.read import of_kept_dates
from kdi_assets.follow.refine.row_errors import NullKeys, SequenceOfTwoTopics, UndatedRowsChanged
from kdi_assets.follow.refine.stage import same_columns, within_years
from kdi_assets.follow.refine.table_change import NoRows, RowsOfDates, RowsOfKeys, TableChange, WholeTable
from kdi_assets.follow.refine.transform import refuse_clock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OF_OTHER_DATES = "may have rows that are made of rows of other dates"
COMPARED = f"it {OF_OTHER_DATES}, so all rows were computed and compared"


@dataclass(frozen=True, slots=True)
class Computed:
    """The change of a plan, and the version of the table of deletes that belongs to it."""

    change: TableChange
    deletes: int | None = None


def compute(inputs: Inputs, lake: str) -> Computed:
    """The change that brings the table to the plan's upstream versions; lazy, except for the deletes of upserts.

    Raises:
        NotByDate: Of mode replace_dates, rows may be made of rows of dates that are kept no longer upstream.
        UndatedRowsChanged: Of mode replace_dates, rows without a date are others than before.
        NullKeys: Changes have no keys or no sequence.
        SequenceOfTwoTopics: Offsets are the sequence, and the upstream stream's topic was made again.
        QueryMistake: An expression of the mode asks the clock.
        KdiError: As ``transform``.
    """
    computed = _computed(inputs, inputs.table.mode, lake)
    change = computed.change
    refuse_clock(inputs.table, change.rows, "mode")
    if isinstance(change.replaces, WholeTable):  # all other changes are of new rows, or of dates that are kept
        rows = of_kept_dates(change.rows, inputs.plan.kept.first)
        change = replace(
            change, rows=rows.unionByName(_frozen_rows(inputs, rows)) if inputs.plan.casts_frozen else rows
        )
    return replace(computed, change=replace(change, small_enough=change.small_enough or inputs.small_enough))


def _frozen_rows(inputs: Inputs, like: DataFrame) -> DataFrame:
    """The rows of the table that cannot be computed again, in the types of others."""
    from pyspark.sql import functions as F

    rows = rows_at(inputs.spark, inputs.uri, inputs.plan.version).where(f"date < DATE'{inputs.plan.kept.first}'")
    return rows.select(*(F.col(f"`{f.name}`").cast(f.dataType).alias(f.name) for f in like.schema.fields))


def _computed(inputs: Inputs, mode: Mode, lake: str) -> Computed:
    match mode:
        case Append() | ReplaceDates():
            return Computed(_rows_as_they_are(inputs))
        case Deduplicate():
            _refuse_two_topics(inputs, mode.order_by)
            return Computed(deduplicate_change(inputs, mode))
        case Aggregate():
            return Computed(aggregate_change(inputs, mode))
        case Upsert():
            return _upserted(inputs, mode, lake)


def _rows_as_they_are(inputs: Inputs) -> TableChange:
    if inputs.plan.kind == "rebuild":
        return TableChange(inputs.all_rows(), WholeTable())
    if inputs.plan.kind == "dates":
        if isinstance(inputs.table.mode, ReplaceDates):
            return _replaced_dates(inputs)
        return TableChange(inputs.rows_of(inputs.plan.dates), RowsOfDates(inputs.plan.dates))
    return TableChange(inputs.new_rows(), NoRows())


def _replaced_dates(inputs: Inputs) -> TableChange:
    plan = inputs.plan
    if made_by_date := inputs.rows_made_by_date():
        rows, few = made_by_date
        return TableChange(rows, RowsOfDates(plan.dates), small_enough=few)
    if are_made_of_own_dates(inputs.spark, inputs.table, plan):
        return TableChange(inputs.rows_of(plan.dates), RowsOfDates(plan.dates))
    if first := plan.kept.frozen_before:
        raise NotByDate(table=inputs.table.name, why=OF_OTHER_DATES, keeps=plan.upstreams[0].table, first=first)
    rows, table = within_years(inputs.all_rows()), inputs.refined_table
    if not same_columns(rows, table):
        return TableChange(rows, RowsOfDates(plan.dates))  # refused before it is written: all rows are computed then
    ours = rows_at(inputs.spark, inputs.uri, plan.version)
    different = different_dates(*(of_kept_dates(side, plan.kept.first) for side in (ours, rows)))
    if None in different:
        raise UndatedRowsChanged(table=inputs.table.name)
    dates = plan.dates.union(day for day in different if day)
    return TableChange(inputs.rows_of(dates), RowsOfDates(dates), why=f"{plan.why}; {COMPARED}")


def _upserted(inputs: Inputs, mode: Upsert, lake: str) -> Computed:
    plan, uri = inputs.plan, inputs.table.deletes_uri(lake)
    _refuse_two_topics(inputs, mode.sequence_by)
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


def _refuse_two_topics(inputs: Inputs, order: str) -> None:
    """Rows do not show of which topic they are, so no key can be named."""
    (upstream,), topics = inputs.plan.upstreams, inputs.plan.topics
    if topics and topics.most > 1 and is_by_offset(inputs.spark, order):
        field = "sequence_by" if isinstance(inputs.table.mode, Upsert) else "order_by"
        raise SequenceOfTwoTopics(table=inputs.table.name, upstream=upstream.table, field=field)


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
