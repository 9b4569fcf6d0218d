"""The freshness sensor of a cluster: makes the check `fresh` every minute, without a run, and tells what is new."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import TypeAdapter, ValidationError

from kdi_assets.components.asset_checks import check_evaluation
from kdi_assets.components.names import identifier
from kdi_assets.errors import Transient
from kdi_assets.monitoring.backlog_reader import BacklogReader, ReadBacklogs, by_cluster
from kdi_assets.monitoring.checks.all_checks import found
from kdi_assets.monitoring.checks.finding import CheckResult
from kdi_assets.monitoring.checks.subject import CheckSubject
from kdi_assets.settings import Settings
from kdi_assets.stream.stream import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 60
AGAIN_SECONDS = 3600.0
"""After so long what is not new is told again: the UI shows when a check was made."""

TOLD_PER_TICK = 50
"""Each is a row in Dagster's database, and a thousand would hold up the tick; what does not pass goes first."""
_CURSOR = TypeAdapter(dict[str, tuple[str, float]])
"""By stream, level and time of what was told."""


def freshness_sensors(streams: Collection[Stream], *, look: ReadBacklogs | None = None) -> list[dg.SensorDefinition]:
    """One sensor per Kafka cluster, ``freshness_<cluster>``, for its streams that have the check."""
    clusters = by_cluster(s for s in streams if "fresh" in s.check_names)
    return [
        freshness_sensor(name, own, look=look or BacklogReader(leader_seconds=0.0)) for name, own in clusters.items()
    ]


def freshness_sensor(cluster: str, streams: Sequence[Stream], *, look: ReadBacklogs) -> dg.SensorDefinition:
    """A hung stream starts no run, and so no check: somebody else must look."""

    @dg.sensor(
        name=f"freshness_{identifier(cluster)}",
        minimum_interval_seconds=SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Makes the check `fresh` of the streams of cluster {cluster} that have `freshness`; tells of "
        "changes, else hourly.",
    )
    def freshness(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        now, lake = datetime.now(UTC), Settings.from_environment().lake
        told = _told(context.cursor)
        looked = zip(streams, look(streams, lake=lake), strict=True)
        subjects = [CheckSubject(s, lake, _no_session, backlog=backlog, now=now) for s, backlog in looked]
        made = [(subject.stream, finding) for subject in subjects if (finding := _verdict(subject))]
        news = [(s, finding) for s, finding in made if _is_new(told.get(s.name), finding, now)]
        new = sorted(news, key=lambda one: one[1].passed)[:TOLD_PER_TICK]
        kept = {s.name: told[s.name] for s in streams if s.name in told}
        return dg.SensorResult(
            asset_events=[check_evaluation(s, "fresh", finding) for s, finding in new],
            skip_reason="\n".join(f"{s.name}: {finding.said}" for s, finding in made if not finding.passed)
            or "all fresh",
            cursor=_CURSOR.dump_json({**kept, **{s.name: (f.level, now.timestamp()) for s, f in new}}).decode(),
        )

    return freshness


def _verdict(subject: CheckSubject) -> CheckResult | None:
    """``None``: the check blocks, and nobody answers."""
    try:
        return found("fresh", subject)
    except Transient:
        return None


def _told(cursor: str | None) -> dict[str, tuple[str, float]]:
    """What was told; of a cursor that cannot be read nothing, and all is told again."""
    try:
        return _CURSOR.validate_json(cursor or "{}")
    except ValidationError:
        return {}


def _is_new(before: tuple[str, float] | None, finding: CheckResult, now: datetime) -> bool:
    return before is None or before[0] != finding.level or now.timestamp() - before[1] >= AGAIN_SECONDS


def _no_session() -> SparkSession:
    raise AssertionError("freshness is told by the broker and the log")
