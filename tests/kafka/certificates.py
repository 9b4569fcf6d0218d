"""Certificates that nobody else trusts: an authority, a server called localhost, a client below another authority,
whose key has a password, and a stranger, whom the authority does not know.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

KEY_PASSWORD = "hush-key-password"


@dataclass(frozen=True)
class Certificates:
    """PEM files; the client's key is locked with ``KEY_PASSWORD``."""

    ca: Path
    server: Path
    client: Path
    client_key: Path
    stranger: Path

    def server_context(self, *, client_wanted: bool = False) -> ssl.SSLContext:
        """For the server's sockets."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.server)
        if client_wanted:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.ca)
            # Later versions refuse a client after the handshake, and whether the client learns of it is a race.
            context.maximum_version = ssl.TLSVersion.TLSv1_2
        return context


def make_certificates(folder: Path) -> Certificates:
    """Make all of them in ``folder``, valid for a day."""
    authority = generate_private_key(SECP256R1())
    names = ("ca.pem", "server.pem", "client.pem", "client.key", "stranger.pem")
    made = Certificates(*(folder / name for name in names))
    made.ca.write_bytes(_pem(_certificate("authority", authority, signer=authority, authority=True)))
    server, client = generate_private_key(SECP256R1()), generate_private_key(SECP256R1())
    made.server.write_bytes(_key(server) + _pem(_certificate("localhost", server, signer=authority)))
    between = generate_private_key(SECP256R1())
    chain = _certificate("between", between, signer=authority, authority=True)
    own = _certificate("client", client, signer=between, issuer="between")
    made.client.write_bytes(_pem(own) + _pem(chain))
    stranger = generate_private_key(SECP256R1())
    made.stranger.write_bytes(_key(stranger) + _pem(_certificate("authority", stranger, signer=stranger)))
    made.client_key.write_bytes(_key(client, BestAvailableEncryption(KEY_PASSWORD.encode())))
    return made


def _certificate(
    name: str,
    key: EllipticCurvePrivateKey,
    *,
    signer: EllipticCurvePrivateKey,
    issuer: str = "authority",
    authority: bool = False,
) -> x509.Certificate:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(signer, SHA256())
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


def _key(key: EllipticCurvePrivateKey, lock: KeySerializationEncryption | None = None) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock or NoEncryption())
