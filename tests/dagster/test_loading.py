"""The documents as Dagster sees them: the same streams, the same mistakes, the same text as the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pytest
from dagster.components.core.package_entry import discover_package_objects

from kdi_assets.components import (
    KafkaCluster,
    KinesisConnection,
    KinesisTable,
    RefinedTable,
    SchemaRegistry,
    ServedTable,
    TopicTable,
    TopicTables,
    refined_groups,
    topic_table,
)
from kdi_assets.components.topics import topic_assets
from kdi_assets.definitions import component_definitions, definitions_for, defs
from kdi_assets.documents.loading.errors import Mistakes
from kdi_assets.documents.loading.loader import load_streams
from kdi_assets.documents.loading.refined_documents import upstream_first
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.resources.spark import SparkResource
from tests.dagster.fakes import today
from tests.documents import CLUSTER, OF_REGISTRY, REGISTRY, TOPIC_TABLES, refined, stream, written

CHECKOUT = Path(__file__).parent.parent.parent
AWKWARD = """
type: kdi_assets.components.TopicTable
attributes:
  topic: t
  table: awkward
  schema: "id string"
  date: "to_date('{{ x }}')"
  columns: {c: "'x'", d: "'{# kept #}'"}
  properties: {delta.checkpointInterval: "20"}
  app_id: "123"
  description: "{% kept %}"
  start: {0: 7}
  date_window: {start: 2021-02-03, ahead: 0 days}
