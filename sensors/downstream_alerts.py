"""Alerts of refined and served tables: refused, not reachable, or later than their freshness allows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime

import dagster as dg
from pydantic import TypeAdapter

from kdi_assets.monitoring.downstream_status import (
    DownstreamStatus,
    DownstreamTable,
    read_downstream_status,
    watched_tables,
)
from kdi_assets.refine.errors import UpstreamMissing
from kdi_assets.serve.errors import SourceMissing
from kdi_assets.settings import Settings
from kdi_assets.stream.refined_table import RefinedTableSpec
from kdi_assets.stream.served_table import ServedTableSpec
from kdi_assets.wording import duration
from sensors.alerts import send_new
from sensors.incidents import MOMENT_SECONDS, Incident, IncidentKind, of_refusal, track
from sensors.memory import TrackedIncident, read_json

NAME = "downstream_alerts"
TICK_SECONDS = 60
_CURSOR = TypeAdapter(dict[str, TrackedIncident])


def alert_sensors(
    refined: Collection[RefinedTableSpec], served: Collection[ServedTableSpec]
) -> list[dg.SensorDefinition]:
    """The sensor, if there is something to watch."""
    tables = watched_tables(refined, served)
    return [alert_sensor(tables)] if tables else []


def alert_sensor(
    tables: Sequence[DownstreamTable], *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> dg.SensorDefinition:
    """The sensor that sends the incidents of these tables; it requests no runs.

    Args:
        now: The clock.
    """

    @dg.sensor(
        name=NAME,
        minimum_interval_seconds=TICK_SECONDS,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Sends alerts of refined and served tables to KDI_ALERT_WEBHOOK.",
    )
    def alerts(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        settings, moment = Settings.from_environment(), now()
        if not settings.alert_webhook:
            return dg.SensorResult(skip_reason="KDI_ALERT_WEBHOOK is not set", cursor="{}")
        statuses = [read_downstream_status(t, lake=settings.lake, home=settings.home, now=moment) for t in tables]
        current = {key: incident for status in statuses for key, incident in incidents_of(status)}
        names = {table.name for table in tables}
        known = read_json(_CURSOR, context.cursor)
        tracked = track(known, current, streams=names, now=moment.timestamp())
        left, lines = send_new(settings.alert_webhook, tracked, current, cluster="", now=moment)
        said = "\n".join(lines) or f"{len(tracked)} incidents, none of them new"
        cursor = _CURSOR.dump_json(dict(left), exclude_defaults=True).decode()
        return dg.SensorResult(skip_reason=said, cursor=cursor)

    return alerts


def incidents_of(status: DownstreamStatus) -> Iterator[tuple[str, Incident | None]]:
    """The incidents of a table by key; what is unknown is left out."""
    refusal, limit = status.refusal, status.limit_seconds
    if isinstance(refusal, UpstreamMissing | SourceMissing):
        return  # its own upstream has to begin first
    yield from ((f"{kind}:{status.table}", incident) for kind, incident in of_refusal(refusal))
    if refusal is None and limit is not None and status.waiting_seconds is not None:
        detail = f"new rows upstream wait for {duration(status.waiting_seconds)}; the limit is {duration(limit)}"
        late = status.waiting_seconds >= limit
        yield f"{IncidentKind.STANDS_STILL}:{status.table}", Incident(detail, MOMENT_SECONDS) if late else None
