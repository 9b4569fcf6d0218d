"""HTTP to a registry: credentials, certificates, a proxy, time limits, and the error for each failure.

The client of confluent-kafka was not taken: it needs six more packages and 0.8 CPU seconds in every process that
imports it, has no time limit by default, and its cache ends with the process.
"""

from __future__ import annotations

import json
import re
import ssl
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from kdi_assets.documents.model.connections.client_values import is_pem
from kdi_assets.documents.model.connections.connections import Registry
from kdi_assets.messages.formats.errors import (
    RegistryAccessRefused,
    RegistryNotUnderstood,
    RegistrySettingRefused,
    RegistryUnavailable,
)

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

ANSWER_SECONDS = 10.0
"""Time limit of one request, with all tries."""
PAUSES_SECONDS = (0.2, 0.8)
"""Before the second and the third try: a registry that restarts is back soon."""
MOST_BYTES = 32 * 1024 * 1024
ACCEPT = "application/vnd.schemaregistry.v1+json, application/vnd.schemaregistry+json, application/json"
REFUSED = {401: "authentication", 403: "authorization", 407: "authentication at the proxy"}
RETRIABLE = {408, 425, 429}
NOT_FOUND = range(40401, 40500)
TUNNEL = re.compile(r"Tunnel connection failed: (\d{3})")


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; ``code`` is the registry's error code, 0 if there is no error."""

    content: Any
    code: int = 0
    message: str = ""


