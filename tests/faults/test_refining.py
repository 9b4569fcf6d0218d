"""Refined tables under crashes, races, RESTOREs and lost history: the rows stay those of a full recomputation."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from deltalake import DeltaTable

from kdi_assets.errors import KdiError
from kdi_assets.refine.consumer import NewRows, new_rows
from kdi_assets.refine.errors import (
    AnotherRefinementActive,
    ChangedByOthers,
    ColumnsFrozen,
    ConstraintViolated,
    DateNotKept,
    QueryMistake,
    RefiningFailed,
    RowsNotComputable,
    RowsNotOneByOne,
    RowsUnmet,
    TableNotRefined,
    UpstreamMissing,
)
from kdi_assets.stream.message_rules import ColumnContract
from kdi_assets.stream.refined_table import Deduplicate, RefinedTableSpec, Upstream
from tests.driven import Once
from tests.refined import COPY, D1, D2, FIRST, MORE, STATE, SUMS, Lakeside, refined_table

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


def _cleaned_log(lakeside: Lakeside) -> None:
    """The log of the upstream table from its newest version on, as a clean-up leaves it."""
    from deltalake import DeltaTable

    lakeside.append([(6, "b", 2, "i", D1)])  # the commit before this one goes too, and was not consumed
    DeltaTable(lakeside.uri("bronze/events")).create_checkpoint()
    for commit in sorted(Path(lakeside.uri("bronze/events"), "_delta_log").glob("*.json"))[:-1]:
        commit.unlink()


def _without_feed(lakeside: Lakeside) -> None:
    lakeside.sql("UPDATE {t} SET bytes = bytes + 1 WHERE id = 1")
    shutil.rmtree(Path(lakeside.uri("bronze/events"), "_change_data"))


def _replaced(lakeside: Lakeside) -> None:
    shutil.rmtree(lakeside.uri("bronze/events"))
    lakeside.append(MORE)


def _overwritten(lakeside: Lakeside) -> None:
    frame = lakeside.spark.read.format("delta").load(lakeside.uri("bronze/events")).where("id <> 1")
    frame.write.format("delta").mode("overwrite").save(lakeside.uri("bronze/events"))


def _gained_column(lakeside: Lakeside) -> None:
    lakeside.sql("ALTER TABLE {t} ADD COLUMNS (more string)")
    lakeside.sql("INSERT INTO {t} VALUES (8, 'e', 80, 'i', DATE'2026-01-02', 'x')")


def _other_type(lakeside: Lakeside) -> None:
    from pyspark.sql import functions as F

    frame = lakeside.spark.read.format("delta").load(lakeside.uri("bronze/events"))
    wider = frame.withColumn("bytes", F.col("bytes").cast("decimal(20,0)"))
    writer = wider.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.partitionBy("date").save(lakeside.uri("bronze/events"))


HISTORY: dict[str, tuple[Callable[[Lakeside], None], str]] = {
    "log cleaned": (_cleaned_log, "no longer in its log"),
    "change feed gone": (_without_feed, "without a change feed"),
    "replaced": (_replaced, "nothing of it was consumed before"),
    "overwritten": (_overwritten, ""),
    "gained a column": (_gained_column, ""),
    "other type": (_other_type, "changed its type"),
}


@pytest.mark.parametrize("history", HISTORY)
def test_history_that_is_lost_or_changed_upstream_is_said_and_leaves_no_gap(lakeside: Lakeside, history: str) -> None:
    happens, said = HISTORY[history]
    for table in (COPY, SUMS):
        lakeside.append(FIRST) if table is COPY else None
        lakeside.refine(table)
    lakeside.append(MORE)
    happens(lakeside)

    lines: list[str] = []
    reports = [lakeside.refine(table, report=lines.append) for table in (COPY, SUMS)]

    assert all(report.version is not None for report in reports)
    assert all(said in report.why for report in reports), [report.why for report in reports]
    for table in (COPY, SUMS):
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


def test_another_definition_computes_all_rows_again(lakeside: Lakeside) -> None:
    lakeside.append(FIRST)
    lakeside.refine(COPY)
    other = replace(COPY, sql="SELECT id, date FROM events WHERE id > 1")

    report = lakeside.refine(other)

    assert (report.kind, report.why) == ("rebuild", "the document computes other rows than before")
    lakeside.assert_as_computed_at_once(other)


@pytest.mark.parametrize(
    ("contract", "sql", "said"),
    [
        ({"new_columns": "freeze"}, "SELECT *, 1 AS one FROM events", "one int is new. `contract.new_columns`"),
        (
            {"types": "freeze"},
            "SELECT id, CAST(bytes AS int) AS bytes, op, date FROM events",
            "host string would be gone",
        ),
    ],
)
def test_columns_that_a_contract_freezes_are_refused_and_the_rows_wait(
    lakeside: Lakeside, contract: dict[str, Any], sql: str, said: str
) -> None:
    """Procedure: another document changes the columns, and so does an upstream column; under freeze, then evolve.
    Pass: refused and nothing committed; the upstream column alone, of which the sql says nothing, is refused too.
    """
    lakeside.append(FIRST)
    lakeside.refine(COPY)
    frozen = replace(COPY, sql=sql, contract=ColumnContract(**contract))
    before = lakeside.rows(COPY.table)

    with pytest.raises(ColumnsFrozen, match=re.escape(said)):
        lakeside.refine(frozen)
    assert lakeside.rows(COPY.table) == before
    _gained_column(lakeside)
    if "new_columns" in contract:
        with pytest.raises(ColumnsFrozen, match="more string is new"):
            lakeside.refine(replace(frozen, sql=COPY.sql))
    report = lakeside.refine(replace(frozen, contract=ColumnContract()))

    assert report.kind == "rebuild"
    lakeside.assert_as_computed_at_once(replace(frozen, contract=ColumnContract()))


REFUSED: dict[str, tuple[dict[str, Any], type[KdiError], str]] = {
    "group": ({"sql": "SELECT date, count(*) AS n FROM events GROUP BY date"}, RowsNotOneByOne, "Aggregate"),
    "join": ({"sql": "SELECT a.* FROM events a JOIN events b ON a.id = b.id"}, RowsNotOneByOne, "Join"),
    "join in a CTE": (
        {"sql": "WITH both AS (SELECT a.* FROM events a JOIN events b ON a.id = b.id) SELECT * FROM both"},
        RowsNotOneByOne,
        "Join",
    ),
    "limit": ({"sql": "SELECT * FROM events LIMIT 1"}, RowsNotOneByOne, "Limit"),
    "subquery": ({"sql": "SELECT * FROM events WHERE id = (SELECT max(id) FROM events)"}, RowsNotOneByOne, "subquery"),
    "random": ({"sql": "SELECT *, rand() AS r FROM events"}, RowsNotOneByOne, "deterministic"),
    "clock": ({"sql": "SELECT *, current_timestamp() AS at FROM events"}, QueryMistake, "sql .* asks the clock"),
    "clock in a condition": (
        {"sql": "SELECT * FROM events WHERE date < current_date()", "mode": "replace_dates"},
        QueryMistake,
        "sql .* asks the clock",
    ),
    "clock in the mode": (
        {"mode": {"deduplicate": {"keys": ["id"], "order_by": "unix_date(current_date()) - id"}}},
        QueryMistake,
        "mode .* asks the clock",
    ),
    "date": ({"sql": "SELECT id, date_add(date, 1) AS date FROM events"}, DateNotKept, "date"),
    "date in a CTE": (
        {"sql": "WITH moved AS (SELECT id, date_add(date, 1) AS date FROM events) SELECT * FROM moved"},
        DateNotKept,
        "date",
    ),
    "no date": ({"sql": "SELECT id FROM events"}, QueryMistake, "no column date"),
    "unknown column": ({"sql": "SELECT wrong, date FROM events"}, QueryMistake, "wrong"),
    "function": ({"python": "tests.refined:no_such"}, QueryMistake, "no_such"),
    "function of something else": ({"python": "builtins:repr"}, QueryMistake, "source is unknown"),
    "function without rows": ({"python": "tests.refined:without_rows"}, QueryMistake, "NoneType, and not a DataFrame"),
    "function fails": ({"python": "tests.refined:failing"}, QueryMistake, "KeyError: 'amount'"),
    "expectation": ({"expectations": {"small": {"sql": "bytes < 15", "then": "fail"}}}, RowsUnmet, "2 new rows"),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_what_would_not_stay_equal_to_a_recomputation_is_refused(lakeside: Lakeside, mistake: str) -> None:
    fields, error, said = REFUSED[mistake]
    lakeside.append(FIRST)
    table = refined_table(**{"table": "silver/wrong", "from": "bronze/events", **fields})

    with pytest.raises(error, match=said):
        lakeside.refine(table)

    assert not Path(lakeside.uri("silver/wrong")).exists() or not lakeside.rows("silver/wrong")


DATED = refined_table(**{"table": "silver/dated", "from": "bronze/events", "mode": "replace_dates"})
PARTITIONED = (COPY, SUMS, DATED, replace(COPY, mode=Deduplicate(keys=("id",), order_by="bytes")))


@pytest.mark.parametrize("table", PARTITIONED, ids=lambda t: type(t.mode).__name__)
def test_a_document_that_changes_its_partitions_doubles_no_row(lakeside: Lakeside, table: RefinedTableSpec) -> None:
    """Purpose: a date's rows are replaced by its files; without partitions by date it has none, and none is removed.
    Procedure: refine without partitions; with them; a late row, a DELETE; refine without them and without dates.
    Pass: each time the table is as computed at once, and has the document's partitions.
    """
    lakeside.append(FIRST)
    lakeside.refine(replace(table, partition_by=None))

    late = [(5, "c", 40, "i", D1)]
    steps: tuple[Callable[[], object], ...] = (
        lambda: None,
        lambda: lakeside.append(late),
        lambda: lakeside.sql("DELETE FROM {t} WHERE id = 1"),
    )
    for happens in steps:
        happens()
        lakeside.refine(table)
        lakeside.assert_as_computed_at_once(table)
    assert lakeside.partitions(table.table) == ["date"]
    if table is COPY:
        undated = replace(table, partition_by=None, sql="SELECT id, host FROM events")
        for rows in (FIRST[:1], MORE):
            lakeside.refine(undated)
            lakeside.assert_as_computed_at_once(undated)
            lakeside.append(rows)
        assert lakeside.partitions(table.table) == []


@pytest.mark.parametrize("partitions", [(), ("date", "host")])
def test_an_empty_table_that_someone_made_gets_the_partitions_of_the_document(
    lakeside: Lakeside, partitions: tuple[str, ...]
) -> None:
    """Pass: the rows are those of a recomputation; partitions that are finer than the document's stay."""
    lakeside.append(FIRST)
    events = lakeside.spark.read.format("delta").load(lakeside.uri("bronze/events")).limit(0)
    events.write.format("delta").partitionBy(*partitions).save(lakeside.uri(DATED.table))

    for rows in ([(5, "c", 40, "i", D1)], MORE):
        lakeside.refine(DATED)
        lakeside.append(rows)
    lakeside.refine(DATED)

    lakeside.assert_as_computed_at_once(DATED)
    assert lakeside.partitions(DATED.table) == (list(partitions) or ["date"])


