"""The follow sensor: which tables share a run, what waits, and which events a crash left out."""

from __future__ import annotations

import json
import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from dagster import DagsterInstance
from deltalake import DeltaTable, write_deltalake

from kdi_assets.components.names import table_key
from kdi_assets.components.refined_checks import refined_check_key
from kdi_assets.documents.model.message_rules import Expectation
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.downstream import on_new_upstream_data
from kdi_assets.errors import KdiError
from kdi_assets.follow.refine.entry import RefineKind
from kdi_assets.follow.refine.errors import ChangedByOthers, UpstreamMissing
from kdi_assets.follow.refine.plan import RefinePlan
from kdi_assets.follow.refine.row_errors import QueryMistake
from kdi_assets.follow.refine.transform import function_source
from kdi_assets.operate.monitoring.refined_status import RefinedStatus, read_refined_status
from kdi_assets.resources.spark import SparkResource
from kdi_assets.sensors.follow import NAME, follow_sensor
from kdi_assets.sensors.followers import RefinedFollower
from tests.dagster.built_on_bronze import BRONZE as AUDITED
from tests.dagster.built_on_bronze import World
from tests.dagster.fakes import events, materialize, today, yesterday
from tests.dagster.refined_world import (
    BRONZE,
    GOLD,
    SILVER,
    ScriptedRefine,
    a_refined_table,
    committed,
    refined_assets,
    run_refined,
)

pytestmark = pytest.mark.usefixtures("lake_in_environment")
core = pytest.mark.core

OLD = date(2021, 3, 4)
MISSING = UpstreamMissing(table=SILVER.name, upstream=BRONZE.table, uri="/lake/bronze")
DECIDE = ChangedByOthers(table=SILVER.name, uri="/lake", version=4, operation="DELETE")


@dataclass
class Sensor:
    """Ticks over tables whose logs the test makes up.

    Attributes:
        behind: Tables with something new upstream.
        versions: Of the tables; a run that commits makes one higher.
        other_commits: Commits without rows to each table, such as OPTIMIZE.
    """

    instance: DagsterInstance
    tables: tuple[RefinedTableSpec, ...] = (SILVER, GOLD)
    streams: tuple[Stream, ...] = (BRONZE,)
    behind: set[str] = field(default_factory=set)
    refusals: dict[str, KdiError] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    other_commits: int = 0
    cursor: str | None = None
    said: str | None = None
    reads: int = 0
    made: tuple[tuple[Sequence[RefinedTableSpec], Sequence[Stream]], dg.SensorDefinition] | None = None

    during: Callable[[RefinedTableSpec, str], object] = lambda *_: None

    def read(self, table: RefinedTableSpec, lake: str) -> RefinedStatus:
        self.during(table, lake)
        self.reads += 1
        if refusal := self.refusals.get(table.name):
            return RefinedStatus(table, refusal=refusal)
        kind: RefineKind = "changes" if table.name in self.behind else "nothing"
        version = self.versions.get(table.name, 1)
        return RefinedStatus(table, RefinePlan("", version + self.other_commits, "id", (), kind, committed=version))

    def sensor(self) -> dg.SensorDefinition:
        """One as long as the tables stay: it keeps what it has read."""
        if self.made is None or self.made[0] != (self.tables, self.streams):
            followers = [RefinedFollower(table, self.read) for table in self.tables]
            self.made = (self.tables, self.streams), follow_sensor(followers, self.streams)
        return self.made[1]

    def tick(self) -> list[dg.RunRequest]:
        """The requests of a tick."""
        sensor = self.sensor()
        assets = refined_assets(ScriptedRefine(), *self.tables, streams=self.streams)
        defs = dg.Definitions(assets=assets, sensors=[sensor], resources={"spark": SparkResource()})
        context = dg.build_sensor_context(self.instance, cursor=self.cursor, definitions=defs, sensor_name=NAME)
        result = defs.get_repository_def().get_sensor_def(NAME).evaluate_tick(context)
        self.cursor, self.said = result.cursor, result.skip_message
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        return list(result.run_requests or ())

    def selected(self) -> list[set[str]]:
        """The tables of each run that a tick requests."""
        return [{key.to_user_string() for key in request.asset_selection or ()} for request in self.tick()]

    def later(self, seconds: float) -> None:
        """Set the times of the cursor back, as if so much time had passed."""
        memories = json.loads(self.cursor or "{}")
        for memory in memories.values():
            for name in ("requested_at", "looked_at"):
                memory[name] = memory.get(name, 0.0) - seconds
        self.cursor = json.dumps(memories)


