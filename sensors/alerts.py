"""Alerts: a tick's news as one message to a webhook (``KDI_ALERT_WEBHOOK``), in Slack's form.

A delivery that fails costs the tick a line and some seconds, and is tried again at the next one.
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

from kdi_assets.errors import KdiError
from kdi_assets.monitoring.backlog import Backlog
from kdi_assets.monitoring.table_facts import HOUR, TableFacts, TableWatch
from kdi_assets.settings import Settings
from kdi_assets.stream.stream import Stream
from sensors.explain import listed
from sensors.incidents import News, follow, judge, news, told
from sensors.memory import Followed, Memory

TIMEOUT_SECONDS, READ_SECONDS = 3.0, 3.0
"""What a tick spends on the webhook, and on logs that it has not read yet."""


class WebhookFailed(Exception):
    """The webhook did not take the message; says why, and not where: the address is a secret."""


class Alerts:
    """Tells of the incidents of a cluster's streams."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._tables = TableWatch(files=None, window=HOUR)

    def __call__(
        self,
        backlogs: Sequence[Backlog],
        *,
        streams: Mapping[str, Stream],
        in_flight: Collection[str],
        memories: Mapping[str, Memory],
        known: Mapping[str, Followed],
        now: datetime,
    ) -> tuple[Mapping[str, Followed], list[str]]:
        """Tell what is new; what to remember of it, and lines for the tick.

        Without a webhook nothing is remembered: whoever sets one is told of everything that is wrong then.
        """
        settings = Settings.from_environment()
        if not settings.alert_webhook:
            return {}, []
        tables = self._facts(streams.values(), settings.lake, now)
        judged = judge(backlogs, streams=streams, in_flight=in_flight, memories=memories, tables=tables)
        followed = follow(known, judged, streams=streams, now=now.timestamp())
        fresh = news(followed, judged, now=now.timestamp())
        if not fresh:
            return followed, []
        try:
            post(settings.alert_webhook, message(fresh, cluster=self._cluster, now=now))
        except WebhookFailed as failed:
            return followed, [f"alerts: {len(fresh)} could not be told, next try at the next tick: {failed}"]
        return told(followed, fresh), [f"alerts: told of {len(fresh)}"]

    def _facts(self, streams: Collection[Stream], lake: str, now: datetime) -> dict[str, TableFacts]:
        """What the logs say, of the streams that could be read in time; what was read once is read in no time."""
        found: dict[str, TableFacts] = {}
        until = time.monotonic() + READ_SECONDS
        for stream in streams:
            if time.monotonic() > until:
                break
            try:
                found[stream.name] = self._tables(stream, lake, now=now)
            except KdiError:
                continue  # the look has the refusal
        return found


def message(fresh: Sequence[News], *, cluster: str, now: datetime) -> dict[str, Any]:
    """The news as the webhook gets them: ``text`` for people, ``incidents`` for programs."""
    lines: dict[str, list[str]] = {}
    for one in fresh:
        lines.setdefault(_line(one, now), []).append(one.stream)
    text = "\n".join(f"{listed(streams, between=', ')}: {line}" for line, streams in lines.items())
    return {"text": text, "cluster": cluster, "incidents": [_fields(one, now) for one in fresh]}


def _line(one: News, now: datetime) -> str:
    kind = one.kind.replace("_", " ")
    if one.incident is None:
        return f"over: {kind}, after {max(0.0, now.timestamp() - one.since) / 60:,.0f} min"
    return f"{kind}: {one.incident.detail.removeprefix(f'{one.stream}: ')}"


def _fields(one: News, now: datetime) -> dict[str, Any]:
    return {
        "stream": one.stream,
        "kind": one.kind,
        "event": "ended" if one.incident is None else "began",
        "since": datetime.fromtimestamp(one.since, UTC).isoformat(timespec="seconds"),
        "at": now.isoformat(timespec="seconds"),
        "detail": one.incident.detail if one.incident else None,
    }


class _NoRedirects(HTTPRedirectHandler):
    """Followed, a redirect would become a GET without the message, and its answer look like success."""

    def redirect_request(self, *_: object) -> None:
        return None


def post(url: str, body: Mapping[str, Any]) -> None:
    """Send a JSON object.

    Raises:
        DeliveryFailed: It was not taken, or nobody knows.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise WebhookFailed("KDI_ALERT_WEBHOOK is no http or https address")
    given = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})  # noqa: S310 - looked at above
    try:
        with build_opener(_NoRedirects).open(given, timeout=TIMEOUT_SECONDS):
            pass
    except HTTPError as answer:
        answer.close()
        raise WebhookFailed(f"the webhook answered {answer.code}") from None
    except (OSError, HTTPException, ValueError) as failed:
        raise WebhookFailed(f"no answer from the webhook ({type(failed).__name__})") from None
