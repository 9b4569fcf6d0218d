"""A small S3 on loopback: conditional put, get, head, delete; it honours the condition, or does not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from threading import Lock
from typing import Literal

from tests.receivers.http_server import QuietHandler, serving


@dataclass
class ObjectStore:
    """The objects of the bucket, and its behaviour.

    Attributes:
        conditions: What it does with ``If-None-Match``; ``raced``: it looks first, and then puts without a condition.
        refused: HTTP status of an S3 error, by method.
        ahead: The storage's clock against the real one.
    """

    conditions: Literal["honoured", "raced", "ignored", "unknown"] = "honoured"
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)
    ahead: timedelta = timedelta(0)
    objects: dict[str, tuple[bytes, datetime]] = field(default_factory=dict)
    puts: list[str] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    endpoint: str = ""

    def __post_init__(self) -> None:
        self._lock = Lock()

    def behave(self) -> None:
        """Remove all objects and all faults."""
        self.conditions, self.ahead = "honoured", timedelta(0)
        self.refused, self.objects, self.puts, self.heads = {}, {}, [], []

    def put(self, path: str, content: bytes, *, if_absent: bool) -> tuple[int, str]:
        """HTTP status, and S3's code of a refusal."""
        if if_absent and self.conditions == "unknown":
            return 501, "NotImplemented"
        if if_absent and self.conditions == "raced":
            if path in self.objects:
                return 412, "PreconditionFailed"
            time.sleep(0.1)  # the other writer of a race looks too
        with self._lock:
            self.puts.append(path)
            if if_absent and self.conditions == "honoured" and path in self.objects:
                return 412, "PreconditionFailed"
            self.objects[path] = content, datetime.now(UTC) + self.ahead
        return 200, ""


@contextmanager
def object_store(store: ObjectStore) -> Iterator[ObjectStore]:
    """The store at ``store.endpoint``, during the body."""
    with serving(_handler(store)) as store.endpoint:
        yield store


def _handler(store: ObjectStore) -> type[BaseHTTPRequestHandler]:
    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def do_PUT(self) -> None:
            content = _unchunked(self, self.rfile.read(int(self.headers["Content-Length"])))
            if not self._refused():
                self._answer(*store.put(self.path, content, if_absent=self.headers.get("If-None-Match") == "*"))

        def do_GET(self) -> None:
            if self._refused():
                return
            if self.path not in store.objects:
                self._answer(404, "NoSuchKey")
                return
            content, written = store.objects[self.path]
            self._answer(200, "", content, {"Last-Modified": format_datetime(written, usegmt=True)})

        def do_HEAD(self) -> None:
            store.heads.append(self.path)
            self.do_GET()

        def do_DELETE(self) -> None:
            if not self._refused():
                store.objects.pop(self.path, None)
                self._answer(204, "")

        def _refused(self) -> bool:
            refusal = store.refused.get(self.command)
            if refusal:
                self._answer(*refusal)
            return refusal is not None

        def _answer(self, status: int, code: str, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
            content = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode() if code else body
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    return Handler


def _unchunked(request: BaseHTTPRequestHandler, body: bytes) -> bytes:
    """Only the content, if the client sends S3's own chunks with a trailing checksum."""
    if "aws-chunked" not in request.headers.get("Content-Encoding", ""):
        return body
    size, _, rest = body.partition(b"\r\n")
    return rest[: int(size.split(b";")[0], 16)]
