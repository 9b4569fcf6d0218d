"""Batches on EMR in Dagster: what the UI gets, and when the schedule begins one."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from dagster import DagsterInstance
from dagster import DagsterRunStatus as Status

from kdi_assets.definitions import definitions_for
from kdi_assets.documents.model.capabilities import TableKind
from kdi_assets.documents.model.stream import Stream
from kdi_assets.operate.monitoring.backlog import Backlog
from kdi_assets.operate.monitoring.follower_rows import FollowerRow
from kdi_assets.runtime.emr.errors import EmrUnanswered
from kdi_assets.sensors import emr_batch as module
from kdi_assets.tools.local.s3_server import start_s3_server
from tests.conftest import CHECKOUT
from tests.documents import CLUSTER, refined, stream, written
from tests.emr.control_plane import ControlPlane
from tests.emr.declared import environment
from tests.emr.site import KEY, LAKE, Site
from tests.unit.monitoring.backlogs import waits


def test_a_run_shows_cluster_and_minutes_for_each_batch(site: Site) -> None:
    assert site.run().success

    (record,) = site.instance.fetch_materializations(KEY, limit=5).records
    materialized = record.asset_materialization
    assert materialized
    metadata = {name: value.value for name, value in materialized.metadata.items()}
    assert str(metadata["cluster"]).endswith("#/clusterDetails/j-0000000000001")
    assert metadata["normalized_instance_hours"] == 8
    assert isinstance(metadata["cluster_minutes"], float)


def test_a_batch_in_a_python_file_beside_the_documents_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = re.search(r"```python\n(.*?)```", (CHECKOUT / "docs" / "emr.md").read_text(), re.DOTALL)
    assert example
    folder = tmp_path / "defs"
    folder.mkdir()
    (folder / "nightly.py").write_text(example[1])
    monkeypatch.setenv("KDI_AUTOMATION", "on")

    repository = definitions_for(folder).get_repository_def()

    assert repository.get_schedule_def("emr_nightly").default_status is dg.DefaultScheduleStatus.RUNNING
    assert repository.get_sensor_def("emr_nightly_left_behind").default_status is dg.DefaultSensorStatus.RUNNING
    assert KEY in repository.assets_defs_by_key


def test_the_schedule_begins_no_batch_while_one_runs(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KDI_DEFS", str(tmp_path))  # a location without tables cannot see what is due
    free = site.begin()
    run_id = site.lost_process(noticed=False)

    assert isinstance(free, dg.RunRequest)
    assert isinstance(busy := site.begin(), dg.SkipReason)
    assert run_id[:8] in str(busy.skip_message)


@pytest.fixture
def documents(plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream and a refined table, whose tables do not exist."""
    written(tmp_path / "defs", kafka=CLUSTER, a=stream("bronze/a"), b=refined("silver/b", upstream="bronze/a"))
    monkeypatch.setenv("KDI_DEFS", str(tmp_path / "defs"))
    monkeypatch.setenv("KDI_LAKE", str(tmp_path / "lake"))


IDLE = waits(stream="bronze/a")
DUE: dict[str, tuple[Backlog, str]] = {
    "a backlog": (waits(1, stream="bronze/a"), ""),
    "a refusal": (replace(IDLE, refusal=EmrUnanswered(call="any", detail="silent")), ""),
    "positions": (replace(IDLE, needs_position_commit=True), ""),
    "unknown": (replace(IDLE, topic_partitions={}), ""),
    "a refined table": (IDLE, "rows"),
}


@pytest.mark.usefixtures("documents")
def test_the_schedule_starts_no_cluster_if_nothing_is_due(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def idle(streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
        looked.extend(stream.name for stream in streams)
        return [IDLE]

    monkeypatch.setattr(module, "read_backlogs", idle)

    skipped = site.begin()

    assert isinstance(skipped, dg.SkipReason) and "nothing is due" in str(skipped.skip_message)
    assert looked == ["bronze/a"]


@pytest.mark.usefixtures("documents")
@pytest.mark.parametrize("due", DUE)
def test_whatever_is_due_begins_a_batch(site: Site, monkeypatch: pytest.MonkeyPatch, due: str) -> None:
    seen, new = DUE[due]
    monkeypatch.setattr(module, "read_backlogs", lambda streams, *, lake: [seen])
    if new:
        row = FollowerRow("silver/b", TableKind.REFINED, new=new)
        monkeypatch.setattr(module, "read_follower_rows", lambda tables, **_: [row])

    assert isinstance(site.begin(), dg.RunRequest)


@pytest.mark.usefixtures("documents")
@pytest.mark.parametrize("hangs", [True, False])
def test_a_batch_begins_if_what_is_due_cannot_be_seen(site: Site, monkeypatch: pytest.MonkeyPatch, hangs: bool) -> None:
    ended = threading.Event()

    def look(streams: Sequence[Stream], *, lake: str) -> list[Backlog]:
        if hangs:
            ended.wait()
        raise OSError("the storage is silent")

    monkeypatch.setattr(module, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(module, "read_backlogs", look)

    begun = site.begin()
    ended.set()

    assert isinstance(begun, dg.RunRequest)


def test_a_failed_step_fails_the_run_without_a_retry_and_is_not_run_again_by_it(
    site: Site, plane: ControlPlane
) -> None:
    plane.run_step = lambda args: lambda: 1 if args[-2] == "drain" else 0

    failed = site.run()

    run = site.instance.get_run_by_id(failed.run_id)
    assert run and run.status is Status.FAILURE
    assert run.tags["dagster/retry_on_asset_or_op_failure"] == "false"
    assert site.instance.fetch_materializations(KEY, limit=1).records == []


def test_no_event_and_no_request_has_a_secret(site: Site, plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KAFKA_PASSWORD", "KDI_ALERT_WEBHOOK", "PGPASSWORD"):
        monkeypatch.setenv(name, f"secret-of-{name}")
    plane.fail("DescribeCluster", "denied")

    failed = site.run()
    succeeded = site.run()

    events = [event for run in (failed, succeeded) for event in site.instance.all_logs(run.run_id)]
    assert len(events) > 10
    assert "secret" not in "".join(map(repr, events)).replace("AWS_SECRET", "")
    assert "secret" not in repr(plane.calls)


def test_a_server_that_others_wrote_answers_in_the_same_shapes(
    instance: DagsterInstance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs no steps, and its clusters end at once: our own server must not agree only with itself."""
    server = start_s3_server(tmp_path / "ministack", services=("elasticmapreduce",))
    for name, value in {**environment(server.endpoint), "KDI_LAKE": LAKE}.items():
        monkeypatch.setenv(name, value)
    site = Site(instance, ControlPlane())
    try:
        assert site.run().success
        assert site.tick() == "0 clusters of the batch"
    finally:
        server.stop()
