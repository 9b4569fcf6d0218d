"""Alerts of refined and served tables: refused, not reachable, or later than their freshness allows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import dagster as dg
from pydantic import TypeAdapter, ValidationError

from kdi_assets.errors import Transient
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
from sensors.alerts import WebhookFailed, message, post
from sensors.incidents import MOMENT_SECONDS, Incident, IncidentKind, announcements, mark_announced, track
from sensors.memory import TrackedIncident

NAME = "downstream_alerts"
TICK_SECONDS = 60
_CURSOR = TypeAdapter(dict[str, TrackedIncident])
Incidents = Mapping[str, Incident | None]


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
        tracked = track(_read(context.cursor), current, streams=names, now=moment.timestamp())
        left, said = _send(settings.alert_webhook, tracked, current, moment)
        cursor = _CURSOR.dump_json(dict(left), exclude_defaults=True).decode()
        return dg.SensorResult(skip_reason=said, cursor=cursor)

    return alerts


def incidents_of(status: DownstreamStatus) -> Iterator[tuple[str, Incident | None]]:
    """The incidents of a table by key; what is unknown is left out."""
    refusal, limit = status.refusal, status.limit_seconds
    if isinstance(refusal, UpstreamMissing | SourceMissing):
        return  # its own upstream has to begin first
    transient = isinstance(refusal, Transient)
    happened, _, run = refusal.message_parts() if refusal else ("", "", "")
    yield f"{IncidentKind.UNREACHABLE}:{status.table}", Incident(happened, MOMENT_SECONDS) if transient else None
    if not transient:
        yield f"{IncidentKind.REFUSED}:{status.table}", Incident(f"{happened} Run: {run}") if refusal else None
    if refusal is None and limit is not None and status.waiting_seconds is not None:
        detail = f"new rows upstream wait for {duration(status.waiting_seconds)}; the limit is {duration(limit)}"
        late = status.waiting_seconds >= limit
        yield f"{IncidentKind.STANDS_STILL}:{status.table}", Incident(detail, MOMENT_SECONDS) if late else None


def _send(
    webhook: str, tracked: Mapping[str, TrackedIncident], current: Incidents, now: datetime
) -> tuple[Mapping[str, TrackedIncident], str]:
    due = announcements(tracked, current, now=now.timestamp())
    if not due:
        return tracked, f"{len(tracked)} incidents, none of them new"
    try:
        post(webhook, message(due, cluster="", now=now))
    except WebhookFailed as failed:
        return tracked, f"alerts: {len(due)} not sent, next try at the next tick: {failed}"
    return mark_announced(tracked, due), f"alerts: sent {len(due)}"


def _read(cursor: str | None) -> Mapping[str, TrackedIncident]:
    try:
        return _CURSOR.validate_json(cursor or "{}")
    except ValidationError:
        return {}
