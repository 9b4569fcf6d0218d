"""Why brokers refuse a client: the error of a refused connection, certificate, password, mechanism, token or right.

librdkafka reports a wrong host name and an unknown authority by the same text, and a wrong ``security.protocol`` by
none. So after a failure the port is asked once more, by Python's own TLS.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
from contextlib import closing
from typing import TypeVar

from kdi_assets.documents.model.stream import Cluster
from kdi_assets.messages.kafka.errors import (
    AccessRefused,
    CertificateNotTrusted,
    ClientCertificateMissing,
    ClientCertificateRefused,
    HostNameDiffers,
    MechanismNotEnabled,
    PasswordRefused,
    RightMissing,
    SecurityProtocolDiffers,
    TokenRefused,
)
from kdi_assets.messages.kafka.security import client_properties

Refusal = TypeVar("Refusal", bound=AccessRefused)

ASK_SECONDS = 1.0
"""How long a port may take to answer; it is asked only after a client failed."""

CLIENT_CERTIFICATE_REFUSED = re.compile(
    r"alert ((bad|unsupported) certificate|certificate (required|unknown|expired|revoked)|unknown ca|number 116)"
)
"""Alerts of brokers about the client's certificate. In TLS 1.3 they come after the handshake, as a lost connection;
Kafka's own brokers say of a missing certificate that it is bad."""

_ADDRESS = re.compile(r"\w+://(\[[^\]]+\]|[^\s:/]+):(\d+)/")
_HOST_DIFFERS = (62, 64)  # OpenSSL: X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)  # version 0, correlation id 1, no client id


def authentication_error(cluster: Cluster, detail: str) -> AccessRefused:
    """The error if brokers refuse the connection or the login.

    Args:
        detail: librdkafka's text.
    """
    if "mechanism handshake failed" in detail:
        return _error(MechanismNotEnabled, cluster, "authentication", detail)
    if mechanism_of(cluster) == "OAUTHBEARER" and "SASL" in detail:
        return _error(TokenRefused, cluster, "authentication", detail)
    if "SASL authentication error" in detail:
        return _error(PasswordRefused, cluster, "authentication", detail)
    if "certificate verify failed" in detail:
        return _certificate_error(cluster, detail)
    without = not any(name.startswith(("ssl.certificate", "ssl.keystore")) for name in client_properties(cluster))
    refused = CLIENT_CERTIFICATE_REFUSED.search(detail)
    # Before TLS 1.3 the alert does not say what was wrong.
    if without and (refused or "alert handshake failure" in detail):
        return _error(ClientCertificateMissing, cluster, "authentication", detail)
    if refused:
        return _error(ClientCertificateRefused, cluster, "authentication", detail)
    return _error(AccessRefused, cluster, "authentication", detail)


def authorization_error(cluster: Cluster, detail: str) -> AccessRefused:
    """The error if the user has not the right that ``detail`` names."""
    return _error(RightMissing, cluster, "authorization", detail)


def protocol_error(cluster: Cluster) -> SecurityProtocolDiffers | None:
    """The error if a bootstrap server speaks TLS and we do not, or the other way round."""
    protocol = client_properties(cluster).get("security.protocol", "PLAINTEXT").upper()
    ours = protocol.endswith("SSL")
    for server in cluster.bootstrap_servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            differs = _speaks_kafka(host, int(port)) if ours else _speaks_tls(host, int(port))
        except OSError:
            continue  # no answer: not a matter of the protocol
        if differs:
            theirs = "plain text" if ours else "TLS"
            detail = f"{server.strip()} speaks {theirs}; security.protocol is {protocol}"
            return _error(SecurityProtocolDiffers, cluster, "the connection", detail)
        return None
    return None


def mechanism_of(cluster: Cluster) -> str:
    """The SASL mechanism of a cluster; empty if it has none."""
    properties = client_properties(cluster)
    return properties.get("sasl.mechanisms") or properties.get("sasl.mechanism") or ""


def _error(error: type[Refusal], cluster: Cluster, refused: str, detail: str) -> Refusal:
    servers = cluster.bootstrap_servers
    return error(cluster=cluster.name, bootstrap_servers=servers, refused=refused, detail=detail)


def _certificate_error(cluster: Cluster, detail: str) -> AccessRefused:
    address = _ADDRESS.search(detail)
    if address is None:
        return _error(CertificateNotTrusted, cluster, "authentication", detail)
    try:
        context = _context(cluster)
        with closing(_connect(address[1], int(address[2]))) as plain:
            context.wrap_socket(plain, server_hostname=address[1].strip("[]")).close()
    except ssl.SSLCertVerificationError as refused:
        error = HostNameDiffers if refused.verify_code in _HOST_DIFFERS else CertificateNotTrusted
        return _error(error, cluster, "authentication", f"{address[1]}:{address[2]}: {refused.verify_message}")
    except (OSError, ValueError):
        pass  # librdkafka's text must do
    return _error(CertificateNotTrusted, cluster, "authentication", detail)


def _context(cluster: Cluster) -> ssl.SSLContext:
    properties = client_properties(cluster)
    return ssl.create_default_context(cafile=properties.get("ssl.ca.location"), cadata=properties.get("ssl.ca.pem"))


def _connect(host: str, port: int) -> socket.socket:
    return socket.create_connection((host.strip("[]"), port), ASK_SECONDS)


def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Only whether the port speaks TLS; nothing is sent over this connection.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with closing(_connect(host, port)) as plain:
        try:
            context.wrap_socket(plain).close()
        except ssl.SSLError as refused:
            # An alert is an answer in TLS, e.g. of a broker that wants a client certificate.
            return "ALERT" in (refused.reason or "")
        return True


def _speaks_kafka(host: str, port: int) -> bool:
    with closing(_connect(host, port)) as plain:
        plain.sendall(_API_VERSIONS)
        answer = plain.recv(8)
        return len(answer) == 8 and answer[4:] == struct.pack(">i", 1)
