"""A schema registry that shows faults on request, which a real one does not; it records its requests."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from kdi_assets.documents.model.connections.connections import Registry, Tls
from kdi_assets.messages.formats.registry import connection


@dataclass
class Kept:
    """A schema as it was registered."""

    id: int
    text: str
    type: str = "AVRO"
    references: list[dict[str, Any]] = field(default_factory=list)

    def told(self) -> dict[str, Any]:
        """As an answer shows it; Avro has no type there."""
        told: dict[str, Any] = {"schema": self.text}
        if self.type != "AVRO":
            told["schemaType"] = self.type
        if self.references:
            told["references"] = self.references
        return told


@dataclass(frozen=True)
class Fault:
    """An answer instead of the right one.

    Attributes:
        trickle_seconds: Time between two bytes of the body.
        cut: The connection ends within the body.
        location: Header of that name.
    """

    status: int = 200
    body: bytes = b""
    trickle_seconds: float = 0.0
    cut: bool = False
    location: str = ""


class RunningRegistry:
    """A fake registry that answers at ``url``: its schemas, its faults, and the requests it got."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.subjects: dict[str, dict[int, Kept]] = {}
        self.deleted: set[tuple[str, int]] = set()
        self.faults: list[Fault] = []
        """Used one after the other; the last one stays."""
        self.users: dict[str, str] = {}
        """Its users; if there are none, everyone is admitted."""
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.tunnel_status = 200
        """Its answer, as a proxy, to a request for a tunnel; with 200 it makes one."""
        self.ended = threading.Event()
        self._scheme, self._tls, self._port = "https" if tls else "http", tls, 0
        self._server: _Server | None = None
        self.start()

    def register(self, subject: str, text: str, **more: Any) -> int:
        """Keep the next version of a subject; return its id."""
        versions = self.subjects.setdefault(subject, {})
        ids = [kept.id for kept_versions in self.subjects.values() for kept in kept_versions.values()]
        kept = Kept(max(ids, default=0) + 1, text, **more)
        versions[max(versions, default=0) + 1] = kept
        return kept.id

    def answer(self, path: str) -> tuple[int, Any]:
        """Status and content."""
        address = urlsplit(path)
        match [unquote(part) for part in address.path.strip("/").split("/")]:
            case ["schemas", "types"]:
                return 200, ["JSON", "PROTOBUF", "AVRO"]
            case ["schemas", "ids", number]:
                found = [k for versions in self.subjects.values() for k in versions.values() if k.id == int(number)]
                return (200, found[0].told()) if found else _not_there(40403, f"Schema {number} not found")
            case ["subjects", subject, "versions"]:
                shown = self._shown(subject, deleted="deleted=true" in address.query)
                return (200, sorted(shown)) if shown else _not_there(40401, f"Subject '{subject}' not found.")
            case ["subjects", subject, "versions", number]:
                return self._version(subject, number, deleted="deleted=true" in address.query)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _version(self, subject: str, number: str, *, deleted: bool) -> tuple[int, Any]:
        shown = self._shown(subject, deleted=deleted)
        if not shown:
            return _not_there(40401, f"Subject '{subject}' not found.")
        version = max(shown) if number == "latest" else int(number)
        if version not in shown:
            return _not_there(40402, f"Version {version} not found.")
        return 200, {"subject": subject, "version": version, "id": shown[version].id, **shown[version].told()}

    def _shown(self, subject: str, *, deleted: bool) -> dict[int, Kept]:
        versions = self.subjects.get(subject, {})
        return {number: kept for number, kept in versions.items() if deleted or (subject, number) not in self.deleted}

    def lets_in(self, authorization: str) -> bool:
        """Whether it knows the user."""
        known = {"Basic " + b64encode(f"{user}:{word}".encode()).decode() for user, word in self.users.items()}
        return not known or authorization in known

    @property
    def url(self) -> str:
        """Its address, also after it was stopped and started again."""
        return f"{self._scheme}://localhost:{self._port}"

    def start(self) -> None:
        """Start, on the same port as before."""
        self.ended.clear()
        self._server = _Server(("127.0.0.1", self._port), _Handler)
        self._server.registry = self
        self._port = self._server.server_address[1]
        if self._tls:
            # The handshake runs in the connection's own thread: a client that refuses must not stop the next one.
            self._server.socket = self._tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        """Accept no more connections."""
        self.ended.set()
        if self._server:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def described(self, **properties: str) -> Registry:
        """The registry as streams know it."""
        tls = {name.removeprefix("tls__"): value for name, value in properties.items() if name.startswith("tls__")}
        more = {name: value for name, value in properties.items() if not name.startswith("tls__")}
        return Registry("main", self.url, tls=Tls(**tls), **more)


def _not_there(code: int, message: str) -> tuple[int, Any]:
    return 404, {"error_code": code, "message": message}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        registry = self.server.registry
        if registry.ended.is_set():  # a kept-alive connection must not outlive the server
            self.close_connection = True
            return
        registry.asked.append(self.path)
        registry.headers.append(dict(self.headers))
        if registry.faults:
            fault = registry.faults.pop(0) if len(registry.faults) > 1 else registry.faults[0]
            self._misbehave(fault)
        elif not registry.lets_in(self.headers.get("Authorization", "")):
            self._say(401, json.dumps({"error_code": 401, "message": "Unauthorized"}).encode())
        else:
            path = self.path.removeprefix(f"http://{self.headers['Host']}")  # a proxy gets the whole address
            status, content = registry.answer(path)
            self._say(status, json.dumps(content).encode())

    def do_CONNECT(self) -> None:
        registry = self.server.registry
        registry.asked.append(f"CONNECT {self.path}")
        registry.headers.append(dict(self.headers))
        self.send_response(registry.tunnel_status)
        self.end_headers()
        self.close_connection = True
        if registry.tunnel_status == 200:
            host, _, port = self.path.rpartition(":")
            with socket.create_connection((host, int(port))) as beyond:
                pump = threading.Thread(target=_pump, args=(beyond, self.connection), daemon=True)
                pump.start()
                _pump(self.connection, beyond)
                pump.join()

    def _misbehave(self, fault: Fault) -> None:
        self.send_response(fault.status)
        self.send_header("Content-Length", str(len(fault.body) + fault.cut))
        if fault.location:
            self.send_header("Location", fault.location)
        self.end_headers()
        if not fault.trickle_seconds:
            self.wfile.write(fault.body)
        for byte in fault.body if fault.trickle_seconds else b"":
            if self.server.registry.ended.wait(fault.trickle_seconds):
                break
            self.wfile.write(bytes([byte]))
        self.close_connection = fault.cut

    def _say(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing on standard error."""


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Pass data on, until one of the two ends."""
    with suppress(OSError):
        while part := source.recv(65536):
            target.sendall(part)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    registry: RunningRegistry

    def handle_error(self, *_: object) -> None:
        """Clients that disconnect are part of the tests."""


def ask_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry without pauses, and without the proxies of the machine."""
    monkeypatch.setattr(connection, "PAUSES_SECONDS", (0.0, 0.0))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@contextmanager
def fake_registry(tls: ssl.SSLContext | None = None) -> Iterator[RunningRegistry]:
    """A registry for the body."""
    registry = RunningRegistry(tls)
    try:
        yield registry
    finally:
        registry.stop()
