"""A proxy in front of the S3 server that drops and delays answers, and refuses requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from multiprocessing import get_context
from multiprocessing.connection import Connection
from random import Random
from threading import Lock
from typing import Literal

from tests.receivers.http_server import QuietHandler, serving

Fault = Literal["none", "answer dropped", "conflict", "slow down", "refused", "full"]
ANSWERS: Mapping[Fault, tuple[int, str, str]] = {
    "conflict": (409, "ConditionalRequestConflict", "Another put is under way."),
    "slow down": (503, "SlowDown", "Please reduce your request rate."),
    "refused": (403, "AccessDenied", "Access Denied"),
    "full": (507, "XMinioStorageFull", "Storage backend has reached its minimum free drive threshold."),
}
"""Status, code and message of the answers that the proxy makes itself."""
PER_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "expect"})


@dataclass(frozen=True)
class Request:
    """A request of a client; ``conditional`` if it may only create the object."""

    method: str
    path: str
    client: str
    conditional: bool

    @property
    def is_put(self) -> bool:
        """Whether it stores an object: a put, or the last request of an upload in parts."""
        return (self.method == "PUT" and "partNumber=" not in self.path) or (
            self.method == "POST" and "uploadId=" in self.path
        )


@dataclass
class S3Proxy:
    """What the proxy does with each request, and what it did."""

    upstream: int
    fault: Callable[[Request], Fault] = lambda request: "none"
    delay_seconds: Callable[[Request], float] = lambda request: 0.0
    seen: list[tuple[Request, Fault]] = field(default_factory=list)
    endpoint: str = ""

    def __post_init__(self) -> None:
        self._lock = Lock()

    def decide(self, request: Request) -> Fault:
        with self._lock:
            fault = self.fault(request)
            self.seen.append((request, fault))
        return fault

    def count(self, fault: Fault) -> int:
        """How many requests met this fault."""
        return sum(found == fault for _, found in self.seen)


@dataclass
class RandomFaults:
    """Faults for requests of Spark, each with its chance; delta-rs repeats less, and its errors are not ours."""

    seed: int
    chances: Mapping[Fault, float]

    def __post_init__(self) -> None:
        self._random = Random(self.seed)

    def __call__(self, request: Request) -> Fault:
        if "Hadoop" not in request.client:
            return "none"
        for fault, chance in self.chances.items():
            if (fault != "conflict" or request.conditional) and self._random.random() < chance:
                return fault
        return "none"


@contextmanager
def proxy_process_to(port: int, faults: RandomFaults | None = None) -> Iterator[ProxyProcess]:
    """A proxy in a process of its own, for clients in this one: delta-rs holds Python's lock during some requests."""
    ours, theirs = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_serve, args=(port, faults, theirs), daemon=True)
    process.start()
    yield ProxyProcess(ours.recv(), ours)
    ours.send(None)
    process.join()


@dataclass(frozen=True)
class ProxyProcess:
    """The proxy, as the test process sees it."""

    endpoint: str
    connection: Connection

    def new(self) -> list[tuple[Request, Fault]]:
        """The requests since the last call."""
        self.connection.send("new")
        return list(self.connection.recv())


def _serve(port: int, faults: RandomFaults | None, connection: Connection) -> None:
    with proxy_to(port) as proxy:
        proxy.fault = faults or proxy.fault
        connection.send(proxy.endpoint)
        while connection.recv():
            seen, proxy.seen = proxy.seen, []
            connection.send(seen)


@contextmanager
def proxy_to(port: int) -> Iterator[S3Proxy]:
    """A proxy at ``endpoint`` to the server of this port, during the body."""
    proxy = S3Proxy(port)
    with serving(_handler(proxy)) as proxy.endpoint:
        yield proxy


def _handler(proxy: S3Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            self.server_side = HTTPConnection("127.0.0.1", proxy.upstream, timeout=60)

        def finish(self) -> None:
            self.server_side.close()
            super().finish()

        def handle(self) -> None:
            with suppress(ConnectionError):  # a client was killed
                super().handle()

        def handle_expect_100(self) -> bool:
            super().handle_expect_100()
            self.wfile.flush()  # the client waits for it before it sends the body
            return True

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            client, conditional = self.headers.get("User-Agent", ""), self.headers.get("If-None-Match") == "*"
            fault = proxy.decide(Request(self.command, self.path, client, conditional))
            time.sleep(proxy.delay_seconds(Request(self.command, self.path, client, conditional)))
            if fault in ANSWERS:
                status, code, message = ANSWERS[fault]
                error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
                sent = b"" if self.command == "HEAD" else error
                self._answer(status, {"Content-Type": "application/xml"}, sent, str(len(sent)))
                return
            headers = {name: value for name, value in self.headers.items() if name.lower() not in PER_HOP}
            self.server_side.request(self.command, self.path, body, headers)
            answer = self.server_side.getresponse()
            content = answer.read()
            if fault == "answer dropped":
                self.close_connection = True
                return
            length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
            self._answer(answer.status, dict(answer.getheaders()), content, length)

        do_PUT = do_POST = do_HEAD = do_DELETE = do_GET

        def _answer(self, status: int, headers: dict[str, str], content: bytes, length: str | None) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                if name.lower() not in PER_HOP:
                    self.send_header(name, value)
            if status != 204:
                self.send_header("Content-Length", length or "0")
            self.end_headers()
            self.wfile.write(content)

    return Handler