class Connection:
    """Requests to one registry over connections that stay open."""

    def __init__(self, registry: Registry, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._registry = registry
        self._answer_seconds = answer_seconds
        self._pool: PoolManager | None = None

    def ask(self, path: str) -> Answer:
        """The answer to ``GET path``.

        Args:
            path: Path after the registry's address, quoted.

        Raises:
            RegistryUnavailable: No answer in time, or "not now" in each of three tries.
            RegistryAccessRefused, RegistrySettingRefused: The registry or a proxy refuses access.
            RegistryNotUnderstood: The server is not a registry.
            EnvironmentVariableMissing: A property names a variable that is not set.
        """
        until = monotonic() + self._answer_seconds
        for pause in PAUSES_SECONDS:
            try:
                return self._exchange(path, until)
            except RegistryUnavailable:
                if monotonic() + pause > until:
                    raise
            sleep(pause)
        return self._exchange(path, until)

    def _exchange(self, path: str, until: float) -> Answer:
        from urllib3 import Timeout

        if self._pool is None:
            self._pool = _open(self._registry)
        seconds = max(until - monotonic(), 0.05)
        with self._translated(path):
            response = self._pool.request(
                "GET",
                self._registry.url + path,
                timeout=Timeout(connect=seconds, read=seconds),
                retries=False,  # no redirects either: credentials go only to the address in the document
                preload_content=False,
            )
            try:
                body = _body(response, until)
                response.release_conn()
            finally:
                response.close()
        content = _json(body)
        detail = _summary(response, body, content)
        if response.status in REFUSED:
            raise self._access_refused(REFUSED[response.status], detail)
        if response.status in RETRIABLE or response.status >= 500:
            raise self._unavailable(path, detail)
        if response.status == 200 and content is not None:
            return Answer(content)
        # Only a registry sends these codes; any other 404 may be a wrong path, or a page of another server.
        if response.status == 404 and isinstance(content, dict) and content.get("error_code") in NOT_FOUND:
            return Answer(content, int(content["error_code"]), str(content.get("message")))
        raise self.not_understood(path, detail)

    def not_understood(self, path: str, detail: str) -> RegistryNotUnderstood:
        """The error for an answer that no registry gives."""
        return RegistryNotUnderstood(**self._address(), asked=f"GET {path}", detail=detail)

    def _unavailable(self, path: str, detail: str) -> RegistryUnavailable:
        return RegistryUnavailable(**self._address(), asked=f"GET {path}", detail=detail)

    def _access_refused(self, refused: str, detail: str) -> RegistryAccessRefused:
        return RegistryAccessRefused(**self._address(), refused=refused, detail=detail)

    def _address(self) -> dict[str, str]:
        return {"registry": self._registry.name, "url": self._registry.url}

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        from urllib3.exceptions import HTTPError, ProxyError, SSLError

        try:
            yield
        except SSLError as refused:
            # A closed connection, which TLS reports as an error of its own; the certificate is not the cause.
            if isinstance(refused.args[0] if refused.args else None, ssl.SSLEOFError | ssl.SSLZeroReturnError):
                raise self._unavailable(path, "the connection was closed") from refused
            raise self._access_refused("a secure connection", _short(refused)) from refused
        except ProxyError as refused:
            tunnel = TUNNEL.search(str(refused.original_error))
            if tunnel and int(tunnel[1]) in REFUSED:
                raise self._access_refused("us at the proxy", f"HTTP {tunnel[1]}") from refused
            raise self._unavailable(path, f"proxy: {_short(refused.original_error)}") from refused
        except (HTTPError, TimeoutError) as silent:
            raise self._unavailable(path, _short(silent)) from silent


def _body(response: BaseHTTPResponse, until: float) -> bytes:
    """The whole body, in time: the socket's own time limit restarts with every byte."""
    parts = bytearray()
    while part := response.read1(65536):
        parts += part
        if monotonic() > until or len(parts) > MOST_BYTES:
            raise TimeoutError(f"{len(parts):,} bytes came, and not the end")
    return bytes(parts)


def _json(body: bytes) -> Any | None:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _summary(response: BaseHTTPResponse, body: bytes, content: object) -> str:
    """The answer in short, for an error message."""
    if isinstance(content, dict) and "error_code" in content:
        return f"HTTP {response.status}, {content['error_code']}: {_short(content.get('message'))}"
    where = f" to {response.headers['Location']}" if "Location" in response.headers else ""
    text = body.decode("utf-8", "replace").strip()
    return f"HTTP {response.status}{where}: {_short(text)}" if text else f"HTTP {response.status}{where}"


def _short(thing: object) -> str:
    text = " ".join(str(thing).split())
    return text if len(text) <= 200 else text[:200] + "…"


def _open(registry: Registry) -> PoolManager:
    from urllib.request import getproxies, proxy_bypass

    from urllib3 import PoolManager, ProxyManager

    properties = registry.properties
    headers = {"Accept": ACCEPT}
    if "username" in properties:
        headers["Authorization"] = _basic(properties["username"], properties.get("password", ""))
    tls = _tls(registry) if registry.url.startswith("https") else None
    target = urlsplit(registry.url)
    by_environment = "" if proxy_bypass(target.hostname or "") else getproxies().get(target.scheme, "")
    proxy = properties.get("proxy") or by_environment
    if not proxy:
        return PoolManager(headers=headers, ssl_context=tls)
    address = urlsplit(proxy if "//" in proxy else f"http://{proxy}")
    own = {}
    if address.username is not None:
        own["Proxy-Authorization"] = _basic(unquote(address.username), unquote(address.password or ""))
    host = address.netloc.rpartition("@")[2]
    return ProxyManager(f"{address.scheme}://{host}", headers=headers, proxy_headers=own, ssl_context=tls)


def _basic(username: str, password: str) -> str:
    return "Basic " + b64encode(f"{username}:{password}".encode()).decode("ascii")


def _tls(registry: Registry) -> ssl.SSLContext:
    properties = registry.properties
    with _setting(registry, "tls.ca"):
        ca = properties.get("tls.ca", "")
        context = ssl.create_default_context(
            cafile=None if is_pem(ca) else ca or None, cadata=ca if is_pem(ca) else None
        )
    if "tls.certificate" in properties:
        with _setting(registry, "tls.certificate"):
            # Without a password OpenSSL would ask for one on the terminal.
            password = properties.get("tls.key_password", "")
            with _as_file(properties["tls.certificate"]) as certificate, _as_file(properties.get("tls.key", "")) as key:
                context.load_cert_chain(certificate, key or None, lambda: password)
    return context


@contextmanager
def _as_file(pem: str) -> Iterator[str]:
    """The path of the file; Python's TLS takes certificates and keys of a client from files only."""
    if not is_pem(pem):
        yield pem
        return
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # only we may read it
        file.write(pem)
        file.flush()
        yield file.name


@contextmanager
def _setting(registry: Registry, name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as refused:  # ssl.SSLError is an OSError
        value = registry.properties.get(name, "")
        detail = f"{'text in PEM' if is_pem(value) else value}: {_short(refused)}"
        raise RegistrySettingRefused(registry=registry.name, setting=name, detail=detail) from refused
