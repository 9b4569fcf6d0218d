"""Refined tables from documents to Dagster and the command line: real Spark, real tables, a real instance."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pyarrow as pa
import pytest
from dagster import DagsterInstance
from deltalake import DeltaTable, write_deltalake

from kdi_assets.definitions import defs
from kdi_assets.sensors.follow import NAME
from tests.dagster.fakes import Selected, assets_of, events, materialize, today, yesterday
from tests.documents import written
from tests.typed import Kdi, typed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLD = date(2021, 3, 4)
SILVER, GOLD = dg.AssetKey(["silver", "requests"]), dg.AssetKey(["gold", "daily"])
SILVER_DOCUMENT = """type: kdi_assets.components.RefinedTable
attributes:
  table: silver/requests
  from: bronze/web_requests
  sql: SELECT date, lower(host) AS host, bytes FROM web_requests WHERE bytes IS NOT NULL
  expectations: {is_large: {sql: bytes > 1}}
"""
GOLD_DOCUMENT = """type: kdi_assets.components.RefinedTable
attributes:
  table: gold/daily
  from: silver/requests
  mode: {aggregate: {by: [date, host], measures: {requests: count, bytes: {sum: bytes}}}}
"""
Row = tuple[date, str, int | None]


@dataclass
class Location:
    """A code location of two refined tables over a Delta table that others write."""

    instance: DagsterInstance
    lake: str
    kdi: Kdi
    cursor: str | None = None

    def write(self, *rows: Row) -> None:
        """Add rows to bronze."""
        days, hosts, sizes = zip(*rows, strict=True)
        columns = {"date": pa.array(days, pa.date32()), "host": pa.array(hosts), "bytes": pa.array(sizes, pa.int64())}
        write_deltalake(f"{self.lake}/bronze/web_requests", pa.table(columns), mode="append", partition_by=["date"])

    def tick(self) -> list[dg.RunRequest]:
        """A tick of the sensor; its events are stored, as the daemon stores them."""
        here = defs()
        context = dg.build_sensor_context(self.instance, cursor=self.cursor, definitions=here, sensor_name=NAME)
        result = here.get_repository_def().get_sensor_def(NAME).evaluate_tick(context)
        self.cursor = result.cursor
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        return list(result.run_requests or ())

    def run(self, request: dg.RunRequest) -> None:
        """The run that a tick requested."""
        selected: list[Selected] = [*(request.asset_selection or ()), *(request.asset_check_keys or ())]
        tags = dict(request.tags)
        assert materialize(self.instance, assets_of(defs()), *selected, day=request.partition_key, tags=tags).success

    def gold(self) -> Counter[tuple[Any, ...]]:
        rows = DeltaTable(f"{self.lake}/gold/daily").to_pyarrow_table().to_pylist()
        return Counter((row["date"], row["host"], row["requests"], row["bytes"]) for row in rows)

    def materialized(self, key: dg.AssetKey) -> set[str]:
        return self.instance.get_materialized_partitions(key)

    def versions(self, key: dg.AssetKey) -> dict[str, int]:
        """The newest table version of each date in Dagster."""
        return {day: said["delta_version"] for day, said in events(self.instance, key).items()}


@pytest.fixture
def location(
    instance: DagsterInstance,
    lake_in_environment: str,
    one_jvm: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Location:
    folder = written(tmp_path / "documents", silver=SILVER_DOCUMENT, gold=GOLD_DOCUMENT)
    monkeypatch.setenv("KDI_DEFS", str(folder))
    return Location(instance, lake_in_environment, typed(monkeypatch, capsys))


@pytest.mark.core
def test_new_rows_reach_gold_in_one_run_and_a_late_row_changes_its_own_date_only(location: Location) -> None:
    location.write((OLD, "A", 1), (OLD, "a", 2), (yesterday(), "b", 3), (today(), "b", None))
    (first,) = location.tick()
    location.run(first)
    at_first = location.gold()
    location.write((OLD, "b", 7))
    (second,) = location.tick()
    location.run(second)
    idle = location.tick()

    assert set(first.asset_selection or ()) == set(second.asset_selection or ()) == {SILVER, GOLD}
    assert at_first == Counter([(OLD, "a", 2, 3), (yesterday(), "b", 1, 3)])
    assert location.gold() == at_first + Counter([(OLD, "b", 1, 7)])
    assert location.materialized(SILVER) == location.materialized(GOLD) == {OLD.isoformat(), yesterday().isoformat()}
    for key in (SILVER, GOLD):
        versions = location.versions(key)
        assert versions[OLD.isoformat()] > versions[yesterday().isoformat()]
    lineage = events(location.instance, GOLD)[OLD.isoformat()]["dagster/column_lineage"]
    assert lineage.deps_by_column["bytes"] == [dg.TableColumnDep(SILVER, "bytes")]
    assert idle == []


def test_commands_and_dagster_agree_about_a_refined_table(location: Location) -> None:
    location.write((OLD, "A", 1), (yesterday(), "b", 3))
    kdi = location.kdi

    planned = kdi("plan", "silver/requests", "--json")
    refined = kdi("refine", "--all", "--json")
    location.write((OLD, "A", 1))
    status = kdi("status", "--json")
    again = kdi("refine", "requests", "daily")
    history = kdi("history", "gold/daily")
    audited = kdi("audit", "gold/daily", "--all")
    location.tick()

    assert (planned.objects[0]["refined"], planned.objects[0]["why"]) == ("rebuild", "the table is new")
    assert [(o["table"], o["rows_added"], o["error"]) for o in refined.objects] == [
        ("silver/requests", 2, None),
        ("gold/daily", 2, None),
    ]
    assert refined.objects[0]["expectations_not_met"] == {"is_large": 1}
    assert {o["table"]: o["state"] for o in status.objects} == {"silver/requests": "behind", "gold/daily": "OK"}
    assert "silver/requests: 1 row added, 0 removed, v2, 1 not meeting is_large" in again.out
    assert history.out.count("refine") == 3 and "changes; 1 row added, 1 removed on 1 date" in history.out
    assert (audited.code, "equal" in audited.out) == (0, True), audited.err
    assert location.versions(GOLD) == {OLD.isoformat(): 2, yesterday().isoformat(): 1}, "reported by the sensor"


def test_an_audit_finds_what_others_changed_and_a_replay_of_the_date_mends_it(
    location: Location, spark: SparkSession
) -> None:
    location.write((OLD, "A", 1), (yesterday(), "b", 3))
    kdi = location.kdi
    kdi("refine", "--all")
    spark.sql(f"DELETE FROM delta.`{location.lake}/silver/requests` WHERE date = '{OLD}'")

    found = kdi("audit", "silver/requests", "--all", "--json")
    refused = kdi("refine", "silver/requests")
    kdi("refine", "silver/requests", "--rebuild")
    mended = kdi("replay", "silver/requests", "--from", str(OLD), "--to", str(OLD))

    (audit,) = found.objects
    assert (found.code, audit["missing"], audit["surplus"], audit["different_dates"]) == (1, 1, 0, [str(OLD)])
    assert (refused.code, "of another writer changed rows" in refused.err) == (1, True)
    assert (mended.code, "equal" in mended.out) == (0, True)
