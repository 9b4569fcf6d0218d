"""The follow sensor: which tables share a run, and what waits."""

from __future__ import annotations

import linecache
from datetime import date, timedelta
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from dagster import DagsterInstance
from deltalake import write_deltalake

from kdi_assets.components.names import table_key
from kdi_assets.components.refined_checks import refined_check_key
from kdi_assets.documents.model.message_rules import Expectation
from kdi_assets.documents.model.stream import DateWindow
from kdi_assets.downstream import on_new_upstream_data
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.errors import UpstreamMissing
from kdi_assets.follow.refine.row_errors import QueryMistake
from kdi_assets.follow.refine.transform import function_source
from kdi_assets.operate.monitoring.refined_status import read_refined_status
from tests.dagster.built_on_bronze import BRONZE as AUDITED
from tests.dagster.built_on_bronze import World
from tests.dagster.fakes import a_stream, today
from tests.dagster.follow_ticks import DECIDE, MISSING, Sensor
from tests.dagster.refined_world import BRONZE, GOLD, SILVER, a_refined_table

pytestmark = pytest.mark.usefixtures("lake_in_environment")
core = pytest.mark.core


@core
def test_one_run_takes_a_table_that_is_behind_and_all_that_is_made_of_it(sensor: Sensor) -> None:
    """However many dates are new: a run refines all of them."""
    known = a_refined_table(expectations={"known": Expectation("host IS NOT NULL")})
    sensor.tables = (GOLD, known, a_refined_table("silver/other"))
    sensor.behind = {SILVER.name}

    (request,) = sensor.tick()

    assert set(request.asset_selection or ()) == {table_key(SILVER), table_key(GOLD)}
    assert request.partition_key == today().isoformat()
    assert request.asset_check_keys == [refined_check_key(known, "expectations")], "no recomputation"
    assert request.tags["kdi/why"] == "silver/sessions: changes: new rows"


def test_a_tick_without_anything_new_requests_nothing_and_says_so(sensor: Sensor) -> None:
    assert sensor.tick() == []
    assert sensor.said == "every table is up to date"


def test_tables_without_date_partitions_have_a_run_of_their_own(sensor: Sensor) -> None:
    whole = a_refined_table("gold/whole", SILVER.name, partition_by=None)
    sensor.tables = (SILVER, GOLD, whole)
    sensor.behind = {SILVER.name, whole.name}

    requests = sensor.tick()

    keys = {frozenset(k.to_user_string() for k in r.asset_selection or ()): r.partition_key for r in requests}
    assert keys == {
        frozenset({SILVER.name, GOLD.name}): today().isoformat(),
        frozenset({whole.name}): None,
    }


def test_tables_of_different_date_windows_share_a_run(sensor: Sensor) -> None:
    """`kdi new` writes the oldest date of a topic's sample: tables of seventy topics have seventy windows."""
    late = a_stream("bronze/late", date_window=DateWindow(start=date(2024, 1, 1)))
    of_late = a_refined_table("silver/late", late.table)
    sensor.streams, sensor.tables = (BRONZE, late), (SILVER, GOLD, of_late)
    sensor.behind = {SILVER.name, of_late.name}

    (request,) = sensor.tick()

    assert sorted(sensor.carry_out(request)) == [GOLD.name, of_late.name, SILVER.name]


def test_a_table_whose_dates_begin_later_than_those_of_the_table_it_is_made_of_has_a_run_of_its_own(
    sensor: Sensor,
) -> None:
    """They have two ops, and Dagster skips a step after one without a result: its table would not be refined."""
    later = a_refined_table("gold/later", SILVER.name, start=date(2024, 1, 1))
    last = a_refined_table("gold/last", later.name, start=date(2025, 1, 1))
    sensor.tables = (last, later, SILVER)
    sensor.behind = {table.name for table in sensor.tables}

    refined = [sensor.carry_out(request) for request in sensor.tick()]

    assert refined == [[SILVER.name], [later.name], [last.name]]


def test_a_table_whose_dates_do_not_include_today_is_said_and_does_not_fail_the_tick(sensor: Sensor) -> None:
    """Dagster would refuse the whole tick, and with it the requests and events of every other table."""
    begins = today() + timedelta(days=30)
    early = a_refined_table("silver/early", start=begins)
    below = a_refined_table("gold/early", "bronze/early")
    sensor.streams = (BRONZE, a_stream("bronze/early", date_window=DateWindow(start=begins)))
    sensor.tables, sensor.behind = (SILVER, early, below), {early.name, below.name}

    nothing = sensor.selected()
    said = sensor.said or ""
    sensor.behind |= {SILVER.name}

    assert nothing == []
    assert f"silver/early: its dates begin on {begins}; no run before that" in said
    assert f"gold/early: its dates begin on {begins}; no run before that" in said
    assert sensor.selected() == [{SILVER.name}]


