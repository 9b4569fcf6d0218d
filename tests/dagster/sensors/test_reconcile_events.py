"""Commits without an event: found in the table's log, reported once, and never after a newer version was reported."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date

import dagster as dg
import pyarrow as pa
import pytest
from dagster import DagsterInstance
from deltalake import write_deltalake

from kdi_assets.components.materializations import ATTEMPT_TAG, DATA_VERSION_TAG
from kdi_assets.components.names import letters_key, table_key
from kdi_assets.documents.model.stream import DateWindow, Stream
from kdi_assets.sensors.memory import Memory
from kdi_assets.sensors.reconcile import reconcile_all
from kdi_assets.sensors.recorded_events import recorded_events
from kdi_assets.sensors.table_log import NewEntries
from kdi_assets.settings import Settings
from kdi_assets.streams.ledger.entry import LedgerEntry
from tests.dagster.fakes import (
    ScriptedDrain,
    a_commit,
    a_stream,
    an_entry,
    events,
    run,
    today,
    unfinished_run,
    yesterday,
)

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("lake_in_environment")]

OLD = date(2021, 3, 4)


@dataclass
class Sensor:
    """Ticks over one table's log."""

    instance: DagsterInstance
    stream: Stream = field(default_factory=a_stream)
    log: list[LedgerEntry] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    lake: str = "/lake"

    def tick(self) -> list[dg.AssetMaterialization]:
        """One tick: its events are stored, as the daemon stores them."""
        memories = {self.stream.name: self.memory}
        missing, memories = reconcile_all(
            [self.stream], lake=self.lake, instance=self.instance, memories=memories, read=self._read
        )
        for event in missing:
            self.instance.report_runless_asset_event(event)
        self.memory = memories[self.stream.name]
        return missing

    def _read(self, uri: str, app_id: str, *, table_id: str, since: int) -> NewEntries | None:
        assert (uri, app_id) == (self.stream.table_uri(self.lake), self.stream.app_id)
        entries = tuple(entry for entry in self.log if entry.version > since)
        newest = self.log[-1].version if self.log else -1
        return NewEntries("table", entries, newest, newest) if self.log else None

    def versions(self, day: date) -> list[str]:
        """The data versions of a date's events, newest first."""
        of_day = dg.AssetRecordsFilter(asset_key=table_key(self.stream), asset_partitions=[day.isoformat()])
        records = self.instance.fetch_materializations(of_day, limit=100).records
        events = [record.asset_materialization for record in records]
        return [(event.tags or {})["dagster/data_version"] for event in events if event is not None]


@pytest.fixture
def sensor(instance: DagsterInstance) -> Sensor:
    return Sensor(instance)


def test_a_commit_without_events_is_told_at_the_next_tick_and_once(sensor: Sensor) -> None:
    sensor.log = [an_entry(1, {OLD: 3, yesterday(): 2}, run_id="gone")]

    told, again = sensor.tick(), sensor.tick()

    assert {event.partition for event in told} == {OLD.isoformat(), yesterday().isoformat()}
    assert told[0].metadata["rows_added"].value == 3
    assert told[0].metadata["offset_ranges"].value == {"web_requests/0": "[100, 105)"}
    assert again == []
    assert sensor.versions(OLD) == ["1"]


def test_what_is_told_late_leads_to_the_commits_dead_letters_as_a_runs_own_does(sensor: Sensor) -> None:
    lake = Settings.from_environment().lake
    run(sensor.instance, sensor.stream, ScriptedDrain([a_commit(1, {OLD: 3}, dead_letters=2)]))
    own = events(sensor.instance, table_key(sensor.stream))[str(OLD)]
    sensor.log = [an_entry(2, {OLD: 3}, dead_letters=2), an_entry(3, {OLD: 3})]

    with_letters, without = sensor.tick()

    of_ours = str(own["dead_letters_query"]).replace(lake, "/lake").replace("attempt-1", "attempt-2")
    assert with_letters.metadata["dead_letters_query"].value == of_ours
    assert with_letters.metadata["dead_letters_table"].value == letters_key(sensor.stream)
    assert not {"dead_letters_query", "dead_letters_table"} & without.metadata.keys()


def test_what_a_run_told_is_not_told_again_and_a_crash_between_two_dates_leaves_only_the_second_to_tell(
    sensor: Sensor,
) -> None:
    run(sensor.instance, sensor.stream, ScriptedDrain([a_commit(1, {OLD: 3})]))
    sensor.log = [an_entry(1, {OLD: 3, today(): 2})]

    assert [event.partition for event in sensor.tick()] == [today().isoformat()]


def test_a_date_that_is_kept_no_longer_stays_as_it_was_told(sensor: Sensor) -> None:
    sensor.log = [an_entry(1, {OLD: 3})]
    sensor.tick()
    sensor.log += [replace(an_entry(2, {}), kind="expire", ranges=(), removed_by_date={OLD: 3})]

    assert sensor.tick() == []
    assert sensor.versions(OLD) == ["1"]


