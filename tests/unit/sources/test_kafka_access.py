"""Mistakes in a connection to Kafka: each is its own error, and what brokers and tokens say of it is in the text.

The client is librdkafka itself. The port speaks TLS, and so much of Kafka's protocol as comes before the first request.
"""

from __future__ import annotations

import ssl
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from http.server import BaseHTTPRequestHandler
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError

from kdi_assets.documents.model.stream import Cluster, OffsetRange, TopicPartition
from kdi_assets.messages.kafka import client, messages
from kdi_assets.messages.kafka.errors import (
    AccessRefused,
    BrokerUnreachable,
    CertificateNotTrusted,
    ClientCertificateMissing,
    HostNameDiffers,
    MechanismNotEnabled,
    PasswordRefused,
    RightMissing,
    SecurityProtocolDiffers,
    TokenRefused,
)
from kdi_assets.messages.kafka.topic import read_topics
from tests.kafka.certificates import Certificates
from tests.receivers.http_server import QuietHandler, serving

API_VERSIONS, HANDSHAKE, AUTHENTICATE = 18, 17, 36
KNOWN = [(API_VERSIONS, 0, 0), (HANDSHAKE, 0, 1), (AUTHENTICATE, 0, 1), (3, 0, 5)]
UNSUPPORTED_VERSION, UNSUPPORTED_MECHANISM, AUTHENTICATION_FAILED = 35, 33, 58
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "kdi", "sasl.password": "hush"}


class Port(ThreadingTCPServer):
    """Offers PLAIN and OAUTHBEARER, and refuses every login."""

    daemon_threads = True
    tls: ssl.SSLContext | None = None


class Conversation(StreamRequestHandler):
    """One client."""

    def handle(self) -> None:
        """Answer until the client or TLS gives up."""
        assert isinstance(self.server, Port)
        with suppress(OSError, EOFError, struct.error):
            stream = self.server.tls.wrap_socket(self.request, server_side=True) if self.server.tls else self.request
            with stream, stream.makefile("rwb") as wire:
                while True:
                    request = wire.read(struct.unpack(">i", wire.read(4))[0])
                    api, version, correlation = struct.unpack(">hhi", request[:8])
                    body = self.answer(api, version, request)
                    wire.write(struct.pack(">ii", len(body) + 4, correlation) + body)
                    wire.flush()

    def answer(self, api: int, version: int, request: bytes) -> bytes:
        """The body of the answer."""
        if api == API_VERSIONS:
            known = b"".join(struct.pack(">hhh", *api) for api in KNOWN)
            return struct.pack(">hi", UNSUPPORTED_VERSION if version else 0, len(KNOWN)) + known
        if api == HANDSHAKE:
            offered = request.endswith((b"PLAIN", b"OAUTHBEARER"))
            return struct.pack(">hi", 0 if offered else UNSUPPORTED_MECHANISM, 2) + text("PLAIN") + text("OAUTHBEARER")
        if api == AUTHENTICATE:
            return struct.pack(">h", AUTHENTICATION_FAILED) + text("Authentication failed: no entry") + bytes(4 + 8)
        raise EOFError


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


@contextmanager
def listening(tls: ssl.SSLContext | None = None) -> Iterator[int]:
    with Port(("127.0.0.1", 0), Conversation) as port:
        port.tls = tls
        Thread(target=port.serve_forever, args=(0.01,), daemon=True).start()
        yield port.server_address[1]
        port.shutdown()


