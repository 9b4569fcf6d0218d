"""Refined tables of a table that keeps its dates for some time: the dates that left stay as they were."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from kdi_assets.documents.model.refined_modes import Deduplicate
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.served_table import DuckDb, ServedTableSpec
from kdi_assets.follow.refine.audit.audit import audit_refined
from kdi_assets.follow.refine.consumer import new_rows
from kdi_assets.follow.refine.errors import ChangedByOthers, DatesNotKept, NotByDate
from kdi_assets.follow.serve.serve import serve
from kdi_assets.operate.erase.downstream import Downstream, FollowedErasure, follow_erasure
from kdi_assets.operate.monitoring.refined_status import read_refined_status
from kdi_assets.operate.upkeep.document_upkeep import DocumentUpkeep, keep_document, plan_upkeep
from kdi_assets.operate.upkeep.errors import ErasedRowsFrozen
from kdi_assets.operate.upkeep.unconsumed import Followers, waiting_followers
from tests.refined import EVENTS, Lakeside, refined_table

D1, D2, D3, D4 = (date(2026, 1, day) for day in (1, 2, 3, 4))
FIRST = [(1, "a", 10, "i", D1), (2, "b", 20, "i", D1), (3, "a", 30, "i", D2), (1, "a", 10, "i", D2)]
MORE = [(4, "a", 5, "u", D2), (2, "b", 7, "d", D3), (5, None, None, "i", D3), (1, "a", 99, "u", D3)]
SUMS = {"n": "count", "total": {"sum": "bytes"}, "most": {"max": "bytes"}}

MODES: dict[str, dict[str, Any]] = {
    "append": {"sql": "SELECT id, upper(host) AS host, date FROM events WHERE coalesce(bytes, 0) <> 7"},
    "replace_dates": {
        "sql": "SELECT date, host, count(*) AS n, sum(bytes) AS total FROM events GROUP BY date, host",
        "mode": "replace_dates",
    },
    "deduplicate": {"mode": {"deduplicate": {"keys": ["id"], "order_by": "bytes", "window": "2 days"}}},
    "aggregate": {"mode": {"aggregate": {"by": ["date", "host"], "measures": SUMS}}},
    "exact distinct": {"mode": {"aggregate": {"by": ["date"], "measures": {"ids": {"count_distinct": "id"}}}}},
}
NOT_BY_DATE: dict[str, dict[str, Any]] = {
    "append": {"partition_by": None},
    "upsert": {"partition_by": None, "mode": {"upsert": {"keys": ["id"], "sequence_by": "struct(date, bytes)"}}},
    "aggregate": {"partition_by": None, "mode": {"aggregate": {"by": ["host"], "measures": {"n": "count"}}}},
}
Rows = Counter[tuple[Any, ...]]


@pytest.fixture(params=MODES)
def table(request: pytest.FixtureRequest) -> RefinedTableSpec:
    return refined_table(**{"table": "silver/t", "from": "bronze/events", **MODES[request.param]})


def before(rows: Rows, day: date) -> Rows:
    """Those with an earlier date."""
    return Counter({row: n for row, n in rows.items() if dict(row)["date"] < day})


def test_dates_that_left_upstream_stay_as_they_were_and_the_others_are_as_computed_at_once(
    lakeside: Lakeside, table: RefinedTableSpec
) -> None:
    """Purpose: a table keeps more dates than the table that it is made of, whatever comes after them.
    Procedure: the first date leaves upstream; then late rows of it, rows of other dates, changes, a RESTORE that brings
    the date back, its second end, a rebuild.
    Pass: after each step the dates that left are as before, the others are those of a table made now; the audit agrees.
    """
    lakeside.append(FIRST)
    lakeside.append(MORE)
    lakeside.refine(table)
    first = D3 if isinstance(table.mode, Deduplicate) else D2
    frozen = before(lakeside.rows("silver/t"), first)
    lakeside.expire(D2)
    files, status = lakeside.files("silver/t"), read_refined_status(table, lakeside.lake)
    assert status.is_behind and status.waiting_seconds(TODAY) == 0
    recorded, then = lakeside.refine(table), lakeside.refine(table)
    assert (recorded.kind, recorded.dates, recorded.rows_added, recorded.rows_removed) == ("dates", (), 0, 0)
    assert recorded.files_added == 0 and lakeside.files("silver/t") == files
    assert then.kind == "nothing", "what is recorded makes no second commit"
    lakeside.append([(9, "c", 1, "i", D1)])
    late = lakeside.refine(table)
    assert (late.kind, late.rows_passed_over) == ("nothing", 0), "the next commit counts them, and only that one"

    def changed_left_changed() -> None:
        lakeside.sql("UPDATE {t} SET bytes = bytes + 1 WHERE id = 4")
        lakeside.expire(D2)
        lakeside.sql("UPDATE {t} SET bytes = bytes + 2 WHERE id IN (3, 4)")

    steps: dict[str, Callable[[], None]] = {
        "late and new": lambda: lakeside.append([(10, "c", 1, "i", D1), (11, "c", 3, "i", D3), (4, "c", 1, "i", D4)]),
        "changed": lambda: lakeside.sql("UPDATE {t} SET bytes = bytes + 1 WHERE id IN (1, 3, 10)"),
        "restored": lambda: lakeside.sql("RESTORE {t} TO VERSION AS OF 1"),
        "left again between changes": changed_left_changed,
        "more": lambda: lakeside.append([(12, "d", 1, "i", D3), (12, "d", 1, "i", D4)]),
    }

    passed_over = dict[str, int]()
    for name, happens in steps.items():
        happens()
        entry = lakeside.refine(table)
        again = lakeside.rows(made_now(lakeside, table))
        assert lakeside.rows("silver/t") == frozen + again, name
        assert entry.kind != "rebuild", name
        passed_over[name] = entry.rows_passed_over
    lakeside.refine(table, rebuild=True)

    assert passed_over == {"late and new": 2, "changed": 0, "restored": 0, "left again between changes": 0, "more": 0}
    assert lakeside.rows("silver/t") == frozen + again
    audit = audit_refined(table, lake=lakeside.lake, session=lambda: lakeside.spark, everything=True)
    assert audit.equal and audit.first == first


def test_a_late_row_of_a_frozen_date_makes_a_kept_row_of_a_later_date_a_duplicate(lakeside: Lakeside) -> None:
    """Purpose: within two days, a date that is frozen here may still be upstream, and decide what the next date has.
    Pass: the row of the later date leaves, the late row is not added; the audit of all rows agrees.
    """
    table = refined_table(**{"table": "silver/t", "from": "bronze/events", **MODES["deduplicate"]})
    for rows in (FIRST, MORE):
        lakeside.append(rows)
    lakeside.refine(table)
    lakeside.expire(D2)
    lakeside.refine(table)

    lakeside.append([(5, "late", 1, "i", D2)])
    lakeside.refine(table)

    assert not [row for row in lakeside.rows("silver/t") if dict(row)["id"] == 5]
    audit = audit_refined(table, lake=lakeside.lake, session=lambda: lakeside.spark, everything=True)
    assert audit.equal and audit.first == D3


def made_now(lakeside: Lakeside, table: RefinedTableSpec) -> str:
    """The path of a table that is made at once of the rows that are upstream."""
    again = f"{table.table}_{lakeside.version(table.table)}_{lakeside.version('bronze/events')}"
    spec = refined_table(**{"table": again, "from": "bronze/events", **next(m for m in MODES.values() if of(m, table))})
    lakeside.refine(spec)
    return again


def of(fields: dict[str, Any], table: RefinedTableSpec) -> bool:
    """Whether a table has these fields."""
    return refined_table(**{"table": "silver/t", "from": "bronze/events", **fields}) == table


@pytest.mark.parametrize("mode", NOT_BY_DATE)
def test_a_table_that_is_not_computed_by_date_is_refused_once_dates_have_left_upstream(
    lakeside: Lakeside, mode: str
) -> None:
    """Purpose: what it computes again, it reads of all dates: it would lose what came of those that left."""
    table = refined_table(**{"table": "silver/t", "from": "bronze/events", **NOT_BY_DATE[mode]})
    lakeside.append(FIRST)
    lakeside.refine(table)
    before_it = lakeside.rows("silver/t")
    lakeside.expire(D2)
    lakeside.append([(9, "c", 1, "i", D2)])

    for rebuild in (False, True):
        with pytest.raises(NotByDate, match="bronze/events keeps no dates before 2026-01-02"):
            lakeside.refine(table, rebuild=rebuild)

    assert lakeside.rows("silver/t") == before_it


def test_a_join_with_a_table_whose_rows_leave_is_refused_and_keeps_those_from_leaving(lakeside: Lakeside) -> None:
    """Purpose: a late order of a date that is kept may belong to a customer whose row has left.
    Procedure: orders and customers; what their upkeep waits for; customers of an earlier date leave; a late order.
    """
    sql = "SELECT o.date, o.id, c.host FROM orders o JOIN customers c ON o.bytes = c.id"
    sources = ["bronze/orders", "bronze/customers"]
    table = refined_table(**{"table": "silver/t", "from": sources, "sql": sql, "mode": "replace_dates"})
    lakeside.append([(1, "ann", 0, "i", D1)], table="bronze/customers")
    lakeside.append([(7, "", 1, "i", D2)], table="bronze/orders")
    lakeside.refine(table)
    rows = lakeside.rows("silver/t")

    customers = replace(SILVER, table="bronze/customers")
    waits = waiting_followers(customers, {D1}, Followers((table,), (), Path()), lakeside.lake, kept_from=D2)
    lakeside.expire(D2, "bronze/customers")
    lakeside.append([(8, "", 1, "i", D2)], table="bronze/orders")
    with pytest.raises(
        NotByDate, match="bronze/customers keeps no dates before 2026-01-02, and silver/t is made of sev"
    ):
        lakeside.refine(table)

    assert waits == ("silver/t: it is made of several tables, so it cannot be computed without the dates that left",)
    assert lakeside.rows("silver/t") == rows and rows.total() == 1


def test_a_changed_document_is_refused_while_rows_of_dates_that_left_are_there_and_makes_a_new_table(
    lakeside: Lakeside,
) -> None:
    """Procedure: other SQL, then another column; then as the refusal says: the table is moved away."""
    table = refined_table(**{"table": "silver/t", "from": "bronze/events"})
    changed = replace(table, sql="SELECT id, date FROM events")
    lakeside.append(FIRST)
    lakeside.refine(table)
    lakeside.expire(D2)

    with pytest.raises(DatesNotKept, match="computes other rows than before"):
        lakeside.refine(changed)
    lakeside.gain_column()
    with pytest.raises(DatesNotKept, match="other columns: more"):
        lakeside.refine(table)
    with pytest.raises(DatesNotKept, match="2026-01-01 was requested"):
        lakeside.refine(table, dates=(D1, D2))
    Path(lakeside.uri("silver/t")).rename(lakeside.uri("silver/moved"))
    lakeside.refine(changed)

    assert before(lakeside.rows("silver/t"), D2) == Counter()
    lakeside.assert_as_computed_at_once(changed)


def test_a_column_that_becomes_wider_upstream_becomes_wider_in_rows_that_cannot_be_computed_again(
    lakeside: Lakeside,
) -> None:
    """Purpose: `types: evolve` widens a column for good, so "undo the change" would be no way out.
    Procedure: a date leaves; the column n becomes bigint, and a value comes that only a bigint has; then more, and a
    rebuild; then the column becomes text, which is another value.
    Pass: the frozen rows have their values, the others those of now, all as bigint; text is refused.
    """
    columns = "id bigint, n int, date date"
    lakeside.append([(1, 10, D1), (2, 20, D2)], schema=columns)
    table = refined_table(**{"table": "silver/t", "from": "bronze/events", "mode": "append"})
    lakeside.refine(table)
    lakeside.expire(D2)
    lakeside.refine(table)

    lakeside.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableTypeWidening = true)")
    lakeside.sql("ALTER TABLE {t} ALTER COLUMN n TYPE bigint")
    lakeside.sql("INSERT INTO {t} VALUES (3, 3000000000, DATE'2026-01-03')")
    widened = lakeside.refine(table)
    lakeside.sql("INSERT INTO {t} VALUES (4, 40, DATE'2026-01-03')")
    lakeside.refine(table)
    lakeside.refine(table, rebuild=True)

    assert (widened.kind, widened.rows_added, widened.rows_removed) == ("rebuild", 3, 2)
    assert "n int would be bigint" in widened.why and f"dates before {D2}" in widened.why
    found = sorted((dict(row)["id"], dict(row)["n"]) for row in lakeside.rows("silver/t"))
    assert found == [(1, 10), (2, 20), (3, 3_000_000_000), (4, 40)]
    with pytest.raises(DatesNotKept):
        lakeside.refine(replace(table, sql="SELECT id, CAST(n AS string) AS n, date FROM events"))


@pytest.mark.parametrize("rows_came", [True, False])
def test_a_replaced_upstream_table_leaves_the_dates_that_the_old_one_kept_no_longer(
    lakeside: Lakeside, *, rows_came: bool
) -> None:
    """Purpose: the new table does not say what the old one did not keep, and has other rows of these dates.
    Procedure: a date leaves, the next refinement, with rows or without; the upstream table is moved away and made again
    with other rows.
    Pass: the date has the rows of the old table, the others those of the new one.
    """
    table = refined_table(**{"table": "silver/t", "from": "bronze/events"})
    lakeside.append(FIRST)
    lakeside.refine(table)
    frozen = before(lakeside.rows("silver/t"), D2)
    lakeside.expire(D2)
    if rows_came:
        lakeside.append([(9, "c", 1, "i", D3)])
    lakeside.refine(table)

    Path(lakeside.uri("bronze/events")).rename(lakeside.uri("bronze/moved"))
    lakeside.append([(20, "z", 1, "i", D1), (21, "z", 1, "i", D3)])
    entry = lakeside.refine(table)

    assert entry.kind == "dates" and "stay as they are" in entry.why
    rows = lakeside.rows("silver/t")
    assert before(rows, D2) == frozen
    assert [dict(row)["id"] for row in rows - frozen] == [21]


def test_a_row_of_a_date_that_left_can_be_deleted_by_hand_and_a_rebuild_goes_on(lakeside: Lakeside) -> None:
    """Purpose: an erasure upstream does not reach these rows, so someone must be able to."""
    table = refined_table(**{"table": "silver/t", "from": "bronze/events"})
    lakeside.append(FIRST)
    lakeside.refine(table)
    lakeside.expire(D2)
    expected = lakeside.rows("silver/t")

    lakeside.sql("DELETE FROM {t} WHERE id = 2", "silver/t")
    with pytest.raises(ChangedByOthers):
        lakeside.refine(table)
    lakeside.refine(table, rebuild=True)

    assert lakeside.rows("silver/t") == Counter({row: n for row, n in expected.items() if dict(row)["id"] != 2})


@pytest.mark.parametrize("text", [False, True], ids=["", "dates as text"])
def test_an_asset_of_ones_own_is_not_told_of_rows_that_left(lakeside: Lakeside, *, text: bool) -> None:
    """Procedure: read all; a date leaves; rows come to it and to another, and change; another asset reads all."""

    def append(rows: list[tuple[Any, ...]]) -> None:
        schema = EVENTS.replace("date date", "date string") if text else EVENTS
        lakeside.append([(*row, str(day) if text else day) for *row, day in rows], schema=schema)

    append(FIRST)
    options = {"upstream": lakeside.uri("bronze/events"), "output": lakeside.uri("silver/own"), "consumer": "own"}
    everything = new_rows(lakeside.spark, **options)
    assert everything is not None and everything.kind == "everything"
    everything.append(everything.rows)

    lakeside.expire(D2)
    assert new_rows(lakeside.spark, **options) is None
    append([(9, "c", 1, "i", D1), (10, "c", 1, "i", D3)])
    appended = new_rows(lakeside.spark, **options)
    lakeside.sql("UPDATE {t} SET bytes = 7 WHERE id IN (9, 10)")
    changed = new_rows(lakeside.spark, **options)
    other = new_rows(lakeside.spark, **{**options, "output": lakeside.uri("silver/other")})

    assert appended is not None and changed is not None and other is not None
    assert (appended.kind, {row["id"] for row in appended.rows.collect()}) == ("appended", {10})
    assert appended.dates == frozenset({D3})
    assert (appended.rows_passed_over, changed.rows_passed_over) == (1, 1), "until the asset commits"
    assert (changed.kind, {row["id"] for row in changed.rows.collect()}) == ("changed", {10})
    assert {str(row["date"]) for row in other.rows.collect()} == {str(D2), str(D3)}
    assert other.kept_from == D2


def test_a_table_by_date_of_one_with_dates_as_text_computes_the_dates_that_changed(lakeside: Lakeside) -> None:
    """Purpose: a table that another system made, and that was taken over, has its dates as text.
    Procedure: a date leaves; late and new rows; a rebuild.
    """
    sql = "SELECT TRY_CAST(date AS DATE) AS date, count(*) AS n, sum(bytes) AS total FROM events GROUP BY date"
    table = refined_table(**{"table": "silver/t", "from": "bronze/events", "sql": sql, "mode": "replace_dates"})
    with_text = EVENTS.replace("date date", "date string")

    def append(*days: object) -> None:
        lakeside.append([(1, "a", 10, "i", str(day)) for day in days], schema=with_text)

    append(D1, D2, D3)
    lakeside.refine(table)
    frozen = before(lakeside.rows("silver/t"), D2)
    lakeside.expire(D2)
    append(D1, D1, D3)
    late = lakeside.refine(table)

    assert (late.kind, late.dates, late.rows_passed_over) == ("dates", (D3,), 2)
    assert before(lakeside.rows("silver/t"), D2) == frozen
    lakeside.refine(table, rebuild=True)
    assert [tuple(value for _, value in row) for row in sorted(lakeside.rows("silver/t"))] == [
        (D1, 1, 10),
        (D2, 1, 10),
        (D3, 2, 20),
    ]


TODAY = datetime.now(UTC)
SILVER = refined_table(**{"table": "silver/t", "from": "bronze/events", "keep": "2 days"})
GOLD = refined_table(
    **{"table": "gold/sums", "from": "silver/t", "mode": {"aggregate": {"by": ["date", "host"], "measures": SUMS}}}
)


def day(age: int) -> date:
    """The date of some days ago."""
    return (TODAY - timedelta(days=age)).date()


def kept(lakeside: Lakeside, *followers: RefinedTableSpec) -> DocumentUpkeep:
    """The nightly upkeep of the refined table."""
    known = Followers(followers, (), Path())
    planned = plan_upkeep(SILVER, lakeside.lake, now=TODAY, followers=known)
    return keep_document(SILVER, lakeside.lake, planned, session=lambda: lakeside.spark, now=TODAY, followers=known)


def days_of_table(lakeside: Lakeside, table: str) -> set[date]:
    return {dict(row)["date"] for row in lakeside.rows(table)}


def test_a_refined_table_keeps_its_own_time_and_waits_for_what_is_made_of_it(lakeside: Lakeside) -> None:
    """Procedure: a table that keeps two days, and sums of it; upkeep before and after the sums; late rows, a RESTORE of
    the table, a rebuild.
    Pass: upkeep says what it waits for, then removes the dates in one commit, which moves no bookmark; no refinement
    brings them back; the sums stay.
    """
    lakeside.append([(age, "a", age, "i", day(age)) for age in range(5)])
    lakeside.refine(SILVER)

    waits = kept(lakeside, GOLD).expiry
    lakeside.refine(GOLD)
    sums, before_it = lakeside.rows("gold/sums"), lakeside.version("silver/t")
    done = kept(lakeside, GOLD)

    assert waits is not None and waits.committed is None
    assert "gold/sums" in " ".join(waits.waits_for)
    assert not done.all_errors and done.expiry is not None and done.expiry.committed is not None
    entry = done.expiry.committed
    assert (entry.kind, entry.version, entry.kept_from) == ("expire", before_it + 1, day(2))
    assert dict(entry.removed_by_date) == {day(4): 1, day(3): 1}
    assert days_of_table(lakeside, "silver/t") == {day(0), day(1), day(2)}
    assert lakeside.refine(SILVER).kind == "nothing"
    assert lakeside.refine(GOLD).rows_removed == 0
    expiry = kept(lakeside, GOLD).expiry
    assert expiry is not None and expiry.committed is None and not expiry.rows

    lakeside.append([(10, "b", 1, "i", day(3)), (11, "b", 1, "i", day(1))])
    late, of_sums = lakeside.refine(SILVER), lakeside.refine(GOLD)
    assert (late.kind, late.rows_added, late.rows_passed_over) == ("changes", 1, 1)
    assert before(lakeside.rows("gold/sums"), day(2)) == before(sums, day(2))
    assert of_sums.rows_added == 1
    lakeside.refine(SILVER, rebuild=True)
    lakeside.refine(GOLD)
    assert days_of_table(lakeside, "silver/t") == {day(0), day(1), day(2)}
    lakeside.sql(f"RESTORE {{t}} TO VERSION AS OF {before_it}", "silver/t")
    assert day(4) in days_of_table(lakeside, "silver/t")
    lakeside.refine(SILVER)
    lakeside.refine(GOLD)
    assert before(lakeside.rows("gold/sums"), day(2)) == before(sums, day(2))
    again = kept(lakeside, GOLD).expiry
    assert again is not None and again.committed is not None
    audit = audit_refined(SILVER, lake=lakeside.lake, session=lambda: lakeside.spark, everything=True)
    assert audit.equal and (audit.first, audit.rows) == (day(2), 4)


def test_two_times_of_keeping_end_dates_once_each_and_a_changed_document_is_no_longer_refused(
    lakeside: Lakeside,
) -> None:
    """Procedure: the table upstream keeps one day, the refined one two; then other SQL before and after its upkeep."""
    shorter = replace(SILVER, sql="SELECT id, date FROM events")
    lakeside.append([(age, "a", age, "i", day(age)) for age in range(4)])
    lakeside.refine(SILVER)

    lakeside.expire(day(1))
    kept(lakeside)
    assert days_of_table(lakeside, "silver/t") == {day(0), day(1), day(2)}
    with pytest.raises(DatesNotKept, match=f"before {day(1)}"):
        lakeside.refine(shorter)
    lakeside.sql(f"DELETE FROM {{t}} WHERE date = '{day(2)}'", "silver/t")
    lakeside.refine(shorter, rebuild=True)

    assert days_of_table(lakeside, "silver/t") == {day(0), day(1)}


def test_an_erasure_names_rows_of_dates_that_it_does_not_reach_and_how_to_delete_them(lakeside: Lakeside) -> None:
    """Procedure: a date leaves; a person is erased upstream; then as the error says, and the erasure again."""
    table = refined_table(**{"table": "silver/t", "from": "bronze/events"})
    lakeside.append(FIRST)
    lakeside.refine(table)
    lakeside.expire(D2)
    lakeside.sql("DELETE FROM {t} WHERE id = 1")

    def follow() -> FollowedErasure:
        of, where = Downstream((table,)), "id = 1"
        (found,) = follow_erasure(of, lake=lakeside.lake, session=lambda: lakeside.spark, where=where)
        return found

    left = follow()
    assert isinstance(left.error, ErasedRowsFrozen) and left.rows_left == 1
    statement, then = left.error.message_parts()[2].split("; then ")
    lakeside.spark.sql(shlex.split(statement)[2].replace("CONDITION", "id = 1"))
    assert then == "kdi refine silver/t --rebuild"
    lakeside.refine(table, rebuild=True)

    assert follow() == FollowedErasure("silver/t", lakeside.version("silver/t"), 0, 0)
    assert before(lakeside.rows("silver/t"), D2).total() == 1


def test_a_copy_in_a_database_has_what_its_table_has(lakeside: Lakeside, tmp_path: Path) -> None:
    """Purpose: a database has the rows of exactly one version; a refined table is what keeps rows for longer."""
    into = DuckDb(file=str(tmp_path / "kept.duckdb"), table="events")
    copy = ServedTableSpec(table="bronze/events", into=into, keys=("id", "date"))
    lakeside.append(FIRST)
    serve(copy, lake=lakeside.lake, session=lambda: lakeside.spark)

    lakeside.expire(D2)
    report = serve(copy, lake=lakeside.lake, session=lambda: lakeside.spark)

    assert report.upserted == 2
    with duckdb.connect(str(tmp_path / "kept.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT DISTINCT date FROM events").fetchall() == [(D2,)]
