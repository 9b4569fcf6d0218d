"""Refined tables under crashes, races, RESTOREs and other writers: the rows stay those of a full recomputation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from kdi_assets.follow.refine.consumer import NewRows, new_rows
from kdi_assets.follow.refine.errors import AnotherRefinementActive, ChangedByOthers, RefiningFailed, TableNotRefined
from kdi_assets.follow.refine.row_errors import ConstraintViolated
from tests.driven import Once
from tests.refined import COPY, D1, D2, FIRST, MORE, STATE, SUMS, Lakeside

if TYPE_CHECKING:
    from pytest import MonkeyPatch


POINTS = ("table created", "deletes recorded", "files written", "committed")


class Died(BaseException):
    """The process ended at this point."""


def _die() -> None:
    raise Died


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_any_point_neither_loses_nor_doubles_a_row(lakeside: Lakeside, point: str) -> None:
    """Purpose: rows and bookmark are one commit, and what a dead attempt left must not count.
    Procedure: end the first and a later refinement at the point; refine again. The later rows have a delete.
    Pass: the crash happened; the table is as computed at once.
    """
    died = 0
    for rows in (FIRST, [*MORE, (2, "b", 21, "d", D2)], [(2, "b", 20, "u", D2)]):
        lakeside.append(rows)
        try:
            lakeside.refine(STATE, at=Once(point, _die))
        except Died:
            died += 1
        lakeside.refine(STATE)

    assert died >= 1
    lakeside.assert_as_computed_at_once(STATE)


@pytest.mark.parametrize("table", [COPY, SUMS, STATE], ids=lambda t: t.table)
def test_of_two_refinements_at_once_one_counts(lakeside: Lakeside, table: Any) -> None:
    lakeside.append(FIRST)
    lakeside.refine(table)
    lakeside.append(MORE)

    report = lakeside.refine(table, at=Once("files written", lambda: lakeside.refine(table)))

    assert report.kind == "nothing"
    lakeside.assert_as_computed_at_once(table)


def test_a_refinement_that_is_overtaken_each_time_gives_up_and_names_the_other(lakeside: Lakeside) -> None:
    lakeside.append(FIRST)

    def overtake(point: str) -> None:
        if point == "files written":
            lakeside.refine(COPY)
            lakeside.append(MORE)  # else the next plan would find nothing to do

    with pytest.raises(AnotherRefinementActive, match=r"came first each time, the last one: commit \d+ of \S+ \("):
        lakeside.refine(COPY, at=overtake)
    lakeside.refine(COPY)

    lakeside.assert_as_computed_at_once(COPY)


@pytest.mark.parametrize(("table", "attempts"), [(COPY, 1), (SUMS, 2), (STATE, 2)])
def test_a_compaction_between_files_and_commit_costs_nothing_unless_it_moved_the_rows_that_are_replaced(
    lakeside: Lakeside, table: Any, attempts: int
) -> None:
    """Procedure: OPTIMIZE of files; an appending table replaces none of them, the others here all."""
    for rows in (FIRST, MORE):
        lakeside.append(rows)
        lakeside.refine(table)
    lakeside.append([(1, "a", 41, "u", D1)])
    compacts = Once("files written", lambda: DeltaTable(lakeside.uri(table.table)).optimize.z_order(["host"]))
    reached: list[str] = []

    def at(point: str) -> None:
        reached.append(point)
        compacts(point)

    report = lakeside.refine(table, at=at)

    commits = [commit["operation"] for commit in DeltaTable(lakeside.uri(table.table)).history(2)]
    assert compacts.happened
    assert (report.kind, reached.count("files written")) == ("changes", attempts)
    assert commits[1] == "OPTIMIZE", "the refinement follows it"
    lakeside.assert_as_computed_at_once(table)


def test_a_hand_written_asset_commits_behind_a_compaction_too(lakeside: Lakeside) -> None:
    output = lakeside.uri("silver/by_hand")

    def new() -> NewRows:
        found = new_rows(lakeside.spark, upstream=lakeside.uri("bronze/events"), output=output, consumer="mine")
        assert found is not None
        return found

    for rows in (FIRST, MORE):
        lakeside.append(rows)
        found = new()
        found.append(found.rows)
    lakeside.append([(5, "c", 40, "i", D1)])
    found = new()
    DeltaTable(output).optimize.compact()

    found.append(found.rows)

    assert lakeside.rows("silver/by_hand") == lakeside.rows("bronze/events")


def test_rows_of_another_writer_are_refused_also_while_the_columns_change(lakeside: Lakeside) -> None:
    """Procedure: the upstream table gets a column; before all rows are computed again, someone adds rows to ours."""
    lakeside.append(FIRST)
    lakeside.refine(COPY)
    lakeside.sql("ALTER TABLE {t} ADD COLUMN more STRING")
    lakeside.sql("INSERT INTO {t} VALUES (9, 'z', 1, 'i', DATE'2026-01-01', 'more')")
    foreign = Once("deletes recorded", lambda: lakeside.sql("INSERT INTO {t} SELECT * FROM {t} LIMIT 1", COPY.table))

    with pytest.raises(ChangedByOthers, match=COPY.table):
        lakeside.refine(COPY, at=foreign)


@pytest.mark.parametrize("table", [COPY, SUMS, STATE], ids=lambda t: t.table)
def test_a_restore_of_the_table_brings_its_bookmarks_back(lakeside: Lakeside, table: Any) -> None:
    """Purpose: after a RESTORE the log has newer bookmarks than the rows.
    Procedure: three refinements, RESTORE to the second and refine; RESTORE to that RESTORE and refine; RESTORE between
    the files and the commit of a refinement.
    Pass: each time the table is as computed at once.
    """
    for rows in (FIRST, MORE, [(5, "c", 40, "i", D1), (1, "a", 41, "d", D2)]):
        lakeside.append(rows)
        lakeside.refine(table)
    name = table.table

    lakeside.sql("RESTORE {t} TO VERSION AS OF 2", name)
    lakeside.refine(table)
    lakeside.assert_as_computed_at_once(table)

    lakeside.sql("RESTORE {t} TO VERSION AS OF 4", name)
    lakeside.append([(6, "d", 50, "i", D2)])
    lakeside.refine(table)
    lakeside.assert_as_computed_at_once(table)

    lakeside.append([(7, "d", 60, "i", D2)])
    restores = Once("files written", lambda: lakeside.sql("RESTORE {t} TO VERSION AS OF 3", name))
    lakeside.refine(table, at=restores)
    assert restores.happened
    lakeside.assert_as_computed_at_once(table)


def test_rows_of_others_in_the_table_are_refused_until_someone_rebuilds_it(lakeside: Lakeside) -> None:
    lakeside.append(FIRST)
    lakeside.refine(COPY)
    lakeside.append(FIRST[:1], COPY.table)
    lakeside.append(MORE)

    with pytest.raises(ChangedByOthers, match="kdi refine silver/copy --rebuild"):
        lakeside.refine(COPY)
    lakeside.refine(COPY, rebuild=True)

    lakeside.assert_as_computed_at_once(COPY)


@pytest.mark.parametrize("check", ["bytes < 100", "host IS NOT NULL"])
def test_a_row_that_a_constraint_of_the_table_refuses_is_not_tried_again(lakeside: Lakeside, check: str) -> None:
    """Pass: the constraint is named, and nothing is committed."""
    lakeside.append(FIRST)
    lakeside.refine(COPY)
    lakeside.sql(f"ALTER TABLE {{t}} ADD CONSTRAINT ours CHECK ({check})", COPY.table)
    lakeside.append([(9, None, 999, "i", D2)])
    before = lakeside.rows(COPY.table)

    with pytest.raises(ConstraintViolated, match="CONSTRAINT"):
        lakeside.refine(COPY)

    assert lakeside.rows(COPY.table) == before


def test_a_table_of_another_writer_is_never_taken_for_ours(lakeside: Lakeside) -> None:
    lakeside.append(FIRST)
    lakeside.append(MORE, COPY.table)

    for rebuild in (False, True):
        with pytest.raises(TableNotRefined):
            lakeside.refine(COPY, rebuild=rebuild)


@pytest.mark.parametrize("call", ["create_table", "TableAt.open", "commit_behind"])
def test_a_failure_of_the_storage_at_any_call_is_an_error_of_ours(
    lakeside: Lakeside, monkeypatch: MonkeyPatch, call: str
) -> None:
    """Purpose: whoever refines many tables goes on after an error of ours only.
    Procedure: the storage fails at the call, as Delta tells of it; refine again.
    Pass: a transient error that names the table; the rows as computed at once.
    """
    lakeside.append(FIRST)

    def fails(*_: object, **__: object) -> None:
        jvm: Any = lakeside.spark._jvm
        jvm.java.io.File.createTempFile("no", "place", jvm.java.io.File("/nowhere"))

    with monkeypatch.context() as patch:
        patch.setattr(f"kdi_assets.follow.refine.refine.{call}", fails)
        with pytest.raises(RefiningFailed, match="silver/copy: "):
            lakeside.refine(COPY)
    lakeside.refine(COPY)

    lakeside.assert_as_computed_at_once(COPY)
