"""The follow sensor over tables that are served from a database."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

import dagster as dg
import pyarrow as pa
import pytest
from dagster import DagsterInstance
from deltalake import DeltaTable, write_deltalake

from kdi_assets.components.served_asset import served_asset
from kdi_assets.documents.model.served_table import DuckDb, ServedTableSpec
from kdi_assets.downstream import on_new_upstream_data
from kdi_assets.follow.serve.serve import serve
from kdi_assets.resources.spark import SparkResource
from kdi_assets.sensors.follow import NAME, follow_sensor
from kdi_assets.sensors.followers import ServedFollower
from tests.dagster.built_on_bronze import BRONZE as AUDITED
from tests.dagster.built_on_bronze import World
from tests.dagster.refined_world import BRONZE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("lake_in_environment")
core = pytest.mark.core


def no_spark() -> SparkSession:
    raise AssertionError("a DuckDB file needs no Spark")


@dataclass
class ServedFile:
    """A Delta table that is served from a DuckDB file, and the ticks of the sensor."""

    instance: DagsterInstance
    lake: str
    home: Path
    cron: str | None = None
    cursor: str | None = None
    said: str | None = None

    def __post_init__(self) -> None:
        into = DuckDb(file=str(self.home / "usage.duckdb"), table="usage")
        self.served = ServedTableSpec(table=BRONZE.table, into=into, keys=("id",), cron=self.cron)
        self.sensor = follow_sensor([ServedFollower(self.served)], (BRONZE,))

    def append(self, *ids: int) -> None:
        write_deltalake(self.served.table_uri(self.lake), pa.table({"id": pa.array(ids, pa.int64())}), mode="append")

    def serve(self) -> None:
        serve(self.served, lake=self.lake, session=no_spark, home=self.home)

    def tick(self) -> bool:
        """Whether a tick requests the table."""
        defs = dg.Definitions(
            assets=[served_asset(self.served)], sensors=[self.sensor], resources={"spark": SparkResource()}
        )
        context = dg.build_sensor_context(self.instance, cursor=self.cursor, definitions=defs, sensor_name=NAME)
        result = defs.get_repository_def().get_sensor_def(NAME).evaluate_tick(context)
        self.cursor, self.said = result.cursor, result.skip_message
        requested = [key for request in result.run_requests or () for key in request.asset_selection or ()]
        assert set(requested) <= {dg.AssetKey(self.served.into.path)}
        return bool(requested)

    def later(self, seconds: float) -> None:
        memory = json.loads(self.cursor or "{}")
        memory[self.served.name]["requested_at"] -= seconds
        self.cursor = json.dumps(memory)


@pytest.fixture
def usage(instance: DagsterInstance, lake_in_environment: str, tmp_path: Path) -> ServedFile:
    return ServedFile(instance, lake_in_environment, tmp_path)


@core
def test_a_served_table_is_requested_for_what_the_database_lacks_whenever_it_came(usage: ServedFile) -> None:
    """Rows from before the first tick too, and none for a commit without rows."""
    missing = usage.tick()
    usage.append(1)
    first, again = usage.tick(), usage.tick()
    usage.serve()
    usage.later(11)
    served = usage.tick()
    usage.append(2)
    new = usage.tick()
    usage.serve()
    usage.later(11)
    DeltaTable(usage.served.table_uri(usage.lake)).optimize.compact()

    assert (missing, first, again) == (False, True, False)
    assert (served, new, usage.tick()) == (False, True, False)


def test_a_served_table_whose_run_fails_is_requested_after_ten_seconds_and_not_after_an_hour(usage: ServedFile) -> None:
    usage.append(1)

    at_once = usage.tick(), usage.tick()
    said = str(usage.said)
    usage.later(11)
    second = usage.tick(), usage.tick()
    usage.later(11)

    assert (at_once, second, usage.tick()) == ((True, False), (True, False), False)
    assert "the last run committed nothing; the next one in 10 s" in said
    assert not list(Path(usage.home).glob("*.duckdb")), "to look makes no file"


@core
def test_a_failed_blocking_check_holds_a_served_table_too(instance: DagsterInstance, usage: ServedFile) -> None:
    usage.append(1)
    bronze = World(instance, on_new_upstream_data())
    bronze.audit(complete=False)

    held = usage.tick(), usage.said
    bronze.audit(complete=True)

    assert held == (False, f"{usage.served.name}: held: a blocking check of {AUDITED.table} failed")
    assert usage.tick()


def test_a_served_table_whose_source_is_gone_is_requested_and_one_whose_source_never_was_is_not(
    usage: ServedFile,
) -> None:
    """Purpose: rows of a table that is gone are served for good, and nobody sees it without a run that says so.
    Procedure: look before there is a Delta table; serve it; remove it; look twice.
    Pass: the first look waits; of the next two the first requests a run.
    """
    before = usage.tick(), usage.said
    usage.append(1)
    usage.tick()
    usage.serve()
    usage.later(11)
    served = usage.tick()
    rmtree(usage.served.table_uri(usage.lake))

    assert before == (False, f"{usage.served.name}: there is no Delta table at {usage.served.table_uri(usage.lake)}.")
    assert (served, usage.tick(), usage.tick()) == (False, True, False)


def test_a_served_table_whose_source_is_damaged_stops_no_other_table(usage: ServedFile) -> None:
    usage.append(1)
    for commit in Path(usage.served.table_uri(usage.lake), "_delta_log").glob("*.json"):
        commit.write_bytes(b"{")

    requested = usage.tick(), usage.tick()

    assert requested == (True, False), "a run shows what someone must mend"