def refusal(port: int, properties: Mapping[str, str], *, host: str = "localhost") -> AccessRefused:
    """The error of a request; the client asks only IPv4, where the port is."""
    cluster = Cluster("main", f"{host}:{port}", {"broker.address.family": "v4", **properties})
    with pytest.raises(AccessRefused) as refused:
        read_topics(cluster, ["t"])
    return refused.value


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that get no answer are given up at once."""
    monkeypatch.setattr(client, "REQUEST_SECONDS", 0.5)
    monkeypatch.setattr(client, "LATE_SECONDS", 0.5)


def test_a_certificate_of_an_authority_that_we_do_not_know(certificates: Certificates) -> None:
    with listening(certificates.server_context()) as port:
        error = refusal(port, {"security.protocol": "SSL"})

    assert type(error) is CertificateNotTrusted
    assert "unable to get local issuer certificate" in str(error) or "self-signed" in str(error)
    assert "ssl.ca.location" in str(error)


def test_a_certificate_for_another_host(certificates: Certificates) -> None:
    with listening(certificates.server_context()) as port:
        error = refusal(port, {"security.protocol": "SSL", "ssl.ca.location": str(certificates.ca)}, host="127.0.0.1")

    assert type(error) is HostNameDiffers
    assert "127.0.0.1" in str(error)


def test_the_authority_may_be_a_text_and_is_trusted_by_both_looks(certificates: Certificates) -> None:
    with listening(certificates.server_context()) as port:
        error = refusal(port, {"security.protocol": "SSL", "ssl.ca.pem": certificates.ca.read_text()}, host="127.0.0.1")

    assert type(error) is HostNameDiffers


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_certificate_that_is_not_there(certificates: Certificates, version: ssl.TLSVersion) -> None:
    tls = certificates.server_context(client_wanted=True)
    tls.maximum_version = version
    with listening(tls) as port:
        error = refusal(port, {"security.protocol": "SSL", "ssl.ca.location": str(certificates.ca)})

    assert type(error) is ClientCertificateMissing
    assert "ssl.certificate" in str(error)


def test_a_wrong_password_is_not_repeated_in_the_error() -> None:
    with listening() as port:
        error = refusal(port, {**LOGIN, "sasl.mechanisms": "PLAIN"})

    assert type(error) is PasswordRefused
    assert "refuses authentication" in str(error)
    assert "hush" not in str(error)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_mechanism_that_the_brokers_do_not_offer(mechanism: str) -> None:
    with listening() as port:
        error = refusal(port, {**LOGIN, "sasl.mechanisms": mechanism})

    assert type(error) is MechanismNotEnabled
    assert "broker's supported mechanisms: PLAIN,OAUTHBEARER" in str(error)


class NoToken(QuietHandler):
    """A token endpoint that knows no client."""

    def do_POST(self) -> None:
        """Refuse."""
        self.send_response(401)
        self.end_headers()
        self.wfile.write(b'{"error": "invalid_client"}')


@pytest.mark.usefixtures("hasty")
def test_a_token_that_nobody_gives() -> None:
    assert issubclass(NoToken, BaseHTTPRequestHandler)
    with listening() as port, serving(NoToken) as url:
        token = {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": f"{url}/token"}
        client_ = {"sasl.oauthbearer.client.id": "kdi", "sasl.oauthbearer.client.secret": "hush"}
        login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "OAUTHBEARER"}
        error = refusal(port, {**login, **token, **client_})

    assert type(error) is TokenRefused
    assert "hush" not in str(error)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("ours", ["PLAINTEXT", "SSL"])
def test_plain_text_and_tls_do_not_meet(certificates: Certificates, ours: str) -> None:
    tls = certificates.server_context() if ours == "PLAINTEXT" else None
    with listening(tls) as port:
        error = refusal(port, {"security.protocol": ours})

    theirs = "TLS" if tls else "plain text"
    assert type(error) is SecurityProtocolDiffers
    assert f"localhost:{port} speaks {theirs}; security.protocol is {ours}" in str(error)


@pytest.mark.usefixtures("hasty")
def test_a_port_that_takes_no_connection_is_a_matter_of_the_network() -> None:
    with listening() as port:
        pass
    with pytest.raises(BrokerUnreachable):
        read_topics(Cluster("main", f"127.0.0.1:{port}"), ["t"])


def test_a_missing_right_to_read_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Purpose: someone must grant the right; an unreachable broker would be another incident, and ten seconds later."""
    tp, refused = TopicPartition("t", 0), KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    answer = Mock(**{"error.return_value": refused, "topic.return_value": "t", "partition.return_value": 0})
    monkeypatch.setattr(messages, "open_consumer", lambda *_, **__: nullcontext((Mock(), Mock())))
    monkeypatch.setattr(messages, "next_messages", lambda *_, **__: [answer])

    with pytest.raises(RightMissing, match="Read on topic t"):
        list(messages.visible_messages(Cluster("main", "localhost:1"), {tp: [OffsetRange(tp, 0, 5)]}))