def test_a_lost_cursor_tells_nothing_twice(sensor: Sensor) -> None:
    sensor.log = [an_entry(1, {OLD: 3}), an_entry(2, {OLD: 1})]
    sensor.tick()
    sensor.memory = Memory()

    assert sensor.tick() == []
    assert sensor.versions(OLD) == ["2", "1"]


def test_an_event_told_late_does_not_take_a_date_back_behind_a_newer_version(sensor: Sensor) -> None:
    """The run of version 1 crashed before its event; its retry reported version 2 before the sensor ticked."""
    run(sensor.instance, sensor.stream, ScriptedDrain([a_commit(2, {OLD: 1})]))
    sensor.log = [an_entry(1, {OLD: 3}), an_entry(2, {OLD: 1})]

    (told,) = sensor.tick()

    assert told.metadata["delta_version"].value == 1
    assert sensor.versions(OLD) == ["2", "2"]


@pytest.mark.parametrize("logged_by", ["logged_by", "told_by"])  # now, and in earlier releases
def test_an_event_that_a_sensor_logged_late_does_not_hide_those_before_it(
    instance: DagsterInstance, logged_by: str
) -> None:
    def report(version: int, attempt: str, metadata: dict[str, str]) -> None:
        tags = {ATTEMPT_TAG: attempt, DATA_VERSION_TAG: str(version)}
        event = dg.AssetMaterialization("orders", partition=OLD.isoformat(), tags=tags, metadata=metadata)
        instance.report_runless_asset_event(event)

    report(1, "of-a-run", {})
    report(0, "of-a-sensor", {logged_by: "reconcile"})

    found = recorded_events(instance, dg.AssetKey("orders"), since=1)
    assert found.attempts == {("of-a-run", OLD.isoformat()), ("of-a-sensor", OLD.isoformat())}


def test_a_table_made_anew_is_told_although_its_versions_begin_again(sensor: Sensor) -> None:
    sensor.log = [an_entry(1, {OLD: 3})]
    sensor.tick()
    sensor.log, sensor.memory = [replace(an_entry(1, {OLD: 5}), attempt_id="another")], Memory()

    assert [event.metadata["rows_added"].value for event in sensor.tick()] == [5]


def test_a_stream_with_a_run_in_flight_is_left_to_its_run(sensor: Sensor) -> None:
    sensor.log = [an_entry(1, {OLD: 3})]
    started = unfinished_run(sensor.instance, sensor.stream)

    during = sensor.tick()
    sensor.instance.report_run_failed(started)

    assert during == []
    assert [event.partition for event in sensor.tick()] == [OLD.isoformat()]


def test_a_drain_of_the_command_line_has_columns_and_the_rows_of_each_date_at_its_newest_event(
    sensor: Sensor, lake_in_environment: str
) -> None:
    sensor.lake = lake_in_environment
    for rows in (2, 3):
        table = pa.table({"id": list(range(rows)), "date": pa.array([OLD] * rows, pa.date32())})
        write_deltalake(sensor.stream.table_uri(sensor.lake), table, mode="append", partition_by=["date"])
    sensor.log = [an_entry(0, {OLD: 2}), an_entry(1, {OLD: 3})]

    older, newer = (event.metadata for event in sensor.tick())

    assert (newer["dagster/partition_row_count"].value, newer["files"].value) == (5, 2)
    assert not {"dagster/partition_row_count", "files"} & older.keys()
    for metadata in (older, newer):
        columns = metadata["dagster/column_schema"].value
        assert isinstance(columns, dg.TableSchema) and [c.name for c in columns.columns] == ["id", "date"]


def test_entries_without_rows_and_dates_that_dagster_does_not_have_are_not_told(sensor: Sensor) -> None:
    sensor.stream = a_stream(date_window=DateWindow(start=date(2025, 1, 1)))
    sensor.log = [an_entry(1, {}), an_entry(2, {OLD: 3}), an_entry(3, {today(): 1})]

    assert [event.partition for event in sensor.tick()] == [today().isoformat()]
    assert sensor.memory.reconciled == 3


def test_an_event_that_someone_reported_by_hand_is_not_taken_for_ours(sensor: Sensor) -> None:
    by_hand = dg.AssetMaterialization(
        table_key(sensor.stream), partition=OLD.isoformat(), tags={"dagster/data_version": "by hand"}
    )
    run(sensor.instance, sensor.stream, ScriptedDrain([a_commit(1, {OLD: 3})]))
    sensor.instance.report_runless_asset_event(by_hand)
    sensor.log = [an_entry(1, {OLD: 3}), an_entry(2, {OLD: 1})]

    assert [event.metadata["delta_version"].value for event in sensor.tick()] == [2]


def test_without_a_table_nothing_is_told_and_nothing_remembered(sensor: Sensor) -> None:
    assert sensor.tick() == []
    assert sensor.memory == Memory()
