"""A broker with a listener for each way to connect, and a token endpoint that it trusts."""

from __future__ import annotations

import json
import os
import subprocess
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256

from kdi_assets.documents.model.stream import Cluster
from kdi_assets.runtime.jars import jar_paths
from kdi_assets.runtime.java import find_java
from kdi_assets.settings import Settings
from kdi_assets.tools.local.broker import JVM_OPTIONS, QUICK_START, Broker, free_port, start_broker
from kdi_assets.tools.local.errors import BrokerDied
from tests.faults.topics import admin
from tests.kafka.certificates import KEY_PASSWORD, Certificates, make_certificates
from tests.receivers.http_server import QuietHandler

PASSWORD = "hush-password"
CONNECTION_STRING = "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=k;SharedAccessKey=hush-string="
CLIENT_SECRET = "hush-client-secret"
SECRETS = {
    "KDI_T_PASSWORD": PASSWORD,
    "KDI_T_CONNECTION_STRING": CONNECTION_STRING,
    "KDI_T_CLIENT_SECRET": CLIENT_SECRET,
    "KDI_T_KEY_PASSWORD": KEY_PASSWORD,
    "AWS_ACCESS_KEY_ID": "AKIDKDITESTS",
    "AWS_SECRET_ACCESS_KEY": "hush/aws+key",
    "AWS_SESSION_TOKEN": "hush/session+==",
}
REGION = "eu-central-1"
DOORS = ("tls", "mtls", "login", "msk")
_SECURITY = "org.apache.kafka.common.security"


