"""A receiver of alerts on the loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event
from typing import Any

from tests.receivers.http_server import QuietHandler, serving


@dataclass
class Webhook:
    """A server that keeps what it receives; ``answer`` 0 means no answer."""

    received: list[dict[str, Any]] = field(default_factory=list)
    answer: int = 200
    let_go: Event = field(default_factory=Event)
    server: str = ""

    @property
    def url(self) -> str:
        return f"{self.server}/services/secret"

    @property
    def told(self) -> list[tuple[str, str, str]]:
        """Stream, kind, and event of every incident that it accepted."""
        return [(i["stream"], i["kind"], i["event"]) for message in self.received for i in message["incidents"]]


@contextmanager
def receiving() -> Iterator[Webhook]:
    """A receiver for the body of a test."""
    webhook = Webhook()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not webhook.answer:
                webhook.let_go.wait(30)
                return
            if webhook.answer == 200:
                webhook.received.append(body)
            self.send_response(webhook.answer)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()

    with serving(Handler) as webhook.server:
        yield webhook
        webhook.let_go.set()
