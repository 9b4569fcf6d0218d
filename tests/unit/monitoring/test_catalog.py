"""Registration in Glue, over a server of the Glue API on the loopback and a handwritten table."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest

from kdi_assets.documents.model.refined_table import RefinedTableSpec, Upstream
from kdi_assets.documents.model.served_table import DuckDb, ServedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.follow.listeners import run_listener
from kdi_assets.follow.listeners.catalog import catalog_table
from kdi_assets.follow.listeners.glue import glue_client, glue_type
from kdi_assets.follow.listeners.heard import FollowerWrite
from kdi_assets.follow.listeners.listening import listening
from kdi_assets.operate.doctor.catalog import catalog
from kdi_assets.operate.doctor.finding import Verdict
from kdi_assets.settings import Settings
from kdi_assets.streams.drain.report import heard_by_listeners
from kdi_assets.streams.ledger.entry import LedgerEntry
from kdi_assets.tools.local.s3_server import S3Server, start_s3_server
from tests.table_by_hand import TableByHand, orders

ENTRY = LedgerEntry(1, "drain", "orders", "a", "orders", "t", "t", {})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = start_s3_server(tmp_path_factory.mktemp("glue"), services=("glue",))
    yield server
    server.stop()


@pytest.fixture
def glue(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of a Glue with the database ``bronze``, which KDI_CATALOG names."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KDI_CATALOG", "glue")
    client = glue_client()
    client.create_database(DatabaseInput={"Name": "bronze"})
    yield client
    client.delete_database(Name="bronze")


@pytest.fixture
def table(tmp_path: Path) -> TableByHand:
    return TableByHand(tmp_path)


def no_session() -> Any:
    raise AssertionError("Glue needs no Spark")


def drained(lake: Path, stream: Stream | None = None) -> None:
    """What the listeners of a drain with one commit do."""
    with heard_by_listeners("drain", stream or orders(), str(lake), no_session) as heard:
        heard(ENTRY)


def test_a_table_is_registered_in_the_form_that_athena_reads(glue: Any, table: TableByHand, tmp_path: Path) -> None:
    drained(tmp_path, orders(description="One row per order"))

    found = glue.get_table(DatabaseName="bronze", Name="orders")["Table"]
    uri = f"{tmp_path}/bronze/orders"
    assert (found["TableType"], found["PartitionKeys"], found["Description"]) == (
        "EXTERNAL_TABLE",
        [],
        "One row per order",
    )
    assert found["Parameters"] == {"EXTERNAL": "TRUE", "spark.sql.sources.provider": "delta"}
    storage = found["StorageDescriptor"]
    assert storage["Columns"] == [{"Name": "id", "Type": "bigint"}, {"Name": "date", "Type": "date"}]
    assert (storage["Location"], storage["SerdeInfo"]["Parameters"]["path"]) == (uri, uri)


def test_tags_of_a_column_are_its_parameters(glue: Any, tmp_path: Path) -> None:
    TableByHand(tmp_path, of_id={"kdi.tags": ["pii"]})

    drained(tmp_path)

    columns = glue.get_table(DatabaseName="bronze", Name="orders")["Table"]["StorageDescriptor"]["Columns"]
    assert {c["Name"]: c.get("Parameters", {}) for c in columns} == {"id": {"pii": "true"}, "date": {}}


def test_a_second_drain_changes_nothing_and_a_new_column_updates_the_table(
    glue: Any, table: TableByHand, tmp_path: Path
) -> None:
    drained(tmp_path)
    first = glue.get_table(DatabaseName="bronze", Name="orders")["Table"]
    glue.update_table(
        DatabaseName="bronze", TableInput=_input(first, Parameters={**first["Parameters"], "team": "web"})
    )

    drained(tmp_path)
    second = glue.get_table(DatabaseName="bronze", Name="orders")["Table"]
    _add_column(table, "paid")
    drained(tmp_path)
    third = glue.get_table(DatabaseName="bronze", Name="orders")["Table"]

    assert second["VersionId"] == "2", "only the update of the test"
    assert [c["Name"] for c in third["StorageDescriptor"]["Columns"]] == ["id", "date", "paid"]
    assert third["Parameters"]["team"] == "web", "parameters of others stay"


def test_a_registration_that_fails_is_a_warning_and_neither_fails_nor_undoes_the_drain(
    glue: Any, table: TableByHand, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    glue.create_database(DatabaseInput={"Name": "silver"})
    glue.create_table(
        DatabaseName="silver",
        TableInput={"Name": "orders", "StorageDescriptor": {"Columns": [], "Location": "s3://other/orders"}},
    )
    for folder in ("silver", "gold"):
        copytree(tmp_path / "bronze", tmp_path / folder)

    with caplog.at_level(logging.WARNING):
        drained(tmp_path, replace(orders(), table="gold/orders"))
        drained(tmp_path, replace(orders(), table="silver/orders"))

    warned = [record.levelname for record in caplog.records if record.name == run_listener.__name__]
    assert warned == ["WARNING", "WARNING"]
    assert "gold/orders: not registered as gold.orders" in caplog.text and "Database gold not found" in caplog.text
    assert "silver.orders is registered with the location s3://other/orders" in caplog.text
    assert "the next run with a commit tries again" in caplog.text
    found = glue.get_table(DatabaseName="silver", Name="orders")["Table"]
    assert found["StorageDescriptor"]["Location"] == "s3://other/orders"


def test_a_refinement_registers_its_table(glue: Any, table: TableByHand, tmp_path: Path) -> None:
    silver = RefinedTableSpec("bronze/orders", (Upstream("made/elsewhere"),), description="one row an order")
    before = list(catalog("glue", [silver], lake=str(tmp_path)))

    with listening("refine", silver, str(tmp_path), no_session) as heard:
        heard(FollowerWrite(version=1, rows=96))

    found = glue.get_table(DatabaseName="bronze", Name="orders")["Table"]
    assert (found["Description"], found["StorageDescriptor"]["Location"]) == (
        "one row an order",
        f"{tmp_path}/bronze/orders",
    )
    assert [f.verdict for f in (*before, *catalog("glue", [silver], lake=str(tmp_path)))] == [
        Verdict.WARNING,
        Verdict.OK,
    ]


def test_a_served_table_is_in_no_catalog_but_that_of_its_database(
    glue: Any, table: TableByHand, tmp_path: Path
) -> None:
    served = ServedTableSpec("bronze/orders", DuckDb("orders.duckdb", "orders"), ("id",))

    with listening("serve", served, str(tmp_path), no_session) as heard:
        heard(FollowerWrite(version=1, rows=96))

    assert glue.get_tables(DatabaseName="bronze")["TableList"] == []


def test_the_doctor_names_a_table_that_is_not_registered(glue: Any, table: TableByHand, tmp_path: Path) -> None:
    streams = [orders(), replace(orders(), table="bronze/without_table")]

    before = list(catalog("glue", streams, lake=str(tmp_path)))
    drained(tmp_path)
    after = list(catalog("glue", streams, lake=str(tmp_path)))

    assert [(f.verdict, f.found) for f in before] == [(Verdict.WARNING, "1 table not registered")]
    assert "bronze/orders as bronze.orders" in str(before[0].trouble)
    assert [(f.verdict, f.found) for f in after] == [(Verdict.OK, "1 table registered")]


@pytest.mark.parametrize(
    ("table", "database", "name"),
    [
        ("bronze/web_requests", "", "bronze.web_requests"),
        ("Lake/Bronze/Web-Requests", "", "lake_bronze.web_requests"),
        ("orders", "", "default.orders"),
        ("bronze/web_requests", "lake", "lake.bronze_web_requests"),
    ],
)
def test_the_name_in_the_catalog_comes_from_the_tables_path(table: str, database: str, name: str) -> None:
    assert str(catalog_table(replace(orders(), table=table), database)) == name


def test_types_are_written_as_glue_writes_them() -> None:
    place = {"type": "struct", "fields": [{"name": "lat", "type": "double"}, {"name": "at", "type": "timestamp_ntz"}]}
    places = {"type": "map", "keyType": "string", "valueType": {"type": "array", "elementType": place}}

    assert glue_type(places) == "map<string,array<struct<lat:double,at:timestamp>>>"
    assert [glue_type(t) for t in ("long", "integer", "binary", "decimal(10,2)")] == [
        "bigint",
        "int",
        "binary",
        "decimal(10,2)",
    ]


def test_a_catalog_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="KDI_CATALOG is 'hive'; it takes glue, spark"):
        Settings.from_environment({"KDI_CATALOG": "hive"})


def _input(table: dict[str, Any], **changed: Any) -> dict[str, Any]:
    kept = ("Name", "Description", "TableType", "Parameters", "PartitionKeys", "StorageDescriptor")
    return {**{name: table[name] for name in kept}, **changed}


def _add_column(table: TableByHand, name: str) -> None:
    made = json.loads(table.file(0).read_text().splitlines()[2])["metaData"]
    schema = json.loads(made["schemaString"])
    schema["fields"].append({"name": name, "type": "boolean", "nullable": True, "metadata": {}})
    table.commit({"metaData": {**made, "schemaString": json.dumps(schema)}}, ago=timedelta(seconds=1))
