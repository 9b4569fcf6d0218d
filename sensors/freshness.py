"""The freshness sensor of a cluster: makes the check `fresh` every minute without a run, and logs new results."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import TypeAdapter

from kdi_assets.components.asset_checks import LoggedLevel, check_evaluation, latest_levels
from kdi_assets.components.names import check_key, identifier
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import Transient
from kdi_assets.operate.monitoring.backlog_reader import BacklogReader, ReadBacklogs, by_cluster
from kdi_assets.operate.monitoring.checks.all_checks import run_check
from kdi_assets.operate.monitoring.checks.finding import CheckResult
from kdi_assets.operate.monitoring.checks.subject import CheckSubject
from kdi_assets.sensors.default_status import described, sensor_status
from kdi_assets.sensors.memory import read_json
from kdi_assets.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 60
AGAIN_SECONDS = 3600.0
"""An unchanged result is logged again after so long, because the UI shows when a check was last made."""

LOGGED_PER_TICK = 50
"""Each result is a row in Dagster's database, and a thousand would delay the tick; failures are logged first."""
_CURSOR: TypeAdapter[dict[str, LoggedLevel]] = TypeAdapter(dict[str, LoggedLevel])
"""By stream, level and time (seconds since the epoch) of the result that was logged last; if lost, all are new."""


def freshness_sensors(
    streams: Collection[Stream], *, read_backlogs: ReadBacklogs | None = None
) -> list[dg.SensorDefinition]:
    """One sensor per Kafka cluster, ``freshness_<cluster>``, for its streams that have the check."""
    clusters = by_cluster(s for s in streams if "fresh" in s.check_names)
    return [
        freshness_sensor(name, own, read_backlogs=read_backlogs or BacklogReader(leader_seconds=0.0))
        for name, own in clusters.items()
    ]


def freshness_sensor(cluster: str, streams: Sequence[Stream], *, read_backlogs: ReadBacklogs) -> dg.SensorDefinition:
    """A stream that is stuck starts no run, so no run makes its checks: the sensor does."""

    @dg.sensor(
        name=f"freshness_{identifier(cluster)}",
        minimum_interval_seconds=SECONDS,
        default_status=sensor_status(),
        description=described(
            f"Makes the check `fresh` of the streams of cluster {cluster} that have `freshness`. Logs changes, "
            "and every hour what did not change."
        ),
    )
    def freshness(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now, lake = datetime.now(UTC), Settings.from_environment().lake
        logged = _logged(streams, read_json(_CURSOR, context.cursor), context.instance)
        backlogs = zip(streams, read_backlogs(streams, lake=lake), strict=True)
        subjects = [CheckSubject(s, lake, _no_session, backlog=backlog, now=now) for s, backlog in backlogs]
        results = [(subject.stream, result) for subject in subjects if (result := _result(subject))]
        new = [(s, result) for s, result in results if _is_new(logged.get(s.name), result, now)]
        new = sorted(new, key=lambda one: one[1].passed)[:LOGGED_PER_TICK]
        kept = {s.name: logged[s.name] for s in streams if s.name in logged}
        return dg.SensorResult(
            asset_events=[check_evaluation(s, "fresh", result) for s, result in new],
            skip_reason="\n".join(f"{s.name}: {result.description}" for s, result in results if not result.passed)
            or "all fresh",
            cursor=_CURSOR.dump_json({**kept, **{s.name: (r.level, now.timestamp()) for s, r in new}}).decode(),
        )

    return freshness


def _logged(
    streams: Sequence[Stream], by_sensor: dict[str, LoggedLevel], instance: dg.DagsterInstance
) -> dict[str, LoggedLevel]:
    """The latest results: of a tick, or of a drain since then."""
    latest = latest_levels(instance, [check_key(s, "fresh") for s in streams])
    of_runs = {s.name: found for s in streams if (found := latest.get(check_key(s, "fresh")))}
    return {**by_sensor, **{name: r for name, r in of_runs.items() if r[1] > by_sensor.get(name, r)[1]}}


def _result(subject: CheckSubject) -> CheckResult | None:
    """``None`` if the check blocks and could not be made."""
    try:
        return run_check("fresh", subject)
    except Transient:
        return None


def _is_new(before: LoggedLevel | None, result: CheckResult, now: datetime) -> bool:
    return before is None or before[0] != result.level or now.timestamp() - before[1] >= AGAIN_SECONDS


def _no_session() -> SparkSession:
    raise AssertionError("the check `fresh` reads the broker and the log, and needs no Spark")