"""


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KDI_KAFKA", raising=False)
    monkeypatch.delenv("KDI_DEFS", raising=False)


def keys_of(location: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in location.resolve_asset_graph().get_all_asset_keys()}


def first_partition(location: dg.Definitions, table: str) -> str | None:
    partitions = location.resolve_asset_graph().get(dg.AssetKey(table.split("/"))).partitions_def
    return partitions.get_first_partition_key() if partitions else None


def specs(folder: Path) -> dict[str, dg.AssetSpec]:
    """What the components of a folder define, by key."""
    shared = dg.Definitions(resources={"spark": SparkResource()})
    merged = dg.Definitions.merge(component_definitions(folder), shared)
    return {spec.key.to_user_string(): spec for spec in merged.resolve_all_asset_specs()}


def test_definitions_show_the_brokers_and_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = "tls: {certificate: {env: KDI_T_ANY}, key: {env: KDI_T_ANY}, key_password: {env: KDI_T_ANY}}"
    sasl = "sasl: {mechanism: PLAIN, username: {env: KDI_T_ANY}, password: {env: KDI_T_ANY}}"
    monkeypatch.setenv("KDI_T_ANY", "hush")
    written(tmp_path, kafka=CLUSTER.replace('"}', f'", {tls}, {sasl}}}'), s=stream("s"))

    topics = [spec for asset in topic_assets(load_streams(tmp_path).values()) for spec in asset.specs]
    shown = repr([*topics, *specs(tmp_path).values()])

    assert "localhost:9092" in shown
    assert "hush" not in shown


def test_the_code_location_holds_tables_topics_sensors_schedules_and_resource() -> None:
    location = defs()

    bronze = {"kafka/main/web_requests", "bronze/web_requests", "bronze/web_requests_dead_letters"}
    assert keys_of(location) == {*bronze, "silver/sessions", "gold/daily_usage", "postgres/public/daily_usage"}
    of_topics, of_tables = {"lag_main", "freshness_main"}, {"follow", "downstream_alerts"}
    assert {sensor.name for sensor in location.sensors or ()} == of_topics | of_tables
    upkeep = {f"upkeep_{group}_{part}" for group in ("bronze", "silver", "gold") for part in ("compaction", "nightly")}
    assert {schedule.name for schedule in location.schedules or ()} == {"cheap_checks", "all_checks"} | upkeep
    assert set(location.resources or {}) == {"spark"}
    assert location.executor is dg.in_process_executor
    dg.Definitions.validate_loadable(location)


def test_the_code_location_reads_the_folder_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDI_DEFS", str(written(tmp_path, kafka=CLUSTER, a=stream("bronze/a"), b=stream("bronze/b"))))

    letters = {f"{name}_dead_letters" for name in load_streams()}
    assert load_streams().keys() == {"bronze/a", "bronze/b"}
    assert keys_of(defs()) == {*load_streams(), "kafka/main/t", *letters}


def test_dagster_and_the_command_line_make_the_same_stream_of_awkward_text_schema_file_and_registry(
    tmp_path: Path,
) -> None:
    of_file = stream("of_file").replace("schema: id bigint", "format: {avro: {schema_file: x.avsc}}")
    of_registry = stream("of_registry", record=OF_REGISTRY)
    folder = written(tmp_path, kafka=CLUSTER, registry=REGISTRY, a=AWKWARD, b=of_file, c=of_registry)
    (folder / "b" / "x.avsc").write_text('{"type": "record", "name": "R", "fields": []}', encoding="utf-8")
    expected = load_streams(folder)

    found = specs(folder)

    assert found.keys() >= expected.keys()
    awkward = expected["awkward"]
    assert awkward.date_expression == "to_date('{{ x }}')"
    assert (awkward.columns, awkward.app_id) == ({"c": "'x'", "d": "'{# kept #}'"}, "123")
    assert found["awkward"].description == awkward.description == "{% kept %}"


@pytest.mark.parametrize(
    ("others", "document", "field", "kind"),
    [
        ({}, stream("x", more=", cluster: cloud"), "cluster", "KafkaCluster"),
        (
            {"kafka": CLUSTER},
            stream("x", record=OF_REGISTRY.replace("main", "cloud")),
            "format.avro.registry",
            "SchemaRegistry",
        ),
    ],
)
def test_a_component_made_in_another_project_says_what_it_misses(
    tmp_path: Path, others: dict[str, str], document: str, field: str, kind: str
) -> None:
    with pytest.raises(Exception, match="definitions for a") as refused:  # the tree wraps whatever a component raises
        component_definitions(written(tmp_path, **others, a=document))

    cause = refused.value.__cause__
    assert isinstance(cause, Mistakes)
    assert [(m.field, m.message) for m in cause.mistakes] == [(field, f"no {kind} document is named 'cloud'")]


def test_the_code_location_refuses_with_all_the_mistakes_that_the_command_line_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = written(tmp_path, a=stream("x", more=", tabel: y"), b=stream("x"))
    monkeypatch.setenv("KDI_DEFS", str(folder))

    with pytest.raises(Mistakes) as by_command_line:
        load_streams(folder)
    with pytest.raises(Mistakes) as by_dagster:
        defs()

    assert str(by_dagster.value) == str(by_command_line.value)
    assert [m.field for m in by_dagster.value.mistakes] == ["cluster", "tabel", "cluster"]


def test_python_files_are_loaded_hidden_ones_are_not_and_an_asset_refers_to_the_line_of_its_document(
    tmp_path: Path,
) -> None:
    folder = written(tmp_path, kafka=CLUSTER, a=stream("x") + "---\n" + stream("y"))
    (folder / "silver.py").write_text("import dagster as dg\n@dg.asset\ndef silver(): ...\n", encoding="utf-8")
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "defs.yaml").write_text(stream("z"), encoding="utf-8")

    found = specs(folder)

    assert {"silver", "x", "y"} <= found.keys() and "z" not in found
    (reference,) = found["y"].metadata["dagster/code_references"].code_references
    assert (reference.file_path, reference.line_number) == (str(folder / "a" / "defs.yaml"), 4)


def test_a_document_directly_in_the_folder_is_loaded_under_each_name_that_dagster_takes(tmp_path: Path) -> None:
    (tmp_path / "defs.yml").write_text(CLUSTER + "---\n" + stream("x"), encoding="utf-8")

    assert "x" in specs(tmp_path)
    assert list(load_streams(tmp_path)) == ["x"]


def test_each_topic_of_a_document_of_many_has_the_assets_of_a_stream(tmp_path: Path) -> None:
    shared = "table: 'many/{1}', schema: id bigint, date: current_date(), owners: ['team:shop']"
    many = f"{TOPIC_TABLES}\nattributes: {{name: shop, topics: {{pattern: 's-(.*)'}}, {shared}}}\n"
    folder = written(tmp_path, kafka=CLUSTER, shop=many, none=many.replace("name: shop", "name: none"))
    (folder / "shop" / "shop.topics").write_text("s-a\ns-b\n", encoding="utf-8")

    found = specs(folder)

    tables = {key for key in found if not key.startswith("kafka/")}
    assert tables == {"many/a", "many/a_dead_letters", "many/b", "many/b_dead_letters"}
    assert [dep.asset_key.to_user_string() for dep in found["many/b"].deps] == ["kafka/main/s-b"]
    assert list(found["many/a"].owners) == ["team:shop"]
    (reference,) = found["many/b"].metadata["dagster/code_references"].code_references
    assert reference.file_path == str(folder / "shop" / "defs.yaml")


def test_dagster_reads_past_the_defaults_of_a_folder_and_the_asset_has_them(tmp_path: Path) -> None:
    folder = written(tmp_path, kafka=CLUSTER, shop__x=stream("x"), y=stream("y"))
    (folder / "shop" / "defaults.yaml").write_text("owners: [team:shop]\n", encoding="utf-8")

    found = specs(folder)

    assert (list(found["x"].owners), list(found["y"].owners)) == (["team:shop"], [])


def test_two_folders_can_be_loaded_in_one_process(tmp_path: Path) -> None:
    one = written(tmp_path / "one", main=CLUSTER, a=stream("a"))
    two = written(tmp_path / "two", main=CLUSTER.replace("localhost", "elsewhere"), a=stream("b"))

    keys = [{key for key in specs(folder) if not key.startswith("kafka/")} for folder in (one, two, one)]
    assert keys == [{"a", "a_dead_letters"}, {"b", "b_dead_letters"}, {"a", "a_dead_letters"}]


def test_refined_tables_are_grouped_once_a_load_and_not_for_each_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run loads the documents: with 300 refined tables, twelve seconds of CPU."""
    documents = {f"t{number}": refined(f"silver/t{number}") for number in range(5)}
    folder = written(tmp_path, kafka=CLUSTER, web=stream("bronze/web"), **documents)
    ordered: list[int] = []

    def counted(tables: Collection[RefinedTableSpec]) -> list[RefinedTableSpec]:
        ordered.append(len(tables))
        return upstream_first(tables)

    monkeypatch.setattr(refined_groups, "upstream_first", counted)

    assert specs(folder).keys() >= {f"silver/{name}" for name in documents}
    assert ordered == [5]


