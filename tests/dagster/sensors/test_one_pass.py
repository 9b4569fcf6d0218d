"""A run of several tables of a route group: one pass, and each table reports its own commits in its own step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import dagster as dg
import pytest
from dagster import DagsterInstance

from kdi_assets.components import table_run
from kdi_assets.components.names import check_key, table_key
from kdi_assets.components.table_asset import table_asset
from kdi_assets.definitions import component_definitions
from kdi_assets.documents.model.message_rules import Route
from kdi_assets.documents.model.stream import Stream
from kdi_assets.streams.drain.report import Commit, DrainReport
from kdi_assets.streams.drain.shared_read import Drained
from tests.dagster.fakes import (
    MustDecide,
    ScriptedDrain,
    a_commit,
    a_stream,
    assets_of,
    materialize,
    no_audit,
    today,
    yesterday,
)
from tests.documents import CLUSTER, written
from tests.documents import stream as document

pytestmark = pytest.mark.usefixtures("lake_in_environment")

READ, WRITTEN, GONE = (
    a_stream(f"bronze/{name}", topic="web", route=Route("true", "dead_letters" if name == "gone" else None))
    for name in ("read", "written", "gone")
)
GROUP = (READ, WRITTEN, GONE)


@dataclass
class ScriptedPass:
    """Commits a row of today and one of yesterday for each stream; keeps the streams that it was called with."""

    refused: Sequence[Stream] = ()
    passes: list[list[str]] = field(default_factory=list)

    def __call__(
        self, group: Sequence[Stream], *, on_commit: Callable[[Stream, Commit], None], **_unused: object
    ) -> dict[str, Drained]:
        self.passes.append([s.name for s in group])
        drained = {}
        for stream in group:
            commit = a_commit(len(self.passes), {today(): 1, yesterday(): 1})
            on_commit(stream, commit)
            report = DrainReport(stream=stream.name, commits=(commit,), positions={}, backlog_before=2, backlog_after=0)
            refused = stream.name in [s.name for s in self.refused]
            failure = MustDecide(stream=stream.name) if refused else None
            drained[stream.name] = Drained([commit], None if refused else report, failure)
        return drained


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> ScriptedPass:
    scripted = ScriptedPass()
    monkeypatch.setattr(table_run, "drain_together", scripted)
    return scripted


def run(
    instance: DagsterInstance, alone: ScriptedDrain, *selected: Stream, checks: Sequence[dg.AssetCheckKey] = ()
) -> dg.ExecuteInProcessResult:
    """A run that selects some tables of a code location with the whole group."""
    assets = [table_asset(s, drain=alone, audit=no_audit, group=GROUP) for s in GROUP]
    return materialize(instance, assets, *map(table_key, selected), *checks, day=today())


def told(instance: DagsterInstance, result: dg.ExecuteInProcessResult) -> dict[str, set[tuple[str, date]]]:
    """By table, the steps that reported dates, and the dates."""
    found: dict[str, set[tuple[str, date]]] = {}
    for stream in GROUP:
        records = instance.fetch_materializations(table_key(stream), limit=100).records
        own = [r for r in records if r.run_id == result.run_id]
        days = {(r.event_log_entry.step_key or "", date.fromisoformat(r.partition_key or "")) for r in own}
        found |= {stream.name: days} if days else {}
    return found


def test_selected_tables_are_drained_in_one_pass_and_each_step_tells_of_its_own(
    instance: DagsterInstance, scripted: ScriptedPass
) -> None:
    alone = ScriptedDrain()

    assert run(instance, alone, READ, GONE).success
    result = run(instance, alone, READ, GONE)

    assert result.success
    assert [sorted(names) for names in scripted.passes] == [["bronze/gone", "bronze/read"]] * 2, "a pass for each run"
    assert alone.streams == []
    assert told(instance, result) == {
        name: {(f"bronze__{name.rpartition('/')[2]}", day) for day in (today(), yesterday())}
        for name in ("bronze/read", "bronze/gone")
    }


@pytest.mark.parametrize("checks", [[], [check_key(GONE, "positions_never_go_back")]])
def test_a_table_that_is_selected_alone_or_beside_a_check_of_another_is_drained_alone(
    instance: DagsterInstance, scripted: ScriptedPass, checks: list[dg.AssetCheckKey]
) -> None:
    alone = ScriptedDrain([a_commit(1, {today(): 1})])

    result = run(instance, alone, READ, checks=checks)

    assert result.success or checks
    assert (alone.streams, scripted.passes) == (["bronze/read"], [])


def test_a_retry_of_one_failed_step_drains_its_table_alone() -> None:
    layer = SimpleNamespace(executable_asset_keys=[table_key(s) for s in GROUP])
    retried = SimpleNamespace(run=SimpleNamespace(step_keys_to_execute=["bronze__written"]))
    retried.job_def = SimpleNamespace(asset_layer=layer)

    assert table_run.streams_of_run(cast(dg.AssetExecutionContext, retried), GROUP) == [WRITTEN]


def test_what_one_table_refuses_fails_its_step_and_the_others_are_told(
    instance: DagsterInstance, scripted: ScriptedPass
) -> None:
    scripted.refused = [WRITTEN]

    result = run(instance, ScriptedDrain(), *GROUP)

    ended_as = {"read": "SUCCESS", "written": "FAILURE", "gone": "SUCCESS"}
    steps = {e.step_key: e.event_type_value for e in result.all_events if e.is_step_success or e.is_step_failure}
    assert steps == {f"bronze__{name}": f"STEP_{ended}" for name, ended in ended_as.items()}
    assert len(scripted.passes) == 1
    assert set(told(instance, result)) == {s.name for s in GROUP}  # also its earlier commits


def test_tables_that_documents_join_are_one_pass_in_the_code_location(
    instance: DagsterInstance, scripted: ScriptedPass, tmp_path: Path
) -> None:
    routes = {"orders": "{when: id < 10}", "rest": "{rest: dead_letters}"}
    documents = {name: document(f"bronze/{name}", more=f", route: {route}") for name, route in routes.items()}
    assets = assets_of(component_definitions(written(tmp_path, cluster=CLUSTER, **documents)))
    tables = [dg.AssetKey(["bronze", name]) for name in routes]

    assert materialize(instance, assets, *tables, day=today()).success
    assert [sorted(names) for names in scripted.passes] == [["bronze/orders", "bronze/rest"]]
