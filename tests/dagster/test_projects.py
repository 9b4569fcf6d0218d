"""Projects of others: the wheel in a virtual environment beside theirs, or in the same one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import WorkspaceFileTarget

from kdi_assets.settings import Settings
from tests.conftest import CHECKOUT
from tests.deployment.installed import install, make_environment

BRONZE = dg.AssetKey(["bronze", "web_requests"])
BIN = Path(sys.executable).parent
LOADED = """
import json
from shop import definitions
defs = definitions.defs()
graph = defs.resolve_asset_graph()
(downstream,) = (sensor for sensor in defs.sensors if sensor.name == "downstream")
print(json.dumps({
    "assets": sorted(key.to_user_string() for key in graph.get_all_asset_keys()),
    "sensors": sorted(sensor.name for sensor in defs.sensors),
    "requested": sorted(map(str, downstream.asset_selection.resolve(graph))),
    "jobs": sorted(job.name for job in defs.jobs),
    "schedules": sorted(schedule.name for schedule in defs.schedules),
    "resources": sorted(defs.resources),
    "executor": defs.executor.name,
}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's contents in a folder of their own."""
    return install(tmp_path_factory.mktemp("installed"))


def copy_of(example: str, folder: Path) -> Path:
    """The example as somebody who starts with it copies it."""
    ignored = shutil.ignore_patterns("__pycache__")
    return shutil.copytree(CHECKOUT / "examples" / example, folder / "project", ignore=ignored)


def environment(project: Path, **more: str) -> Mapping[str, str]:
    """Of the project's processes; they do not find the checkout."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "KDI_DEFS")}
    return {**inherited, "KDI_HOME": str(project / "home"), "KDI_LAKE": str(project / "lake"), **more}


def test_a_project_with_folders_sensors_and_resources_takes_our_location_from_another_virtual_environment(
    installed: Path, tmp_path: Path, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = copy_of("two_locations", tmp_path)
    make_environment(project / "kdi", installed, sysconfig.get_path("purelib"))
    monkeypatch.chdir(project)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    for name, value in environment(project, KDI_DEFS=str(project / "streams")).items():
        monkeypatch.setenv(name, value)

    with WorkspaceProcessContext(instance, WorkspaceFileTarget(["workspace.yaml"])) as process:
        workspace = process.create_request_context()
        errors = {name: entry.load_error for name, entry in workspace.get_code_location_entries().items()}
        graph = workspace.asset_graph
        ours = workspace.get_code_location("kdi_assets")
        sensors = {
            s.name
            for location in workspace.code_locations
            for r in location.get_repositories().values()
            for s in r.get_sensors()
        }

    assert errors == {"shop": None, "kdi_assets": None}
    assert graph.get(dg.AssetKey("request_count")).parent_keys == {BRONZE}
    assert graph.get(BRONZE).is_materializable
    assert {"new_requests", "lag_main"} <= sensors
    assert ours.origin.loadable_target_origin.executable_path == "kdi/bin/python"


def run(project: Path, variables: Mapping[str, str], *command: str | Path) -> str:
    """What a command prints, which must succeed."""
    ran = subprocess.run(command, cwd=project, env=variables, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def of_project(project: Path, installed: Path, **more: str) -> Mapping[str, str]:
    """Of processes that have the wheel and the project's packages, as after `pip install`."""
    return environment(project, PYTHONPATH=os.pathsep.join(map(str, (installed, project))), **more)


def test_a_project_loads_a_folder_of_documents_beside_its_own_assets_in_seven_lines(
    installed: Path, tmp_path: Path
) -> None:
    project = copy_of("one_location", tmp_path)
    variables = of_project(project, installed)

    loaded = json.loads(run(tmp_path, variables, sys.executable, "-c", LOADED))
    run(project, variables, BIN / "dagster", "definitions", "validate")

    silver = "silver/requests_per_host"
    assert loaded == {
        "assets": ["bronze/web_requests", "bronze/web_requests_dead_letters", "kafka/main/web_requests", silver],
        "sensors": ["downstream", "lag_main"],
        "requested": [str(dg.AssetKey(silver.split("/")))],
        "jobs": ["check_tables", "upkeep_bronze"],
        "schedules": ["all_checks", "cheap_checks", "upkeep_bronze_compaction", "upkeep_bronze_nightly"],
        "resources": ["spark"],
        "executor": "in_process",
    }
    lines = (project / "shop" / "definitions.py").read_text().partition('"""\n\n')[2].splitlines()
    assert len([line for line in lines if line]) == 7


def test_dg_writes_a_document_that_kdi_check_takes(installed: Path, tmp_path: Path, settings: Settings) -> None:
    project = copy_of("one_location", tmp_path)
    variables = {**of_project(project, installed, KDI_DRIVER="own"), "KDI_HOME": str(settings.home)}

    run(project, variables, BIN / "dg", "scaffold", "defs", "kdi_assets.components.TopicTable", "orders")
    checked = run(project, variables, BIN / "kdi", "check", "--defs", "shop/defs", "--json")

    assert (project / "shop" / "defs" / "orders" / "defs.yaml").is_file()
    assert "bronze/orders" in checked