@pytest.fixture
def sensor(instance: DagsterInstance) -> Sensor:
    return Sensor(instance)


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


def test_tables_of_other_dates_have_a_run_of_their_own(sensor: Sensor) -> None:
    whole = a_refined_table("gold/whole", SILVER.name, partition_by=None)
    sensor.tables = (SILVER, GOLD, whole)
    sensor.behind = {SILVER.name, whole.name}

    requests = sensor.tick()

    keys = {frozenset(k.to_user_string() for k in r.asset_selection or ()): r.partition_key for r in requests}
    assert keys == {
        frozenset({SILVER.name, GOLD.name}): today().isoformat(),
        frozenset({whole.name}): None,
    }


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


def test_a_table_with_a_cron_is_looked_at_after_each_of_its_times_and_not_before(sensor: Sensor) -> None:
    hourly = a_refined_table(cron="0 * * * *")
    sensor.tables, sensor.behind = (hourly,), {hourly.name}

    first = sensor.tick()
    sensor.later(3600)
    after_the_hour = sensor.selected()
    sensor.versions[hourly.name] = 2
    again = sensor.tick()

    assert (first, after_the_hour, again) == ([], [{hourly.name}], [])


def test_a_failure_that_a_retry_helps_at_the_time_of_a_cron_does_not_wait_for_its_next_time(sensor: Sensor) -> None:
    nightly = a_refined_table(cron="0 3 * * *")
    sensor.tables, sensor.behind = (nightly,), {nightly.name}
    sensor.tick()
    sensor.later(24 * 3600)
    sensor.refusals[nightly.name] = MISSING

    failed = sensor.tick()
    sensor.refusals.clear()
    then = sensor.selected()

    assert (failed, then) == ([], [{nightly.name}])


def test_a_run_of_a_cron_that_fails_is_requested_again_before_its_next_time_and_one_that_commits_is_not(
    sensor: Sensor,
) -> None:
    nightly = a_refined_table(cron="0 3 1 1 *")
    sensor.tables, sensor.behind = (nightly,), {nightly.name}
    sensor.tick()
    sensor.later(366 * 24 * 3600)

    at_its_time = sensor.selected()
    at_once = sensor.selected()
    sensor.later(11)
    after_the_wait = sensor.selected()
    sensor.versions[nightly.name] = 2
    sensor.later(3600)
    committed = sensor.selected()
    sensor.later(3600)
    new_again = sensor.selected()

    assert (at_its_time, at_once, after_the_wait) == ([{nightly.name}], [], [{nightly.name}])
    assert (committed, new_again) == ([], [])


@pytest.mark.parametrize("between", ["a commit without rows", "a refusal", "a refusal that is mended"])
def test_a_run_of_a_cron_that_fails_is_requested_again_whatever_happens_before(sensor: Sensor, between: str) -> None:
    nightly = a_refined_table(cron="0 3 1 1 *")
    sensor.tables, sensor.behind = (nightly,), {nightly.name}
    sensor.tick()
    sensor.later(366 * 24 * 3600)
    if between == "a refusal that is mended":
        sensor.refusals[nightly.name] = DECIDE

    at_its_time = sensor.selected()
    if between == "a refusal":
        sensor.refusals[nightly.name] = DECIDE
    else:
        sensor.other_commits += 1
        sensor.refusals.clear()
    sensor.later(11)

    assert (at_its_time, sensor.selected()) == ([{nightly.name}], [{nightly.name}])


def test_a_commit_without_rows_is_no_progress_of_a_run_that_fails(sensor: Sensor) -> None:
    """Else a table that fails and is compacted would be requested at every tick."""
    sensor.tables, sensor.behind = (SILVER,), {SILVER.name}
    first = sensor.selected()
    sensor.other_commits += 1

    assert (first, sensor.selected()) == ([{SILVER.name}], [])


def test_a_clock_that_was_ahead_hides_no_time_of_a_cron_and_no_retry(sensor: Sensor) -> None:
    hourly = a_refined_table(cron="* * * * *")
    sensor.tables, sensor.behind = (hourly, SILVER), {hourly.name, SILVER.name}
    sensor.tick()
    sensor.later(-24 * 3600)
    sensor.tick()  # it counts from now on
    sensor.later(60)

    assert {name for run in sensor.selected() for name in run} >= {hourly.name}


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


def test_what_is_made_of_a_table_and_has_a_cron_waits_for_it(sensor: Sensor) -> None:
    sensor.tables = (SILVER, replace(GOLD, cron="0 0 1 1 *"))
    sensor.behind = {SILVER.name}

    assert sensor.selected() == [{SILVER.name}]


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


