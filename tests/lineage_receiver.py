"""A receiver of OpenLineage events on the loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


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

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/api/v1/lineage"
            receiver.events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    yield receiver
    server.shutdown()
    server.server_close()
    thread.join()
