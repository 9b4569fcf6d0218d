"""A receiver of OpenLineage events on the loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.receivers.http_server import QuietHandler, serving


@dataclass
class LineageReceiver:
    """What arrived, in its order.

    Attributes:
        status: HTTP status of its answers.
    """

    url: str = ""
    status: int = 201
    events: list[dict[str, Any]] = field(default_factory=list)

    def states(self) -> list[str]:
        return [event["eventType"] for event in self.events]


@contextmanager
def receiving() -> Iterator[LineageReceiver]:
    """A receiver at ``url``, during the body."""
    receiver = LineageReceiver()

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            assert self.path == "/api/v1/lineage"
            receiver.events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with serving(Handler) as receiver.url:
        yield receiver
