"""Alerts: the notices of a tick as one message to a webhook (``KDI_ALERT_WEBHOOK``), in Slack's form.

A delivery that fails adds a line to the tick and some seconds; the next tick tries it again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from kdi_assets.delta.versions import LatestVersions
from kdi_assets.documents.model.stream import Stream
from kdi_assets.errors import KdiError
from kdi_assets.operate.monitoring.backlog import Backlog
from kdi_assets.operate.monitoring.table_facts import DAY, HOUR, TableFacts, TableWatch
from kdi_assets.sensors.incidents import CurrentIncidents, Notice, after_delivery, current_incidents, notices, track
from kdi_assets.sensors.memory import Memory, TrackedIncident
from kdi_assets.sensors.policy import join_limited
from kdi_assets.settings import Settings

TIMEOUT_SECONDS, READ_SECONDS = 3.0, 3.0
"""At most so long a tick waits for the webhook, and reads logs that it has not read yet."""


class WebhookFailed(Exception):
    """The webhook did not accept the message. The text has the cause but no address: the address is a secret."""


class Alerts:
    """Announces the incidents of a cluster's streams."""

    def __init__(self, cluster: str, *, versions: LatestVersions | None = None) -> None:
        self._cluster = cluster
        self._of_an_hour = TableWatch(files=None, window=HOUR, versions=versions)
        self._of_a_day = TableWatch(files=None, window=DAY, versions=versions)

    def __call__(
        self,
        backlogs: Sequence[Backlog],
        *,
        settings: Settings,
        streams: Mapping[str, Stream],
        in_flight: Collection[str],
        memories: Mapping[str, Memory],
        known: Mapping[str, TrackedIncident],
        now: datetime,
    ) -> tuple[Mapping[str, TrackedIncident], list[str]]:
        """Send what is new; return the incidents for the cursor, and lines for the tick."""
        tables = self._read_tables(streams.values(), settings.lake, now)
        current = current_incidents(backlogs, streams=streams, in_flight=in_flight, memories=memories, tables=tables)
        tracked = track(known, current, streams=streams, now=now.timestamp())
        return send_new(settings.alert_webhook, tracked, current, cluster=self._cluster, now=now)

    def _read_tables(self, streams: Collection[Stream], lake: str, now: datetime) -> dict[str, TableFacts]:
        """Facts from the logs of as many streams as can be read in time; a log that was read before takes no time."""
        found: dict[str, TableFacts] = {}
        deadline = time.monotonic() + READ_SECONDS
        for stream in streams:
            if time.monotonic() > deadline:
                break
            try:
                # Only a budget needs the drains of a whole day.
                read = self._of_a_day if stream.checks.cpu_seconds_a_day else self._of_an_hour
                found[stream.name] = read(stream, lake, now=now)
            except KdiError:
                continue  # the stream's backlog has the refusal
        return found


def send_new(
    webhook: str, tracked: Mapping[str, TrackedIncident], current: CurrentIncidents, *, cluster: str, now: datetime
) -> tuple[Mapping[str, TrackedIncident], list[str]]:
    """Send the notices that are due; return the incidents for the cursor, and lines for the tick."""
    due = notices(tracked, current, now=now.timestamp())
    if not due:
        return tracked, []
    try:
        post(webhook, message(due, cluster=cluster, now=now))
    except WebhookFailed as failed:
        return tracked, [f"alerts: {len(due)} not sent, next try at the next tick: {failed}"]
    return after_delivery(tracked, due), [f"alerts: sent {len(due)}"]


def message(due: Sequence[Notice], *, cluster: str, now: datetime) -> dict[str, Any]:
    """The webhook's message: ``text`` for people, ``incidents`` for programs."""
    lines: dict[str, list[str]] = {}
    for one in due:
        lines.setdefault(_line(one, now), []).append(one.stream)
    text = "\n".join(f"{join_limited(streams, separator=', ')}: {line}" for line, streams in lines.items())
    return {"text": text, "cluster": cluster, "incidents": [_fields(one, now) for one in due]}


def _line(one: Notice, now: datetime) -> str:
    kind = one.kind.replace("_", " ")
    if one.incident is None:
        return f"over: {kind}, after {max(0.0, now.timestamp() - one.since) / 60:,.0f} min"
    return f"{kind}: {one.incident.detail.removeprefix(f'{one.stream}: ')}"


def _fields(one: Notice, now: datetime) -> dict[str, Any]:
    return {
        "stream": one.stream,
        "kind": one.kind,
        "event": "ended" if one.incident is None else "began",
        "since": datetime.fromtimestamp(one.since, UTC).isoformat(timespec="seconds"),
        "at": now.isoformat(timespec="seconds"),
        "detail": one.incident.detail if one.incident else None,
    }


class _NoRedirects(HTTPRedirectHandler):
    """urllib would follow a redirect with a GET without the message, and take its answer for success."""

    def redirect_request(self, *_: object) -> None:
        return None


def post(url: str, body: Mapping[str, Any]) -> None:
    """Send a JSON object.

    Raises:
        WebhookFailed: It was not accepted, or there was no answer.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise WebhookFailed("KDI_ALERT_WEBHOOK is not an http or https address")
    request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310 - checked above
    try:
        with build_opener(_NoRedirects).open(request, timeout=TIMEOUT_SECONDS):
            pass
    except HTTPError as answer:
        answer.close()
        raise WebhookFailed(f"the webhook answered {answer.code}") from None
    except (OSError, HTTPException, ValueError) as failed:
        raise WebhookFailed(f"no answer from the webhook ({type(failed).__name__})") from None