@pytest.mark.parametrize(("partition_by", "feed"), [("date", "true"), ("date", "false"), (None, "false")])
def test_a_change_of_columns_reads_as_it_was_written_under_column_mapping(
    lakeside: Lakeside, partition_by: Literal["date"] | None, feed: str
) -> None:
    """Purpose: names in files and in the log must be the same ones, and Delta draws them anew for each new column.
    Procedure: with column mapping, refine, a column more in sql, rows, a column less and one of another type.
    Pass: by Spark, each time the rows of a recomputation, and the report counts them by date; with a change feed the
    last one is a terminal error.
    """
    properties = {"delta.columnMapping.mode": "name", "delta.enableChangeDataFeed": feed}
    mapped = replace(COPY, partition_by=partition_by, properties=properties)
    wider, other = "id, host, bytes, op, date, struct(upper(host) AS host) AS more", "id, string(bytes) AS bytes, date"
    read = lakeside.spark.read.format("delta").load

    for rows, columns in ((FIRST, "id, host, bytes, op, date"), (MORE, wider), (MORE, wider), (MORE, other)):
        lakeside.append(rows)
        table = replace(mapped, sql=f"SELECT {columns} FROM events")
        if feed == "true" and columns == other:
            with pytest.raises(RowsNotComputable, match="DROP COLUMN"):
                lakeside.refine(table)
            break
        report = lakeside.refine(table)

        expected = read(lakeside.uri("bronze/events")).selectExpr(*columns.split(", "))
        found = read(lakeside.uri(COPY.table))
        assert found.columns == expected.columns
        assert Counter(found.collect()) == Counter(expected.collect())
        assert sum(report.rows_by_date.values()) == (report.rows_added if partition_by else 0)


