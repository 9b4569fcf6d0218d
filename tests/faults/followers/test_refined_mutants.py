"""Engines of refined tables with one bug each: the comparison with a full recomputation must notice every one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kdi_assets.delta import log as delta_log
from kdi_assets.delta.files import rows_at
from kdi_assets.errors import KdiError
from kdi_assets.follow import upstream as looking
from kdi_assets.follow.refine import compute as computing
from kdi_assets.follow.refine import inputs as reading
from kdi_assets.follow.refine import refine as refining
from kdi_assets.follow.refine import stage as staging
from kdi_assets.follow.refine.modes import aggregate as grouping
from kdi_assets.follow.refine.read import FEED_COLUMNS, appended_rows, change_rows
from kdi_assets.follow.refine.table_change import NoRows, TableChange
from tests.refined import COPY, D2, FIRST, MORE, STATE, SUMS, Lakeside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pytest import MonkeyPatch


def _bookmark_without_rows(patch: MonkeyPatch) -> None:
    real = staging.stage_change

    def no_rows(change: TableChange, table: Any, **options: Any) -> Any:
        return real(replace(change, rows=change.rows.limit(0)), table, **options)

    patch.setattr(refining, "stage_change", no_rows)


def _inclusive_bound(patch: MonkeyPatch) -> None:
    real = looking._ChangeReader.changes
    patch.setattr(
        looking._ChangeReader, "changes", lambda self, base: real(replace(self, since=max(0, self.since - 1)), base)
    )


def _optimize_is_new_rows(patch: MonkeyPatch) -> None:
    patch.setattr(
        looking,
        "row_actions",
        lambda actions: [a for a in actions if "add" in a],  # whatever dataChange says
    )


def _removals_ignored(patch: MonkeyPatch) -> None:
    patch.setattr(
        looking, "row_actions", lambda actions: [a for a in actions if "add" in a and a["add"].get("dataChange", True)]
    )


def _deletes_forgotten(patch: MonkeyPatch) -> None:
    patch.setattr(computing, "recorded_deletes", lambda *_, **__: None)


def _restores_ignored(patch: MonkeyPatch) -> None:
    patch.setattr(delta_log.CommitInfo, "is_restore", property(lambda self: False))


def _groups_added_again(patch: MonkeyPatch) -> None:
    real = grouping.aggregate_change

    def added(inputs: Any, mode: Any) -> TableChange:
        change = real(inputs, mode)
        return change if inputs.plan.kind == "rebuild" else TableChange(change.rows, NoRows())

    patch.setattr(computing, "aggregate_change", added)


def _newest_read_twice(patch: MonkeyPatch) -> None:
    patch.setattr(reading, "appended_rows", lambda spark, changes: rows_at(spark, changes.uri, changes.version))


def _replayed_rows_added(patch: MonkeyPatch) -> None:
    def new_forms(spark: SparkSession, changes: Any) -> DataFrame:
        if changes.kind == "appended":
            return appended_rows(spark, changes)
        added = change_rows(spark, changes).where("_change_type IN ('insert', 'update_postimage')")
        return added.drop(*FEED_COLUMNS)

    patch.setattr(reading, "appended_rows", new_forms)
    patch.setattr(reading.Inputs, "only_added", property(lambda self: True))


MUTANTS: Sequence[Callable[[MonkeyPatch], None]] = (
    _bookmark_without_rows,
    _inclusive_bound,
    _optimize_is_new_rows,
    _removals_ignored,
    _deletes_forgotten,
    _restores_ignored,
    _groups_added_again,
    _newest_read_twice,
    _replayed_rows_added,
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__.strip("_"))
def test_an_engine_with_a_bug_is_caught(
    lakeside: Lakeside, monkeypatch: MonkeyPatch, mutant: Callable[[MonkeyPatch], None]
) -> None:
    """Purpose: the comparison with a recomputation must be able to fail.
    Procedure: an engine with one bug refines new rows, a late change behind a delete, an OPTIMIZE, a RESTORE
    of the table, a change of a row as a replay makes it, and a DELETE.
    Pass: a refusal, or other rows than computed at once.
    """
    with pytest.raises((AssertionError, KdiError)):
        for table in (COPY, SUMS, STATE):
            for step in _STEPS:
                step(lakeside, table.table)
                with monkeypatch.context() as patch:
                    mutant(patch)
                    lakeside.refine(table)
                # By the engine without the bug; after each step, because a later one may compute the rows again.
                lakeside.assert_as_computed_at_once(table)


_STEPS: Sequence[Callable[[Lakeside, str], None]] = (
    lambda lakeside, table: lakeside.append(FIRST),
    lambda lakeside, table: lakeside.append([(9, "z", 50, "d", D2)]),
    lambda lakeside, table: lakeside.append([(9, "z", 40, "i", D2), *MORE]),
    lambda lakeside, table: lakeside.sql("OPTIMIZE {t}"),
    lambda lakeside, table: lakeside.sql("RESTORE {t} TO VERSION AS OF 2", table),
    lambda lakeside, table: lakeside.sql("UPDATE {t} SET bytes = 6 WHERE id = 4"),
    lambda lakeside, table: lakeside.sql("DELETE FROM {t} WHERE id = 3"),
)
