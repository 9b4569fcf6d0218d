"""What `docs/security.md` says of Dagster's UI and of expressions."""

from __future__ import annotations

import asyncio
import configparser
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import EmptyWorkspaceTarget
from dagster_graphql.schema import create_schema

from kdi_assets.resources.spark import SparkResource

UNITS = sorted((Path(__file__).parents[3] / "deploy" / "systemd").glob("*.service"))
LAUNCH = """mutation { launchRun(executionParams: {
    selector: {repositoryName: "r", repositoryLocationName: "l", jobName: "j"}, runConfigData: {}
}) { __typename } }"""
RUNS = "{ runsOrError { __typename } }"


@pytest.mark.parametrize(
    ("read_only", "answer"), [(True, "UnauthorizedError"), (False, "PipelineNotFoundError")], ids=["read-only", "not"]
)
def test_a_read_only_ui_shows_runs_and_starts_none(read_only: bool, answer: str) -> None:
    def asked(context: Any, query: str) -> Any:
        return asyncio.run(create_schema().execute_async(query, context_value=context)).data

    with (
        dg.instance_for_test() as instance,
        WorkspaceProcessContext(instance, EmptyWorkspaceTarget(), read_only=read_only) as process,
    ):
        context = process.create_request_context()
        shown, launched = asked(context, RUNS), asked(context, LAUNCH)

    assert shown == {"runsOrError": {"__typename": "Runs"}}
    assert launched == {"launchRun": {"__typename": answer}}


def test_whoever_starts_a_run_may_give_spark_settings_and_with_them_code() -> None:
    """The page tells so; if Dagster or the resource ever refuses it, the page must change."""
    given: dict[str, str] = {}

    @dg.op
    def look(spark: SparkResource) -> None:
        given.update(spark.spark_config)

    @dg.job(resource_defs={"spark": SparkResource()})
    def run() -> None:
        look()

    settings = {"spark.driver.extraClassPath": "/srv/other.jar"}
    run.execute_in_process(run_config={"resources": {"spark": {"config": {"spark_config": settings}}}})

    assert given == settings


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_no_unit_runs_as_root_gains_rights_or_shares_its_temporary_files(unit: Path) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(unit)

    service = parser["Service"]

    assert (service["User"], service["NoNewPrivileges"], service["PrivateTmp"]) == ("kdi", "true", "true")
    if "--host" in service["ExecStart"]:
        assert "--host 127.0.0.1" in service["ExecStart"]