def test_what_reads_a_table_whose_partitions_changed_goes_on(lakeside: Lakeside) -> None:
    """Purpose: the change feed cannot be read over a change of partitions."""
    downstream = replace(STATE, upstreams=(Upstream(COPY.table, "events"),))
    lakeside.append(FIRST)
    lakeside.refine(replace(COPY, partition_by=None))
    lakeside.refine(downstream)

    for _ in range(2):
        lakeside.refine(COPY)
        lakeside.refine(downstream)
        lakeside.assert_as_computed_at_once(downstream)
        lakeside.append(MORE)


def _column_undone(lakeside: Lakeside) -> None:
    before = lakeside.version("bronze/events")
    _gained_column(lakeside)
    lakeside.sql("RESTORE {t} TO VERSION AS OF " + str(before))


def _feed_off_and_on(lakeside: Lakeside) -> None:
    for on in ("false", "true"):
        lakeside.sql("ALTER TABLE {t} SET TBLPROPERTIES (delta.enableChangeDataFeed = " + on + ")")
        lakeside.sql("UPDATE {t} SET bytes = bytes + 1 WHERE id = 1")


@pytest.mark.parametrize("happens", [_column_undone, _feed_off_and_on])
def test_what_is_undone_upstream_before_the_next_run_leaves_no_gap(
    lakeside: Lakeside, happens: Callable[[Lakeside], None]
) -> None:
    """Purpose: Delta refuses to read a feed over commits that had other columns, or none of the feed.
    Procedure: rows; a column and its RESTORE, or the feed off and on; and a DELETE, all in one stretch.
    Pass: each mode is as computed at once, and so is what the next rows make of it.
    """
    tables = (COPY, SUMS, STATE)
    lakeside.append(FIRST)
    for table in tables:
        lakeside.refine(table)
    lakeside.append(MORE)
    happens(lakeside)
    lakeside.sql("DELETE FROM {t} WHERE id = 2")

    for _ in range(2):
        for table in tables:
            lakeside.refine(table)
            lakeside.assert_as_computed_at_once(table)
        lakeside.append([(6, "b", 2, "i", D1)])


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
        patch.setattr(f"kdi_assets.refine.refine.{call}", fails)
        with pytest.raises(RefiningFailed, match="silver/copy: "):
            lakeside.refine(COPY)
    lakeside.refine(COPY)

    lakeside.assert_as_computed_at_once(COPY)


def test_an_upstream_table_that_does_not_exist_yet_is_waited_for(lakeside: Lakeside) -> None:
    with pytest.raises(UpstreamMissing):
        lakeside.refine(COPY)

    lakeside.append(FIRST)
    lakeside.refine(COPY)

    lakeside.assert_as_computed_at_once(COPY)
