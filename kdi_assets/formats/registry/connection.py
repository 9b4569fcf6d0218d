"""How a registry is spoken to: HTTP with credentials, certificates and a proxy, and what its silence means.

confluent-kafka has a client as well. With its extra it asks for six more packages and 0.8 CPU seconds in every process
that imports it, waits without an end unless it is told otherwise, and has no memory that outlasts its process.
"""

from __future__ import annotations

import json
import re
import ssl
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from kdi_assets.formats.registry.errors import (
    RegistryAccessRefused,
    RegistryNotUnderstood,
    RegistrySettingRefused,
    RegistryUnavailable,
)
from kdi_assets.stream.connections import Registry

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse, PoolManager

ANSWER_SECONDS = 10.0
"""How long one question may take, all tries together."""
PAUSES_SECONDS = (0.2, 0.8)
"""Before the second try and the third: a registry that is being restarted is back soon."""
MOST_BYTES = 32 * 1024 * 1024
ACCEPT = "application/vnd.schemaregistry.v1+json, application/vnd.schemaregistry+json, application/json"
REFUSED = {401: "authentication", 403: "authorization", 407: "authentication at the proxy"}
PASSING = {408, 425, 429}
NOT_THERE = range(40401, 40500)
TUNNEL = re.compile(r"Tunnel connection failed: (\d{3})")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the registry said: ``code`` is its own error code, 0 where it answered what was asked."""

    content: Any
    code: int = 0
    message: str = ""


class Connection:
    """Questions to one registry; connections are kept open between them."""

    def __init__(self, registry: Registry, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._registry = registry
        self._answer_seconds = answer_seconds
        self._pool: PoolManager | None = None

    def ask(self, path: str) -> Answer:
        """What the registry says to ``GET path``.

        Args:
            path: Behind the registry's address, quoted.

        Raises:
            RegistryUnavailable: No answer within the time, or "not now" from each of three tries.
            RegistryAccessRefused, RegistrySettingRefused: It, or a proxy, does not let us in.
            RegistryNotUnderstood: Whatever answers is no registry.
            EnvironmentVariableMissing: A property is to come from a variable that is not set.
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
                retries=False,  # nor redirects: credentials go to the address that the document names, nowhere else
                preload_content=False,
            )
            try:
                body = _body(response, until)
                response.release_conn()
            finally:
                response.close()
        content = _json(body)
        said = _said(response, body, content)
        if response.status in REFUSED:
            raise self._access_refused(REFUSED[response.status], said)
        if response.status in PASSING or response.status >= 500:
            raise self._unavailable(path, said)
        if response.status == 200 and content is not None:
            return Answer(content)
        # Only a registry numbers what it does not know; any other 404 may be a wrong path, or somebody else's page.
        if response.status == 404 and isinstance(content, dict) and content.get("error_code") in NOT_THERE:
            return Answer(content, int(content["error_code"]), str(content.get("message")))
        raise self.not_understood(path, said)

    def not_understood(self, path: str, detail: str) -> RegistryNotUnderstood:
        """The refusal of an answer that a registry would not give."""
        registry = self._registry
        return RegistryNotUnderstood(registry=registry.name, url=registry.url, asked=f"GET {path}", detail=detail)

    def _unavailable(self, path: str, detail: str) -> RegistryUnavailable:
        registry = self._registry
        return RegistryUnavailable(registry=registry.name, url=registry.url, asked=f"GET {path}", detail=detail)

    def _access_refused(self, refused: str, detail: str) -> RegistryAccessRefused:
        registry = self._registry
        return RegistryAccessRefused(registry=registry.name, url=registry.url, refused=refused, detail=detail)

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        from urllib3.exceptions import HTTPError, ProxyError, SSLError

        try:
            yield
        except SSLError as refused:
            # The one end of a connection that TLS reports itself and that says nothing about certificates.
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
    """The whole body, if it is there in time: a time limit of the socket's begins anew with every byte."""
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


def _said(response: BaseHTTPResponse, body: bytes, content: object) -> str:
    """The answer in short, for a message."""
    if isinstance(content, dict) and "error_code" in content:
        return f"HTTP {response.status}, {content['error_code']}: {_short(content.get('message'))}"
    where = f" to {response.headers['Location']}" if "Location" in response.headers else ""
    text = body.decode("utf-8", "replace").strip()
    return f"HTTP {response.status}{where}: {_short(text)}" if text else f"HTTP {response.status}{where}"


def _short(thing: object) -> str:
    text = " ".join(str(thing).split())
    return text if len(text) <= 200 else text[:200] + "…"


def _open(registry: Registry) -> PoolManager:
    from urllib3 import PoolManager, ProxyManager

    properties = registry.properties
    headers = {"Accept": ACCEPT}
    if "username" in properties:
        headers["Authorization"] = _basic(properties["username"], properties.get("password", ""))
    tls = _tls(registry) if registry.url.startswith("https") else None
    proxy = properties.get("proxy") or _proxy_of_the_environment(registry.url)
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


def _proxy_of_the_environment(url: str) -> str:
    from urllib.request import getproxies, proxy_bypass

    address = urlsplit(url)
    if proxy_bypass(address.hostname or ""):
        return ""
    return getproxies().get(address.scheme, "")


def _tls(registry: Registry) -> ssl.SSLContext:
    properties = registry.properties
    with _setting(registry, "tls.ca"):
        context = ssl.create_default_context(cafile=properties.get("tls.ca"))
    if "tls.certificate" in properties:
        with _setting(registry, "tls.certificate"):
            # Without a password of ours OpenSSL would ask the terminal for one.
            password = properties.get("tls.key_password", "")
            context.load_cert_chain(properties["tls.certificate"], properties.get("tls.key"), lambda: password)
    return context


@contextmanager
def _setting(registry: Registry, name: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as refused:  # ssl.SSLError is an OSError
        detail = f"{registry.properties.get(name, '')}: {_short(refused)}"
        raise RegistrySettingRefused(registry=registry.name, setting=name, detail=detail) from refused
