"""The example of `docs/refined-tables.md`: it loads with its sensor, and its hand-written asset is exact."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

import dagster as dg
import pyarrow as pa
import pytest
from dagster import DagsterInstance
from deltalake import DeltaTable, write_deltalake

from kdi_assets.definitions import defs
from tests.conftest import CHECKOUT
from tests.dagster.fakes import assets_of, materialize

if TYPE_CHECKING:
    pass

OLD, LATER = date(2021, 3, 4), date(2021, 3, 5)
FAILURES = dg.AssetKey(["silver", "failures"])


@pytest.fixture
def location(one_jvm: None, lake_in_environment: str, monkeypatch: pytest.MonkeyPatch) -> dg.Definitions:
    monkeypatch.setenv("KDI_DEFS", str(CHECKOUT / "examples" / "refined"))
    return defs()


def requests(lake: str, *rows: tuple[date, int]) -> None:
    """Add a request for each date and status to bronze."""
    days, statuses = zip(*rows, strict=True)
    text = pa.array(["x"] * len(rows))
    columns = {"date": pa.array(days, pa.date32()), "status": pa.array(statuses, pa.int32())}
    table = pa.table({**columns, "host": text, "method": text, "url": text})
    write_deltalake(f"{lake}/bronze/web_requests", table, mode="append", partition_by=["date"])


def test_the_code_location_loads_with_the_sensor_and_the_levels_below_each_other(location: dg.Definitions) -> None:
    graph = location.resolve_asset_graph()
    parents = {
        key.to_user_string(): {parent.to_user_string() for parent in graph.get(key).parent_keys}
        for key in graph.get_all_asset_keys()
        if key.path[0] in ("silver", "gold")
    }

    assert parents == {
        "silver/sessions": {"bronze/web_requests"},
        "silver/failures": {"bronze/web_requests"},
        "gold/daily_usage": {"silver/sessions"},
        "gold/busiest_hosts": {"gold/daily_usage"},
    }
    assert {sensor.name for sensor in location.get_repository_def().sensor_defs} >= {"follow", "lag_main", "downstream"}
    dg.Definitions.validate_loadable(location)


def test_the_hand_written_asset_takes_each_row_once_and_follows_a_delete(
    location: dg.Definitions, instance: DagsterInstance, lake: str
) -> None:
    def statuses() -> list[int]:
        """After a run, the rows of the asset's table."""
        assert materialize(instance, assets_of(location), FAILURES).success
        return sorted(DeltaTable(f"{lake}/silver/failures").to_pyarrow_table()["status"].to_pylist())

    requests(lake, (OLD, 404), (OLD, 200))
    first = statuses()
    requests(lake, (OLD, 500), (LATER, 200))
    second, again = statuses(), statuses()
    DeltaTable(f"{lake}/bronze/web_requests").delete("status = 404")
    after_the_delete = statuses()

    assert (first, second, again, after_the_delete) == ([404], [404, 500], [404, 500], [500])