@core
def test_a_run_that_committed_nothing_is_requested_again_later_and_alone(sensor: Sensor) -> None:
    other = a_refined_table("silver/other")
    sensor.tables, sensor.behind = (SILVER, GOLD, other), {SILVER.name, other.name}
    assert sensor.selected() == [{SILVER.name, GOLD.name, other.name}]
    sensor.versions[other.name] = 2

    at_once = sensor.selected()
    sensor.later(11)
    second = sensor.selected()
    sensor.later(11)
    too_early = sensor.selected()
    sensor.later(10)
    third = sensor.selected()

    assert at_once == [{other.name}], "it committed, and is behind again"
    assert {SILVER.name} in second and {SILVER.name} in third
    assert {SILVER.name} not in too_early


@pytest.mark.parametrize(("refusal", "requested"), [(MISSING, []), (DECIDE, [{SILVER.name, GOLD.name}])])
def test_a_refusal_that_someone_must_decide_makes_a_run_that_shows_it(
    sensor: Sensor, refusal: KdiError, requested: list[set[str]]
) -> None:
    sensor.refusals[SILVER.name] = refusal

    assert sensor.selected() == requested
    if not requested:
        assert sensor.said == refusal.message_parts()[0]


def test_a_commit_without_rows_is_no_progress_of_a_run_that_fails(sensor: Sensor) -> None:
    """Else a table that fails and is compacted would be requested at every tick."""
    sensor.tables, sensor.behind = (SILVER,), {SILVER.name}
    first = sensor.selected()
    sensor.other_commits += 1

    assert (first, sensor.selected()) == ([{SILVER.name}], [])


def test_a_table_is_taken_along_by_the_run_that_makes_what_it_lacks_and_by_no_other(sensor: Sensor) -> None:
    gold = a_refined_table("gold/both", SILVER.name, "silver/other")
    sensor.tables, sensor.behind = (SILVER, gold), {SILVER.name}
    sensor.refusals[gold.name] = UpstreamMissing(table=gold.name, upstream=SILVER.name, uri="")
    made = sensor.selected()
    sensor.cursor = None
    sensor.refusals[gold.name] = UpstreamMissing(table=gold.name, upstream="silver/other", uri="")

    assert (made, sensor.selected()) == ([{SILVER.name, gold.name}], [{SILVER.name}])


@pytest.mark.parametrize(
    "text", ["import os; os.environ['NO_SUCH_VARIABLE']", "def (", "from kdi_assets import no_such"]
)
def test_a_document_whose_module_does_not_load_is_refused_and_stops_no_other_table(
    sensor: Sensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    module = f"module_{abs(hash(text))}"
    (tmp_path / f"{module}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    broken = a_refined_table("silver/broken", sql="", python=f"{module}:rows")

    status = read_refined_status(broken, str(tmp_path))

    assert isinstance(status.refusal, QueryMistake)
    assert "silver/broken" in str(status.refusal)


def test_a_function_keeps_the_source_that_it_was_loaded_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an edit of the file would look like another definition until the process ends, and no run could mend it."""
    file = tmp_path / "module_that_is_edited.py"
    file.write_text("def rows(events):\n    return events\n")
    monkeypatch.syspath_prepend(tmp_path)
    table = a_refined_table(sql="", python="module_that_is_edited:rows")

    before = function_source(table)
    file.write_text("import os\nimport sys\n\n\ndef rows(events):\n    return events\n")
    linecache.checkcache()

    assert function_source(table) == before == "def rows(events):\n    return events\n"


def test_a_run_that_found_nothing_to_do_is_followed_by_no_more_reading_than_before(
    sensor: Sensor, lake_in_environment: str
) -> None:
    """Procedure: something is new upstream; before the run it is gone again, as after a RESTORE."""
    sensor.tables, sensor.versions = (SILVER,), {SILVER.name: 0}
    write_deltalake(SILVER.table_uri(lake_in_environment), pa.table({"id": [1]}))
    sensor.behind = {SILVER.name}
    requested = sensor.selected()
    sensor.behind = set()
    sensor.later(11)
    sensor.tick()
    reads = sensor.reads

    sensor.later(11)

    assert (requested, sensor.tick(), sensor.reads) == ([{SILVER.name}], [], reads)


@core
def test_a_failed_blocking_check_upstream_holds_the_table_until_it_passes(instance: DagsterInstance) -> None:
    silver = a_refined_table(SILVER.name, AUDITED.table)
    sensor = Sensor(instance, (silver, GOLD), (AUDITED,), {SILVER.name})
    bronze = World(instance, on_new_upstream_data())
    bronze.audit(complete=False)

    held = sensor.tick()
    said, reads = sensor.said, sensor.reads
    sensor.versions[silver.name] = 200  # with however many commits upstream
    sensor.tick()
    bronze.audit(complete=True)

    assert sensor.reads - reads == 1, "gold alone: nothing is read of a table that must not run"
    assert (held, said) == ([], f"silver/sessions: held: a blocking check of {AUDITED.table} failed")
    assert sensor.selected() == [{SILVER.name, GOLD.name}]


def test_a_tick_that_dagster_gave_up_is_not_joined_by_another(sensor: Sensor) -> None:
    sensor.tables, sensor.behind = (SILVER,), {SILVER.name}
    inner: list[list[dg.RunRequest]] = []
    sensor.during = lambda *_: inner.append(sensor.tick())

    assert (len(sensor.tick()), inner) == (1, [[]])
