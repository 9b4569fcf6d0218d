"""Alerts of tables that follow others: refused, not reachable, or later than their freshness allows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import UTC, datetime

import dagster as dg
from pydantic import TypeAdapter

from kdi_assets.documents.model.capabilities import TableKind
from kdi_assets.documents.model.refined_table import RefinedTableSpec
from kdi_assets.documents.model.served_table import ServedTableSpec
from kdi_assets.documents.model.stream import Stream
from kdi_assets.operate.monitoring.follower_rows import FollowedTable, FollowerRow, read_follower_rows, watched_tables
from kdi_assets.operate.monitoring.status_row import freshness_level
from kdi_assets.sensors.alerts import send_new
from kdi_assets.sensors.default_status import described, sensor_status
from kdi_assets.sensors.incidents import MOMENT_SECONDS, Incident, IncidentKind, of_refusal, track
from kdi_assets.sensors.memory import TrackedIncident, read_json
from kdi_assets.settings import Settings
from kdi_assets.streams.announce.errors import NotLookedAtInTime
from kdi_assets.streams.announce.status import is_outage_of_stream
from kdi_assets.wording import duration

NAME = "downstream_alerts"
TICK_SECONDS = 60
LATE_SECONDS = 600.0
"""How long a table may be missed by every look before someone is told."""
_CURSOR = TypeAdapter(dict[str, TrackedIncident])


def alert_sensors(
    refined: Collection[RefinedTableSpec], served: Collection[ServedTableSpec], streams: Collection[Stream]
) -> list[dg.SensorDefinition]:
    """The sensor, if there is something to watch."""
    tables = watched_tables(refined, served, streams)
    return [alert_sensor(tables)] if tables else []


def alert_sensor(
    tables: Sequence[FollowedTable], *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> dg.SensorDefinition:
    """The sensor that sends the incidents of these tables; it requests no runs.

    Args:
        now: The clock.
    """

    @dg.sensor(
        name=NAME,
        minimum_interval_seconds=TICK_SECONDS,
        default_status=sensor_status(),
        description=described("Sends alerts of refined, served and announced tables to KDI_ALERT_WEBHOOK."),
    )
    def alerts(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        settings, moment = Settings.from_environment(), now()
        if not settings.alert_webhook:
            return dg.SensorResult(skip_reason="KDI_ALERT_WEBHOOK is not set", cursor="{}")
        rows = read_follower_rows(tables, lake=settings.lake, home=settings.home, now=moment)
        # An outage of a stream's own brokers is the lag sensor's incident, and one is enough.
        own = [row for table, row in zip(tables, rows, strict=True) if not _is_of_lag_sensor(table, row)]
        current = {key: incident for row in own for key, incident in incidents_of(row)}
        names = {table.name for table in tables}
        known = read_json(_CURSOR, context.cursor)
        tracked = track(known, current, streams=names, now=moment.timestamp())
        left, lines = send_new(settings.alert_webhook, tracked, current, cluster="", now=moment)
        said = "\n".join(lines) or f"{len(tracked)} incidents, none of them new"
        cursor = _CURSOR.dump_json(dict(left), exclude_defaults=True).decode()
        return dg.SensorResult(skip_reason=said, cursor=cursor)

    return alerts


def _is_of_lag_sensor(table: FollowedTable, row: FollowerRow) -> bool:
    return isinstance(table, Stream) and is_outage_of_stream(table, row.refusal)


def incidents_of(row: FollowerRow) -> Iterator[tuple[str, Incident | None]]:
    """The incidents of a table by key; what is unknown is left out."""
    if row.has_not_begun:
        return  # its own upstream has to begin first
    if isinstance(row.refusal, NotLookedAtInTime):
        # The next look begins with other tables; one that is never reached stands still unseen.
        yield f"{IncidentKind.UNREACHABLE}:{row.name}", Incident(row.refusal.message_parts()[0], LATE_SECONDS)
        return
    yield from ((f"{kind}:{row.name}", incident) for kind, incident in of_refusal(row.refusal))
    if (level := freshness_level(row)) and row.limits and row.waiting_seconds is not None:
        waits, limit = duration(row.waiting_seconds), duration(row.limits.fail_seconds)
        what = "versions are not announced" if row.kind == TableKind.ANNOUNCED else "new rows upstream wait"
        detail = f"{what} for {waits}; the limit is {limit}"
        yield f"{IncidentKind.STANDS_STILL}:{row.name}", Incident(detail, MOMENT_SECONDS) if level == "error" else None
