"""Upkeep of refined tables and beneath them: refinements that run meanwhile or later have the rows all the same."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from kdi_assets.documents.model.refined_modes import Append, Upsert
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.upkeep import Upkeep
from kdi_assets.follow.refine import deletes
from kdi_assets.operate.erase.downstream import Downstream, FollowedErasure, follow_erasure, vacuum_all
from kdi_assets.operate.upkeep.document_upkeep import DocumentUpkeep, keep_document, kept_tables, plan_upkeep
from kdi_assets.operate.upkeep.table_upkeep import KeptTable, TableUpkeep, keep_table, plan_table_upkeep
from tests.dagster.refined_world import BRONZE
from tests.driven import Once
from tests.refined import Lakeside, refined_table

if TYPE_CHECKING:
    from pytest import MonkeyPatch

D1, D2 = date(2026, 1, 1), date(2026, 1, 2)
FORGETS_FILES = {"delta.deletedFileRetentionDuration": "interval 0 hours"}
KEPT = {"from": "bronze/events", "properties": FORGETS_FILES, "upkeep": {"small_files": 2}}
COPY = refined_table(table="silver/copy", **KEPT)
SUMS = refined_table(
    table="gold/sums",
    mode={"aggregate": {"by": ["date", "host"], "measures": {"n": "count", "total": {"sum": "bytes"}}}},
    **KEPT,
)
STATE = refined_table(
    table="silver/state",
    partition_by=None,
    mode={"upsert": {"keys": ["id"], "sequence_by": "bytes", "apply_as_deletes": "op = 'd'"}},
    **KEPT,
)


def rounds(lakeside: Lakeside, table: RefinedTableSpec, count: int) -> None:
    """Small files of two dates, upstream and in the table."""
    for n in range(count):
        lakeside.append([(10 * n, "a", n, "i", D1), (10 * n + 1, "b", n, "i", D2)])
        lakeside.refine(table)


def keep(lakeside: Lakeside, table: RefinedTableSpec) -> DocumentUpkeep:
    """The hourly run."""
    now = datetime.now(UTC)
    planned = plan_upkeep(table, lakeside.lake, now=now, thorough=False)
    return keep_document(table, lakeside.lake, planned, session=lambda: lakeside.spark, now=now)


def keep_and_vacuum(lakeside: Lakeside, table: KeptTable) -> TableUpkeep:
    """The nightly run, as if all files were old enough."""
    now = datetime.now(UTC) + timedelta(days=1)  # all dates are closed
    table = replace(table, least_retention=timedelta(0))
    planned = plan_table_upkeep(table, now=now, vacuums=False)
    assert planned is not None
    compacted = keep_table(table, planned, session=lambda: lakeside.spark)
    planned = plan_table_upkeep(table, now=now, vacuums=True)
    assert planned is not None
    vacuumed = keep_table(table, planned, session=lambda: lakeside.spark)
    assert not (*compacted.errors, *vacuumed.errors)
    return vacuumed


@pytest.mark.parametrize("table", [COPY, SUMS, STATE], ids=lambda t: t.table)
def test_a_refinement_commits_whatever_compaction_comes_between_its_files_and_its_commit(
    lakeside: Lakeside, table: RefinedTableSpec
) -> None:
    """Purpose: upkeep never fails a refinement, and moves no row.
    Procedure: four refinements; the table and its upstream table are compacted while a fifth is about to commit.
    Pass: both were compacted; the fifth commits; afterwards nothing is new, and the table is as computed at once.
    """
    rounds(lakeside, table, 4)
    lakeside.append([(1, "c", 90, "d", D1)])
    upstream = KeptTable("bronze/events", lakeside.uri("bronze/events"), upkeep=Upkeep(small_files=2))
    kept: list[Any] = []

    def compact() -> None:
        lakeside.sql("OPTIMIZE {t}")
        kept.append(keep(lakeside, table))
        kept.append(keep_table(upstream, _planned(upstream), session=lambda: lakeside.spark))

    report = lakeside.refine(table, at=Once("files written", compact))
    idle = lakeside.refine(table)

    assert DeltaTable(lakeside.uri("bronze/events")).history(1)[0]["operation"] == "OPTIMIZE"
    assert (report.kind, idle.kind) == ("changes", "nothing")
    assert not kept[0].all_errors
    if table is COPY:  # the others replace their files themselves
        assert kept[0].tables[0].before.files == 8 and kept[0].tables[0].after.files == 2
    lakeside.assert_as_computed_at_once(table)


def _planned(table: KeptTable) -> TableUpkeep:
    planned = plan_table_upkeep(table, now=datetime.now(UTC), vacuums=False)
    assert planned is not None
    return planned


@pytest.mark.parametrize("table", [COPY, SUMS, STATE], ids=lambda t: t.table)
def test_files_beneath_a_bookmark_that_a_vacuum_upstream_removed_are_missed_aloud_and_no_row_is(
    lakeside: Lakeside, table: RefinedTableSpec
) -> None:
    """Procedure: refine; upstream rows are added and changed, files joined, and everything old is removed by VACUUM.
    Pass: the change files are gone; the report says that there is no change feed; the table is as computed at once.
    """
    rounds(lakeside, table, 2)
    lakeside.append([(30, "a", 5, "i", D1), (31, "b", 6, "i", D2)])
    lakeside.sql("UPDATE {t} SET bytes = bytes + 100 WHERE id = 1")
    lakeside.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')")

    vacuumed = keep_and_vacuum(lakeside, KeptTable("bronze/events", lakeside.uri("bronze/events")))
    report = lakeside.refine(table)

    assert vacuumed.vacuumed is not None and vacuumed.vacuumed.files > 0
    assert "rows were changed or removed, without a change feed" in report.why
    lakeside.assert_as_computed_at_once(table)


def test_rows_that_were_added_and_joined_before_a_vacuum_are_refined_once(lakeside: Lakeside) -> None:
    rounds(lakeside, SUMS, 2)
    for n in range(3):
        lakeside.append([(40 + n, "a", 5, "i", D1)])
    lakeside.sql("ALTER TABLE {t} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')")

    keep_and_vacuum(lakeside, KeptTable("bronze/events", lakeside.uri("bronze/events")))
    report = lakeside.refine(SUMS)

    assert (report.kind, report.dates) == ("dates", (D1,))
    lakeside.assert_as_computed_at_once(SUMS)


def test_deletes_are_remembered_after_their_table_was_compacted_and_vacuumed(lakeside: Lakeside) -> None:
    """Procedure: three deletes in three refinements; compaction and VACUUM of the table and of its deletes; older
    changes of the deleted keys arrive; a RESTORE of the table to a version whose deletes are not the newest.
    Pass: the deletes are one file; no row comes back; after the RESTORE the deletes are left alone.
    """
    lakeside.append([(n, "a", 10, "i", D1) for n in range(4)])
    lakeside.refine(STATE)
    for n in range(3):
        lakeside.append([(n, "a", 20, "d", D1)])
        lakeside.refine(STATE)
    uri = STATE.deletes_uri(lakeside.lake)
    lakeside.sql(
        "ALTER TABLE {t} SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')",
        f"{STATE.table}_deletes",
    )

    for kept in kept_tables(STATE, lakeside.lake):
        keep_and_vacuum(lakeside, kept)
    files = len(DeltaTable(uri).file_uris())
    lakeside.append([(n, "z", 15, "u", D2) for n in range(3)])
    lakeside.refine(STATE)

    assert files == 1
    assert {dict(row)["id"] for row in lakeside.rows(STATE.table)} == {3}
    lakeside.assert_as_computed_at_once(STATE)
    lakeside.append([(3, "a", 20, "d", D1)])
    lakeside.refine(STATE)
    before = lakeside.version(STATE.table) - 1
    keeps_files = "SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 1 week')"
    lakeside.sql(f"ALTER TABLE {{t}} {keeps_files}", STATE.table)  # else Delta refuses the RESTORE
    lakeside.sql(f"RESTORE {{t}} TO VERSION AS OF {before}", STATE.table)
    assert [kept.name for kept in kept_tables(STATE, lakeside.lake)] == [STATE.table]


@pytest.mark.parametrize("lost", ["vacuumed", "removed"])
def test_rows_are_computed_again_if_the_deletes_that_belong_to_them_are_gone(lakeside: Lakeside, lost: str) -> None:
    """Procedure: a RESTORE of the table to rows whose deletes are not the newest, and VACUUM removed their files; or
    someone removed the table of deletes. Then older changes of a deleted key arrive.
    Pass: the plan says which version is gone; the table is as computed at once, and the next run computes what is new.
    """
    lakeside.append([(n, "a", 10, "i", D1) for n in range(4)])
    lakeside.refine(STATE)
    lakeside.append([(0, "a", 20, "d", D1), (1, "a", 20, "d", D1)])
    lakeside.refine(STATE)
    restored = lakeside.version(STATE.table)
    lakeside.sql("DELETE FROM {t} WHERE id = 0")
    lakeside.refine(STATE)
    deletes, uri = f"{STATE.table}_deletes", STATE.deletes_uri(lakeside.lake)
    if lost == "removed":
        shutil.rmtree(uri)
    else:
        forgets = "SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 hours')"
        lakeside.sql(f"ALTER TABLE {{t}} {forgets}", deletes)
        keep_and_vacuum(lakeside, KeptTable(deletes, uri))
        keeps_files = "SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 1 week')"
        lakeside.sql(f"ALTER TABLE {{t}} {keeps_files}", STATE.table)  # else Delta refuses the RESTORE
        lakeside.sql(f"RESTORE {{t}} TO VERSION AS OF {restored}", STATE.table)
    lakeside.append([(1, "z", 15, "u", D2)])

    report = lakeside.refine(STATE)

    assert (report.kind, "silver/state_deletes is gone" in report.why) == ("rebuild", True)
    lakeside.assert_as_computed_at_once(STATE)
    lakeside.append([(1, "z", 17, "u", D2)])
    assert lakeside.refine(STATE).kind == "changes"
    lakeside.assert_as_computed_at_once(STATE)


def test_a_delete_is_forgotten_after_the_days_that_the_document_says(
    lakeside: Lakeside, monkeypatch: MonkeyPatch
) -> None:
    """Procedure: ids 1 and 2 are deleted on two days; 30 days after the first one, older changes of both arrive;
    60 days after it, one more delete.
    Pass: the row of id 1 is back, that of id 2 is not; the last refinement leaves its own delete only.
    """
    assert isinstance(STATE.mode, Upsert)
    forgetful = replace(STATE, mode=replace(STATE.mode, remember_deletes=30))
    day = datetime(2026, 3, 1, tzinfo=UTC)

    def refine_on(days: int, *rows: tuple[Any, ...]) -> None:
        lakeside.append(rows)
        monkeypatch.setattr(deletes, "clock", lambda: day + timedelta(days=days))
        lakeside.refine(forgetful)

    refine_on(0, (1, "a", 20, "d", D1))
    refine_on(1, (2, "a", 20, "d", D1))
    refine_on(30, (1, "late", 15, "u", D2), (2, "late", 15, "u", D2))
    ids = {dict(row)["id"] for row in lakeside.rows(forgetful.table)}
    refine_on(62, (3, "a", 20, "d", D1))

    assert ids == {1}
    remembered = DeltaTable(forgetful.deletes_uri(lakeside.lake)).to_pyarrow_table().column("id").to_pylist()
    assert remembered == [3]
    assert forgetful.definition() == STATE.definition()  # another number of days computes nothing again


def test_a_forgotten_delete_still_ends_the_span_of_the_row_that_it_deleted(
    lakeside: Lakeside, monkeypatch: MonkeyPatch
) -> None:
    """Procedure: with history, a row and its delete; when the delete is forgotten, a later and an earlier change.
    Pass: the first row's span ends at the delete, and the table is as computed at once.
    """
    assert isinstance(STATE.mode, Upsert)
    table = replace(STATE, mode=replace(STATE.mode, scd_type=2, remember_deletes=30))
    day = datetime(2026, 3, 1, tzinfo=UTC)
    for months, (sequence, op) in enumerate([(10, "i"), (20, "d"), (50, "u"), (5, "u")]):
        lakeside.append([(1, "a", sequence, op, D1)])
        monkeypatch.setattr(deletes, "clock", lambda passed=months: day + timedelta(days=31 * passed))
        lakeside.refine(table)

    spans = sorted((row["valid_from"], row["valid_to"]) for row in map(dict, lakeside.rows(table.table)))
    assert spans == [(5, 10), (10, 20), (50, None)]
    lakeside.assert_as_computed_at_once(table)


def test_deletes_that_no_row_upstream_tells_of_leave_their_table_with_a_rebuild(lakeside: Lakeside) -> None:
    """Purpose: the keys of an erased person must not stay in a version that nothing names."""
    lakeside.append([(1, "a", 10, "i", D1), (1, "a", 20, "d", D1), (2, "b", 10, "i", D1)])
    lakeside.refine(STATE)
    held = [len(DeltaTable(STATE.deletes_uri(lakeside.lake)).to_pyarrow_table())]
    lakeside.sql("DELETE FROM {t} WHERE id = 1")

    lakeside.refine(STATE, rebuild=True)

    held.append(len(DeltaTable(STATE.deletes_uri(lakeside.lake)).to_pyarrow_table()))
    assert held == [1, 0]
    assert len(kept_tables(STATE, lakeside.lake)) == 2
    lakeside.assert_as_computed_at_once(STATE)


def erasure_follows(lakeside: Lakeside, table: RefinedTableSpec) -> FollowedErasure:
    chain = Downstream((table,))
    (followed,) = follow_erasure(chain, lake=lakeside.lake, session=lambda: lakeside.spark, where="id = 1")
    return followed


def test_deletes_of_an_earlier_mode_leave_with_an_erasure_and_nothing_is_computed_again_for_them(
    lakeside: Lakeside,
) -> None:
    """Procedure: an upsert records a person's delete; the document becomes an append; the person is erased upstream.
    Pass: no row and, after a VACUUM, no file of the deletes is left; the next erasure commits nothing; upkeep knows it.
    """
    lakeside.append([(1, "a", 10, "i", D1), (1, "a", 20, "d", D1), (2, "b", 10, "i", D1)])
    lakeside.refine(STATE)
    rows = replace(STATE, mode=Append())
    lakeside.refine(rows)
    uri = STATE.deletes_uri(lakeside.lake)
    held = len(DeltaTable(uri).to_pyarrow_table())
    lakeside.sql("DELETE FROM {t} WHERE id = 1")

    first = erasure_follows(lakeside, rows)
    second = erasure_follows(lakeside, rows)
    vacuum_all(lambda: lakeside.spark, BRONZE, Downstream((rows,)), lakeside.lake)

    assert (held, len(DeltaTable(uri).to_pyarrow_table())) == (1, 0)
    assert list(Path(uri).glob("*.parquet")) == []
    assert (first.rows_left, first.error, second.error) == (0, None, None)
    assert second.version == first.version
    assert [kept.uri for kept in kept_tables(rows, lakeside.lake)] == [rows.table_uri(lakeside.lake), uri]
    lakeside.refine(STATE)  # the document is an upsert again
    lakeside.assert_as_computed_at_once(STATE)


def test_a_table_that_only_has_the_name_of_a_table_of_deletes_is_left_alone(lakeside: Lakeside) -> None:
    lakeside.append([(1, "a", 10, "i", D1), (2, "b", 10, "i", D1)])
    lakeside.refine(COPY)
    theirs = f"{COPY.table}_deletes"
    lakeside.append([(1, "a", 10, "i", D1)], table=theirs)
    lakeside.sql("DELETE FROM {t} WHERE id = 1")

    first, second = erasure_follows(lakeside, COPY), erasure_follows(lakeside, COPY)
    vacuum_all(lambda: lakeside.spark, BRONZE, Downstream((COPY,)), lakeside.lake)

    assert second.version == first.version, "nothing to compute again"
    assert (lakeside.version(theirs), len(lakeside.rows(theirs))) == (0, 1)