def test_partitions_begin_with_an_older_date_that_the_table_got_after_a_load_in_the_same_process(
    tmp_path: Path, lake_in_environment: str
) -> None:
    """A code server loads the documents again in its process, as the warning of a run with older dates says."""
    auto = stream("bronze/web", more=", date_window: {start: auto}")
    folder = written(tmp_path, kafka=CLUSTER, web=auto)

    before = first_partition(definitions_for(folder), "bronze/web")
    (Path(lake_in_environment) / "bronze" / "web" / "date=2021-03-04").mkdir(parents=True)
    after = first_partition(definitions_for(folder), "bronze/web")

    assert (before, after) == (str(today() - timedelta(days=7)), "2021-03-04")


def test_dagster_finds_all_components_with_every_field_described() -> None:
    found = {key.name: obj for key, obj in discover_package_objects(["kdi_assets.components"]).items()}

    tables = (TopicTable, TopicTables, KinesisTable, RefinedTable, ServedTable)
    components = (*tables, KafkaCluster, KinesisConnection, SchemaRegistry)
    assert found == {component.__name__: component for component in components}
    for component in components:
        schema = component.model().model_json_schema()
        assert [name for name, field in schema["properties"].items() if not field.get("description")] == []
    assert {"schema", "date", "table"} <= TopicTable.model().model_json_schema()["properties"].keys()


def test_definitions_are_loaded_without_the_json_schema_that_only_editors_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the source of all models: longer than all else of a load, which each run does."""
    built: list[object] = []
    monkeypatch.setattr(topic_table, "json_schema", built.append)

    found = specs(written(tmp_path, kafka=CLUSTER, orders=stream("bronze/orders")))
    loading = len(built)
    TopicTable.model().model_json_schema()

    assert "bronze/orders" in found
    assert (loading, len(built)) == (0, 1)


def test_dg_accepts_the_packages_documents() -> None:
    dg_command = Path(sys.executable).parent / "dg"

    ran = subprocess.run(  # no warnings of other packages' previews on stderr
        [dg_command, "check", "yaml"], cwd=CHECKOUT, capture_output=True, text=True, check=False
    )

    assert (ran.returncode, "validated successfully" in ran.stdout) == (0, True), ran.stdout + ran.stderr
