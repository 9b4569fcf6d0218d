"""One request to a registry: which answers count, which errors a retry heals, and which someone must correct."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest

from kdi_assets.documents.model.connections.connections import Registry, Tls
from kdi_assets.errors import KdiError, Transient
from kdi_assets.messages.formats.errors import (
    RegistryAccessRefused,
    RegistryNotUnderstood,
    RegistrySettingRefused,
    RegistryUnavailable,
)
from kdi_assets.messages.formats.registry.client import RegistryClient
from kdi_assets.messages.formats.registry.schema import Registered
from tests.formats.fake_registry import Fault, RunningRegistry, fake_registry
from tests.kafka.certificates import KEY_PASSWORD, Certificates

pytestmark = pytest.mark.usefixtures("at_once")


HTML = b"<html>Sign in to continue</html>"
CUT = b'{"schema": "\\"int\\""}'


@pytest.mark.parametrize(
    ("fault", "refusal", "said"),
    [
        (Fault(500, b'{"error_code": 50001, "message": "store"}'), RegistryUnavailable, "HTTP 500, 50001: store"),
        (Fault(503, b"upstream"), RegistryUnavailable, "HTTP 503: upstream"),
        (Fault(200, CUT, cut=True), RegistryUnavailable, "IncompleteRead"),
        (Fault(401, b'{"error_code": 40101, "message": "who?"}'), RegistryAccessRefused, "refuses authentication"),
        (Fault(407), RegistryAccessRefused, "authentication at the proxy"),
        (Fault(429), RegistryUnavailable, "HTTP 429"),
        (Fault(403), RegistryAccessRefused, "refuses authorization"),
        (Fault(200, HTML), RegistryNotUnderstood, "HTTP 200: <html>Sign in"),
        (Fault(200, b'{"id": 3}'), RegistryNotUnderstood, "the answer is {'id': 3}"),
        (Fault(200, b'{"schema": "x", "references": ["y"]}'), RegistryNotUnderstood, "the answer is "),
        (Fault(302, location="https://elsewhere/login"), RegistryNotUnderstood, "HTTP 302 to https://elsewhere/login"),
        # Not "there is no such id": every message would become a dead letter.
        (Fault(404, HTML), RegistryNotUnderstood, "HTTP 404: <html>"),
        (Fault(404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}'), RegistryNotUnderstood, "404: HTTP 404"),
        (Fault(404, b'{"error_code": 40401, "message": "no subject"}'), RegistryNotUnderstood, "no subject"),
        (Fault(422, b'{"error_code": 42202, "message": "version"}'), RegistryNotUnderstood, "42202: version"),
    ],
)
def test_a_wrong_answer_is_no_unknown_id(
    registry: RunningRegistry, fault: Fault, refusal: type[KdiError], said: str
) -> None:
    registry.faults = [fault]

    with pytest.raises(refusal) as refused:
        RegistryClient(registry.described(username="kdi", password="hush")).schema(1)

    assert said in str(refused.value)
    assert "hush" not in str(refused.value)
    assert len(registry.asked) == (3 if issubclass(refusal, Transient) else 1)


def test_what_passes_by_itself_is_asked_for_again(registry: RunningRegistry) -> None:
    known = registry.register("a", '"int"')
    registry.faults = [Fault(503), Fault(200, b"", cut=True), Fault(200, b'{"schema": "\\"int\\""}')]

    assert RegistryClient(registry.described()).schema(known) == Registered(known, "AVRO", '"int"', ())


@pytest.mark.parametrize("trickle_seconds", [0.02, 30.0])
def test_an_answer_that_takes_too_long_is_not_waited_for(registry: RunningRegistry, trickle_seconds: float) -> None:
    registry.faults = [Fault(200, b" " * 2000, trickle_seconds=trickle_seconds)]
    began = monotonic()

    with pytest.raises(RegistryUnavailable):
        RegistryClient(registry.described(), answer_seconds=0.3).schema(1)

    assert monotonic() - began < 5


def test_user_and_password_are_sent_as_they_are(registry: RunningRegistry) -> None:
    registry.users = {"kdi": "pass:wörd"}

    assert RegistryClient(registry.described(username="kdi", password="pass:wörd")).types()
    with pytest.raises(RegistryAccessRefused, match=r"refuses authentication \(HTTP 401, 401: Unauthorized\)"):
        RegistryClient(registry.described(username="kdi", password="wrong")).types()
    with pytest.raises(RegistryAccessRefused):
        RegistryClient(registry.described()).types()


def test_a_proxy_is_asked_with_its_own_credentials(registry: RunningRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = registry.url.replace("http://", "http://us%3Aer:hu%40sh@")
    beyond = Registry("main", "http://beyond.invalid:8081/api", username="kdi", password="p")

    with pytest.raises(RegistryNotUnderstood):  # the fake knows no /api
        RegistryClient(replace(beyond, proxy=proxy)).types()
    monkeypatch.setenv("HTTP_PROXY", registry.url)
    with pytest.raises(RegistryNotUnderstood):
        RegistryClient(beyond).types()
    monkeypatch.setenv("NO_PROXY", "beyond.invalid")
    with pytest.raises(RegistryUnavailable):
        RegistryClient(beyond).types()

    assert registry.asked == ["http://beyond.invalid:8081/api/schemas/types"] * 2
    assert [h.get("Proxy-Authorization") for h in registry.headers] == ["Basic dXM6ZXI6aHVAc2g=", None]
    assert {h["Authorization"] for h in registry.headers} == {"Basic a2RpOnA="}


@pytest.mark.parametrize(
    ("status", "refusal"), [(407, RegistryAccessRefused), (403, RegistryAccessRefused), (502, RegistryUnavailable)]
)
def test_a_proxy_that_makes_no_tunnel_says_why(registry: RunningRegistry, status: int, refusal: type[KdiError]) -> None:
    registry.tunnel_status = status

    with pytest.raises(refusal, match=str(status)):
        RegistryClient(Registry("main", "https://beyond.invalid:8081", proxy=registry.url)).types()


def test_a_tunnel_shows_only_the_proxys_credentials(registry: RunningRegistry, certificates: Certificates) -> None:
    proxy = registry.url.replace("http://", "http://p:q@")
    with fake_registry(certificates.server_context()) as beyond:
        beyond.users = {"kdi": "hush"}
        described = beyond.described(username="kdi", password="hush", tls__ca=str(certificates.ca), proxy=proxy)

        assert RegistryClient(described).types()

    assert registry.asked == [f"CONNECT {beyond.url.removeprefix('https://')}"]
    assert registry.headers[0]["Proxy-Authorization"] == "Basic cDpx"
    assert "Authorization" not in registry.headers[0]
    assert "Proxy-Authorization" not in beyond.headers[0]


def test_a_certificate_is_trusted_of_a_named_authority_and_host_alone(certificates: Certificates) -> None:
    with fake_registry(certificates.server_context()) as registry:
        named = registry.described(tls__ca=str(certificates.ca))
        assert RegistryClient(named).types()
        with pytest.raises(RegistryAccessRefused, match="self-signed|unable to get local issuer"):
            RegistryClient(registry.described()).types()
        with pytest.raises(RegistryAccessRefused, match="127.0.0.1"):
            RegistryClient(replace(named, url=named.url.replace("localhost", "127.0.0.1"))).types()


@pytest.mark.parametrize("written", [str, Path.read_text], ids=["files", "texts"])
def test_a_registry_that_asks_for_our_certificate_gets_it(
    certificates: Certificates, written: Callable[[Path], str]
) -> None:
    with fake_registry(certificates.server_context(client_wanted=True)) as registry:
        ours = {"tls__certificate": written(certificates.client), "tls__key": written(certificates.client_key)}
        ca = written(certificates.ca)

        assert RegistryClient(registry.described(tls__ca=ca, **ours, tls__key_password=KEY_PASSWORD)).types()
        with pytest.raises(RegistryAccessRefused):
            RegistryClient(registry.described(tls__ca=ca)).types()


@pytest.mark.parametrize("password", ["", "wrong"])
def test_a_key_that_cannot_be_opened_is_a_setting_to_correct(certificates: Certificates, password: str) -> None:
    """Without a password OpenSSL would ask the terminal, and a run has none."""
    tls = Tls(certificate=str(certificates.client), key=str(certificates.client_key), key_password=password)

    with pytest.raises(RegistrySettingRefused, match=r"tls\.certificate cannot be used"):
        RegistryClient(Registry("main", "https://localhost:1", tls=tls)).types()
    with pytest.raises(RegistrySettingRefused, match=r"tls\.ca cannot be used: .*ca\.pem: .*No such file"):
        RegistryClient(Registry("main", "https://localhost:1", tls=Tls(ca="/nowhere/ca.pem"))).types()