class TokenHandler(QuietHandler):
    """Gives a token to the client ``kdi``, as the server's fields say."""

    def do_POST(self) -> None:
        """Answer as RFC 6749, "Client Credentials Grant", wants it."""
        endpoint = self.server
        assert isinstance(endpoint, TokenEndpoint)
        self.rfile.read(int(self.headers["Content-Length"]))
        user = b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
        known = endpoint.gives and user == f"kdi:{CLIENT_SECRET}"
        answer = endpoint.token() if known else {"error": "invalid_client"}
        body = json.dumps(answer).encode()
        self.send_response(200 if known else 401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class TokenEndpoint(ThreadingHTTPServer):
    """A token endpoint on the loopback, with TLS."""

    daemon_threads = True

    def __init__(self, certificates: Certificates) -> None:
        super().__init__(("127.0.0.1", 0), TokenHandler)
        self.key: RSAPrivateKey = generate_private_key(public_exponent=65537, key_size=2048)
        self.audience = "kafka"
        self.gives = True
        self.socket = certificates.server_context().wrap_socket(self.socket, server_side=True)

    @property
    def url(self) -> str:
        """The address that gives tokens."""
        return f"https://localhost:{self.server_port}/token"

    def token(self) -> dict[str, object]:
        """A signed token for the brokers."""
        now = int(time.time())
        claims = {"sub": "kdi", "aud": self.audience, "iss": "tests", "iat": now, "exp": now + 300}
        signed = f"{_part({'alg': 'RS256', 'kid': 'one', 'typ': 'JWT'})}.{_part(claims)}"
        signature = self.key.sign(signed.encode(), PKCS1v15(), SHA256())
        return {"access_token": f"{signed}.{_base64(signature)}", "token_type": "Bearer", "expires_in": 300}

    def key_set(self) -> dict[str, object]:
        """The public key, as the broker reads it."""
        numbers = self.key.public_key().public_numbers()
        modulus = _base64(numbers.n.to_bytes(256, "big"))
        return {"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "one", "n": modulus, "e": "AQAB"}]}


@dataclass(frozen=True)
class Doors:
    """The running broker.

    Attributes:
        broker: Its own address is the listener in plain text.
        addresses: Of the listeners, by name.
    """

    broker: Broker
    addresses: Mapping[str, str]
    certificates: Certificates
    endpoint: TokenEndpoint

    @property
    def environment(self) -> dict[str, str]:
        """What documents refer to, and what they may not show."""
        return SECRETS | {
            "KDI_T_CERTIFICATE": self.certificates.client.read_text(),
            "KDI_T_KEY": self.certificates.client_key.read_text(),
        }

    def written(self, text: str) -> str:
        """A document's text with CA, CERTIFICATE, KEY, STRANGER, ENDPOINT and the doors in angle brackets replaced."""
        certificates = self.certificates
        files = {"CA": certificates.ca, "CERTIFICATE": certificates.client, "KEY": certificates.client_key}
        files["STRANGER"] = certificates.stranger
        words = {"ENDPOINT": self.endpoint.url, "plaintext": self.broker.bootstrap_servers, **self.addresses, **files}
        return reduce(lambda made, word: made.replace(f"<{word}>", str(words[word])), words, text)


@contextmanager
def broker_with_doors(data: Path, settings: Settings) -> Iterator[Doors]:
    """Start it, with the user ``kdi`` for PLAIN and SCRAM, and its token endpoint."""
    certificates = make_certificates(data)
    endpoint = TokenEndpoint(certificates)
    thread = Thread(target=endpoint.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    keys = data / "keys.json"
    keys.write_text(json.dumps(endpoint.key_set()))
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}"
    options = (*JVM_OPTIONS, *QUICK_START, allowed)
    classes = _compiled(data / "classes", settings)

    def started(folder: Path, ports: Mapping[str, int]) -> Broker:
        properties = _listeners(ports) | _tls(certificates) | _logins(keys)
        plain, home = ports["plaintext"], settings.home
        return start_broker(
            folder, port=plain, home=home, jvm_options=options, properties=properties, class_path=classes
        )

    broker, ports = _on_free_ports(started, data)
    try:
        _set_scram_passwords(Cluster("main", broker.bootstrap_servers))
        yield Doors(broker, {name: f"localhost:{ports[name]}" for name in DOORS}, certificates, endpoint)
    finally:
        broker.stop()
        endpoint.shutdown()
        endpoint.server_close()
        thread.join()


def _on_free_ports(start: Callable[[Path, Mapping[str, int]], Broker], data: Path) -> tuple[Broker, dict[str, int]]:
    """The broker and its ports; started again if another process took one of them meanwhile."""
    for attempt in range(3):
        ports: dict[str, int] = {}
        while len(set(ports.values())) < len(DOORS) + 2:
            ports = {name: free_port() for name in ("plaintext", "controller", *DOORS)}
        try:
            return start(data / f"broker{attempt or ''}", ports), ports
        except BrokerDied as died:
            if attempt == 2 or "Address already in use" not in str(died):
                raise
    raise AssertionError("the last attempt returns or raises")


def _listeners(ports: Mapping[str, int]) -> dict[str, str]:
    protocols = {"plaintext": "PLAINTEXT", "controller": "PLAINTEXT", "tls": "SSL", "mtls": "SSL"}
    at = {name: f"{name.upper()}://127.0.0.1:{port}" for name, port in ports.items()}
    # By a name, which their certificate has.
    outside = {name: f"{name.upper()}://localhost:{ports[name]}" for name in DOORS}
    return {
        "listeners": ",".join(at.values()),
        "advertised.listeners": ",".join([at["plaintext"], *outside.values()]),
        "controller.quorum.voters": f"1@127.0.0.1:{ports['controller']}",
        "listener.security.protocol.map": ",".join(f"{n.upper()}:{protocols.get(n, 'SASL_SSL')}" for n in ports),
    }


def _tls(certificates: Certificates) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "listener.name.mtls.ssl.client.auth": "required",
    }


def _logins(keys: Path) -> dict[str, str]:
    login, users = "listener.name.login", f'user_kdi="{PASSWORD}" "user_$ConnectionString"="{CONNECTION_STRING}"'
    # The broker logs in at its own listeners too; nobody asks for this token.
    aws = f'unsecuredLoginStringClaim_sub="broker" region="{REGION}" accessKeyId="{SECRETS["AWS_ACCESS_KEY_ID"]}"'
    aws += f' secretAccessKey="{SECRETS["AWS_SECRET_ACCESS_KEY"]}"'
    scram, token = f"{_SECURITY}.scram.ScramLoginModule", f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule"
    return {
        f"{login}.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        f"{login}.plain.sasl.jaas.config": f"{_SECURITY}.plain.PlainLoginModule required {users};",
        f"{login}.scram-sha-256.sasl.jaas.config": f"{scram} required;",
        f"{login}.scram-sha-512.sasl.jaas.config": f"{scram} required;",
        f"{login}.oauthbearer.sasl.jaas.config": f"{token} required;",
        f"{login}.oauthbearer.sasl.server.callback.handler.class": f"{_SECURITY}.oauthbearer"
        ".OAuthBearerValidatorCallbackHandler",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "listener.name.msk.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.msk.oauthbearer.sasl.jaas.config": f"{token} required {aws};",
        "listener.name.msk.oauthbearer.sasl.server.callback.handler.class": "MskVerifier",
    }


def _compiled(classes: Path, settings: Settings) -> list[Path]:
    """The class that verifies MSK's tokens, and the kernel, which it uses."""
    (compiler,) = jar_paths(settings.home / "jars", "build")
    (kernel,) = (jar for jar in jar_paths(settings.home / "jars", "spark") if jar.name.startswith("kdi-kernel"))
    class_path = os.pathsep.join(map(str, [kernel, *jar_paths(settings.home / "jars", "broker")]))
    source = Path(__file__).parents[1] / "jvm" / "MskVerifier.java"
    java = find_java(settings.home) / "bin" / "java"
    options = ["-source", "17", "-target", "17", "-nowarn", "-cp", class_path, "-d", str(classes)]
    subprocess.run([java, "-jar", compiler, *options, source], check=True)
    return [classes, kernel]


def _set_scram_passwords(inside: Cluster) -> None:
    mechanisms = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    for mechanism in mechanisms:
        how = ScramCredentialInfo(mechanism, 4096)
        change = UserScramCredentialUpsertion("kdi", how, PASSWORD.encode())
        for changed in admin(inside).alter_user_scram_credentials([change]).values():
            changed.result(10)


def _part(content: object) -> str:
    return _base64(json.dumps(content).encode())


def _base64(content: bytes) -> str:
    return urlsafe_b64encode(content).decode().rstrip("=")
