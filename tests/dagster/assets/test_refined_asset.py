"""Materializing refined tables: which dates get events, in which order, and what a refusal becomes."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

import dagster as dg
import pytest
from dagster import DagsterInstance

from kdi_assets.components.names import table_key
from kdi_assets.components.refined_checks import refined_check_key
from kdi_assets.components.refined_groups import refined_groups
from kdi_assets.components.table_run import REQUESTED_TAG
from kdi_assets.documents.model.limits import FreshnessLimits
from kdi_assets.documents.model.message_rules import Expectation
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream import DateWindow
from kdi_assets.follow.refine.audit.audit import RefinedAudit
from kdi_assets.follow.refine.errors import ChangedByOthers, RefiningFailed
from kdi_assets.follow.refine.row_errors import RowsUnmet
from kdi_assets.operate.monitoring.refined_status import RefinedStatus
from tests.dagster.fakes import a_stream, events, failure, materialize, observed, will_retry, yesterday
from tests.dagster.refined_world import (
    BRONZE,
    GOLD,
    SILVER,
    ScriptedRefine,
    a_refined_table,
    refined_assets,
    run_refined,
)

pytestmark = pytest.mark.usefixtures("lake_in_environment")
core = pytest.mark.core

OLD = date(2021, 3, 4)
DECIDE = ChangedByOthers(table=SILVER.name, uri="/lake", version=4, operation="DELETE")
AGAIN = RefiningFailed(table=SILVER.name, doing="reading", detail="gone")


def materialized(instance: DagsterInstance, table: RefinedTableSpec) -> set[str]:
    return instance.get_materialized_partitions(table_key(table))


@core
def test_one_run_refines_all_levels_in_order_and_materializes_the_touched_dates_of_each_and_no_other(
    instance: DagsterInstance,
) -> None:
    """Dagster would skip gold after silver, which has no result: so they share an op."""
    refine = ScriptedRefine({SILVER.name: {OLD: 3, yesterday(): 2}, GOLD.name: {OLD: 1}})

    result = run_refined(instance, refine, GOLD, SILVER)

    assert result.success
    assert refine.asked == [(SILVER.name, None), (GOLD.name, None)]
    assert materialized(instance, SILVER) == {OLD.isoformat(), yesterday().isoformat()}
    assert materialized(instance, GOLD) == {OLD.isoformat()}


@core
def test_an_event_says_what_the_commit_did_and_carries_the_table_version(instance: DagsterInstance) -> None:
    run_refined(instance, ScriptedRefine({SILVER.name: {OLD: 3, yesterday(): 2}}, unmet={"known": 1}), SILVER)

    of_old = dg.AssetRecordsFilter(asset_key=table_key(SILVER), asset_partitions=[OLD.isoformat()])
    (record,) = instance.fetch_materializations(of_old, limit=10).records
    event = record.asset_materialization
    assert event is not None
    assert (event.tags or {})["dagster/data_version"] == "7"
    said = {name: value.value for name, value in event.metadata.items()}
    assert (said["rows_added"], said["rows_removed"]) == (3, 1)
    assert (said["delta_version"], said["refined"]) == (7, "changes")
    assert said["commit"] == "5 rows added, 1 removed, on 2 dates"
    assert said["why"] == "new rows in bronze/web_requests"
    assert said["upstream_versions"] == {BRONZE.table: "(3, 5]"}
    assert said["expectations_not_met"] == {"known": 1}
    lineage = said["dagster/column_lineage"]
    assert isinstance(lineage, dg.TableColumnLineage)
    assert lineage.deps_by_column == {"date": [dg.TableColumnDep(table_key(BRONZE), "date")]}
    assert observed(instance, table_key(SILVER))["refined_rows"] == 5


def test_a_run_that_finds_nothing_new_materializes_nothing_and_is_still_seen(instance: DagsterInstance) -> None:
    assert run_refined(instance, ScriptedRefine(), SILVER).success

    assert materialized(instance, SILVER) == set()
    seen = observed(instance, table_key(SILVER))
    assert (seen["refinement"], seen["refined_rows"], "refined_version" in seen) == ("nothing", 0, False)


@core
@pytest.mark.parametrize("until", [None, OLD + timedelta(days=9)], ids=["a date", "a range in one run"])
def test_a_person_who_asks_for_older_dates_has_them_computed_again(
    instance: DagsterInstance, until: date | None
) -> None:
    refine = ScriptedRefine({SILVER.name: {OLD: 3}})

    assert run_refined(instance, refine, SILVER, day=OLD, until=until).success

    assert refine.asked == [(SILVER.name, (OLD, until or OLD))]
    assert materialized(instance, SILVER) == {OLD.isoformat()}


def test_a_run_by_a_condition_takes_what_is_new_whatever_its_date(instance: DagsterInstance) -> None:
    refine = ScriptedRefine()

    run_refined(instance, refine, SILVER, day=OLD, tags={"dagster/from_automation_condition": "true"})

    assert refine.asked == [(SILVER.name, None)]


def test_a_run_that_was_queued_past_midnight_computes_no_date_again(instance: DagsterInstance) -> None:
    requested = datetime.combine(yesterday(), time(23, 59, 59), UTC).isoformat()
    refine = ScriptedRefine()

    run_refined(instance, refine, SILVER, day=yesterday(), tags={REQUESTED_TAG: requested})

    assert refine.asked == [(SILVER.name, None)]


def test_every_date_of_a_backfill_has_an_event(instance: DagsterInstance) -> None:
    last = OLD + timedelta(days=2)

    run_refined(
        instance,
        ScriptedRefine({SILVER.name: {OLD: 3}}),
        SILVER,
        day=OLD,
        until=last,
        tags={"dagster/backfill": "some"},
    )

    found = events(instance, table_key(SILVER))
    assert {day: event["rows_added"] for day, event in found.items()} == {
        OLD.isoformat(): 3,
        (OLD + timedelta(days=1)).isoformat(): 0,
        last.isoformat(): 0,
    }


def test_a_table_without_dates_is_one_asset_that_is_materialized_as_a_whole(instance: DagsterInstance) -> None:
    whole = a_refined_table("gold/customers", partition_by=None)
    refine = ScriptedRefine({whole.name: {}})

    assert run_refined(instance, refine, whole).success

    assert list(events(instance, table_key(whole))) == [""]


@core
@pytest.mark.parametrize(("refusal", "retried"), [(DECIDE, False), (AGAIN, True)])
def test_a_refused_table_fails_the_run_after_the_others_are_refined(
    instance: DagsterInstance, refusal: ChangedByOthers | RefiningFailed, retried: bool
) -> None:
    refine = ScriptedRefine({GOLD.name: {OLD: 1}}, endings={SILVER.name: refusal})

    result = run_refined(instance, refine, SILVER, GOLD)

    assert not result.success and will_retry(instance, result) is retried
    assert failure(result)[1]["error"] == type(refusal).__name__
    assert materialized(instance, GOLD) == {OLD.isoformat()}


@pytest.mark.parametrize(
    ("refine", "passed", "said"),
    [
        (ScriptedRefine({SILVER.name: {OLD: 3}}), True, "all new rows meet them"),
        (ScriptedRefine({SILVER.name: {OLD: 3}}, unmet={"known": 2}), False, "2 rows not meeting known"),
        (
            ScriptedRefine(endings={SILVER.name: RowsUnmet(table=SILVER.name, expectation="known", rows=2)}),
            False,
            "silver/sessions: 2 new rows do not meet the expectation known.",
        ),
        (ScriptedRefine(), True, "no row is new"),
    ],
)
def test_the_check_of_expectations_counts_the_rows_of_the_run(
    instance: DagsterInstance, refine: ScriptedRefine, passed: bool, said: str
) -> None:
    table = a_refined_table(expectations={"known": Expectation("host IS NOT NULL")})

    result = run_refined(instance, refine, table, checks=["expectations"])

    (evaluation,) = result.get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.description) == (passed, said)


def test_expectations_that_were_not_met_stay_so_until_rows_are_new(instance: DagsterInstance) -> None:
    table = a_refined_table(expectations={"known": Expectation("host IS NOT NULL")})
    run_refined(instance, ScriptedRefine({SILVER.name: {OLD: 3}}, unmet={"known": 2}), table, checks=["expectations"])

    result = run_refined(instance, ScriptedRefine(), table, checks=["expectations"])

    (evaluation,) = result.get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.description) == (False, "2 rows not meeting known")


def test_a_table_that_is_refused_is_not_up_to_date(instance: DagsterInstance) -> None:
    table = a_refined_table(freshness=FreshnessLimits(60, 600))
    refine = ScriptedRefine(status=RefinedStatus(table, refusal=DECIDE))

    result = run_refined(instance, refine, table, checks=["up_to_date"])

    (evaluation,) = result.get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.description) == (False, DECIDE.message_parts()[0])


def test_a_recomputation_with_other_rows_is_an_error_that_names_the_dates(instance: DagsterInstance) -> None:
    refine = ScriptedRefine(
        audited=RefinedAudit(SILVER.name, 7, (), (OLD,), 10, missing=2, surplus=1, different_dates=(OLD,))
    )

    result = run_refined(instance, refine, SILVER, checks=["equal_to_recomputation"])

    (evaluation,) = result.get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.description) == (False, "1 date of v7: 2 rows missing, 1 too many")
    assert evaluation.metadata["dates"].value == OLD.isoformat()


def test_a_check_can_be_made_alone(instance: DagsterInstance) -> None:
    refine = ScriptedRefine()
    selected = refined_check_key(SILVER, "equal_to_recomputation")

    result = materialize(instance, refined_assets(refine, SILVER, GOLD), selected)

    (evaluation,) = result.get_asset_check_evaluations()
    assert (evaluation.passed, evaluation.description) == (True, "all rows of v7 equal a recomputation")
    assert refine.asked == []


def test_the_dates_of_a_refined_table_are_those_of_its_upstream_tables() -> None:
    early = a_stream("bronze/early", date_window=DateWindow(start=date(2022, 1, 1), ahead_days=0))
    late = a_stream("bronze/late", date_window=DateWindow(start=date(2024, 1, 1), ahead_days=5))
    joined = a_refined_table("silver/joined", early.table, late.table)
    below = a_refined_table("gold/below", joined.name)
    own = a_refined_table("silver/own", late.table, start=date(2025, 1, 1))
    whole = a_refined_table("gold/whole", joined.name, partition_by=None)

    groups = {t.name: g for g in refined_groups([joined, below, own, whole], [early, late]) for t in g.tables}

    assert {name: group.window for name, group in groups.items()} == {
        "silver/joined": (date(2022, 1, 1), 5),
        "gold/below": (date(2022, 1, 1), 5),
        "silver/own": (date(2025, 1, 1), 5),
        "gold/whole": None,
    }
    assert groups["silver/joined"] is groups["gold/below"]
    assert [t.name for t in groups["gold/below"].tables] == ["silver/joined", "gold/below"]