def test_a_time_of_a_cron_that_meets_a_failed_check_counts_once_the_check_passes(instance: DagsterInstance) -> None:
    nightly = a_refined_table(SILVER.name, AUDITED.table, cron="0 3 1 1 *")
    sensor = Sensor(instance, (nightly,), (AUDITED,), {nightly.name})
    bronze = World(instance, on_new_upstream_data())
    sensor.tick()
    bronze.audit(complete=False)
    sensor.later(366 * 24 * 3600)

    held = sensor.selected()
    bronze.audit(complete=True)
    released = sensor.selected()
    sensor.versions[nightly.name] = 2
    sensor.later(3600)

    assert (held, released, sensor.selected()) == ([], [{nightly.name}], [])


@core
def test_a_commit_without_events_is_told_at_the_next_tick_and_once(
    sensor: Sensor, lake_in_environment: str, instance: DagsterInstance
) -> None:
    committed(lake_in_environment, SILVER, {OLD: 3, yesterday(): 2}, version=0)

    sensor.tick()
    told = events(instance, table_key(SILVER))
    sensor.tick()
    sensor.cursor = None  # lost: the events are there all the same
    sensor.tick()

    assert {day: (said["rows_added"], said["delta_version"]) for day, said in told.items()} == {
        OLD.isoformat(): (3, 0),
        yesterday().isoformat(): (2, 0),
    }
    assert told[OLD.isoformat()]["logged_by"] == "reconcile"
    assert len(instance.fetch_materializations(table_key(SILVER), limit=10).records) == 2


def test_a_commit_whose_run_logged_it_is_not_told_again(
    sensor: Sensor, lake_in_environment: str, instance: DagsterInstance
) -> None:
    run_refined(instance, ScriptedRefine({SILVER.name: {OLD: 3}}, version=0), SILVER)
    committed(lake_in_environment, SILVER, {OLD: 3}, version=0)

    sensor.tick()

    assert len(instance.fetch_materializations(table_key(SILVER), limit=10).records) == 1


def test_a_commit_that_is_torn_for_a_moment_is_logged_once_it_can_be_read(
    sensor: Sensor, lake_in_environment: str, instance: DagsterInstance
) -> None:
    uri = SILVER.table_uri(lake_in_environment)
    for version, day in enumerate((OLD, yesterday(), today())):
        committed(lake_in_environment, SILVER, {day: 1}, version=version)
    DeltaTable(uri).create_checkpoint()  # so that the table can be opened without the commit
    commit = Path(uri) / "_delta_log" / f"{1:020}.json"
    whole = commit.read_bytes()

    commit.write_bytes(b"")
    sensor.tick()
    before = set(events(instance, table_key(SILVER)))
    commit.write_bytes(whole)
    sensor.tick()

    assert before == {OLD.isoformat()}
    assert set(events(instance, table_key(SILVER))) == {day.isoformat() for day in (OLD, yesterday(), today())}


@core
def test_a_late_row_requests_its_date_of_an_asset_that_is_built_on_gold_and_no_other(instance: DagsterInstance) -> None:
    refine = ScriptedRefine({SILVER.name: {OLD: 1}, GOLD.name: {OLD: 1}})
    report = dg.AssetKey(["report"])

    @dg.asset(
        key=report,
        deps=[table_key(GOLD)],
        partitions_def=dg.DailyPartitionsDefinition("2020-01-01", end_offset=3),
        automation_condition=on_new_upstream_data(),
    )
    def built() -> None: ...

    assets = [*refined_assets(refine, SILVER, GOLD), built]
    defs = dg.Definitions(assets=assets, resources={"spark": SparkResource()})
    first = dg.evaluate_automation_conditions(defs, instance, dg.AssetSelection.all())
    materialize(instance, assets, table_key(SILVER), table_key(GOLD), day=today())

    second = dg.evaluate_automation_conditions(defs, instance, dg.AssetSelection.all(), cursor=first.cursor)

    assert set(second.get_requested_partitions(report)) == {OLD.isoformat()}


def test_a_tick_that_dagster_gave_up_is_not_joined_by_another(sensor: Sensor) -> None:
    sensor.tables, sensor.behind = (SILVER,), {SILVER.name}
    inner: list[list[dg.RunRequest]] = []
    sensor.during = lambda *_: inner.append(sensor.tick())

    assert (len(sensor.tick()), inner) == (1, [[]])
