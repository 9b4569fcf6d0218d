"""A code location with a batch on EMR, and how its runs, retries and ticks come about."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import dagster as dg
from dagster import DagsterInstance
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run

from kdi_assets.sensors.emr_batch import emr_batch
from tests.emr.control_plane import ControlPlane
from tests.emr.declared import BATCH, REGION

LAKE = "s3://bucket/lake"
KEY = dg.AssetKey(["emr", "nightly"])


class Site:
    """A code location with the batch, and an instance.

    Args:
        plane: Answers the calls of EMR.
    """

    def __init__(self, instance: DagsterInstance, plane: ControlPlane) -> None:
        self.instance, self.plane = instance, plane
        in_process = dg.Definitions(executor=dg.in_process_executor)  # as in `definitions_for`
        location = dg.Definitions.merge(emr_batch(BATCH, poll_seconds=0.0), in_process)
        self.repository = location.get_repository_def()

    def run(self) -> dg.ExecuteInProcessResult:
        """Materialize the asset, as the schedule's run does."""
        return self._job().execute_in_process(instance=self.instance, raise_on_error=False)

    def tick(self) -> str:
        """The text of a tick of the sensor; raises what fails it."""
        sensor = self.repository.get_sensor_def("emr_nightly_left_behind")
        result = sensor(dg.build_sensor_context(instance=self.instance))
        assert isinstance(result, dg.SkipReason)
        return str(result.skip_message)

    def begin(self) -> Any:
        """What the schedule answers."""
        schedule = self.repository.get_schedule_def("emr_nightly")
        return schedule(dg.build_schedule_context(instance=self.instance))

    def retry(self, of: str, *, from_failure: bool = True) -> bool:
        """Run it as Dagster retries a run, or as "Re-execute all" of the UI does; whether it succeeded."""
        first = self.instance.get_run_by_id(of)
        assert first
        resumed = {"dagster/is_resume_retry": "true"} if from_failure else {}
        again = self._created(resumed, root_run_id=first.root_run_id or of, parent_run_id=of)
        return execute_run(InMemoryJob(self._job()), again, self.instance).success

    def last(self) -> str:
        """The id of the newest run."""
        return self.instance.get_runs(limit=1)[0].run_id

    def lost_process(self, *, noticed: bool = True) -> str:
        """The id of a run that has started a cluster and whose process is gone; Dagster may have noticed it."""
        run = self._created()
        self.plane.answer("RunJobFlow", BATCH.request(run.run_id, lake=LAKE, region=REGION))
        if noticed:
            self.instance.report_run_failed(run, "its process is gone")
        return run.run_id

    def _created(self, more: Mapping[str, str] = MappingProxyType({}), **lineage: Any) -> dg.DagsterRun:
        tags = {**more, **{f"dagster/{name}": run_id for name, run_id in lineage.items()}}
        selected = frozenset([KEY])
        return self.instance.create_run_for_job(self._job(), asset_selection=selected, tags=tags, **lineage)

    def _job(self) -> dg.JobDefinition:
        return self.repository.get_implicit_global_asset_job_def()
