"""Kafka clusters and schema registries as documents describe them. Secrets come from elsewhere, when they are used."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from kdi_assets.errors import Terminal
from kdi_assets.stream.aws_secrets import FromSecretsManager
from kdi_assets.stream.field_types import ClusterName, Declared, RegistryName, WrittenAs, full_match, matching, wrong

HOST = r"(\[[0-9A-Fa-f:]+\]|[^\s/:?#@\[\]]+)"
OWNED_CLIENT_PROPERTIES = {
    "bootstrap.servers": "write it as bootstrap_servers",
    "isolation.level": "remove it: only committed messages are read",
    "enable.auto.commit": "remove it: positions live in the table",
    "auto.offset.reset": "remove it: `start` of the stream decides where it begins",
}


class EnvironmentVariableMissing(Terminal):
    """A client property comes from an environment variable that is not set."""

    of: str
    property: str
    variable: str

    what_happened = "{of}: {property} comes from the environment variable {variable}, which is not set."
    what_is_safe = "no request was sent; no topic and no table was touched."
    what_to_run = "the same command with {variable} set"


@dataclass(frozen=True, slots=True)
class FromEnvironment(Declared):
    """A value from an environment variable: for secrets, which belong in no file."""

    env: Annotated[str, Field(examples=["KAFKA_PASSWORD"])]
    """Name of the environment variable."""


def _client_value(value: object) -> object:
    """Text, ``{env: NAME}`` or ``{aws_secret: NAME}``; pydantic would report a mistake for each of the forms."""
    if value is None or isinstance(value, bool | int | float | list):
        raise wrong(f"takes text, not {value!r}", "put it in quotes, or write {env: NAME} for a secret")
    if not isinstance(value, dict):
        return value
    written = all(text and isinstance(text, str) for text in value.values())
    if not written or value.keys() not in ({"env"}, {"aws_secret"}, {"aws_secret", "key"}):
        right = "e.g. {env: KAFKA_PASSWORD}, or {aws_secret: prod/kafka, key: password}"
        raise wrong(f"{value!r} names no environment variable", right)
    return value


def _client_property(name: str) -> str:
    if name in OWNED_CLIENT_PROPERTIES:
        raise wrong("is not a property to set here", OWNED_CLIENT_PROPERTIES[name])
    return name


ClientValue = Annotated[str | FromEnvironment | FromSecretsManager, BeforeValidator(_client_value)]
ClientProperties = dict[Annotated[str, AfterValidator(_client_property)], ClientValue]


@dataclass(frozen=True)
class EnvironmentProperties(Mapping[str, str]):
    """Client properties; those from the environment and from Secrets Manager are read when they are used.

    So ``kdi check`` needs no secrets, and no log that shows the cluster or the registry can show a secret.

    Attributes:
        of: The owner, for the error: ``cluster main``, ``registry main``.
    """

    of: str
    written: Mapping[str, str | FromEnvironment | FromSecretsManager]

    def __getitem__(self, name: str) -> str:
        """The value of a property.

        Raises:
            EnvironmentVariableMissing: It comes from a variable that is not set.
            SecretUnreadable, SecretUnanswered: Secrets Manager does not give it.
        """
        value = self.written[name]
        if isinstance(value, str):
            return value
        if isinstance(value, FromSecretsManager):
            return value.read()
        if value.env not in os.environ:
            raise EnvironmentVariableMissing(of=self.of, property=name, variable=value.env)
        return os.environ[value.env]

    def __iter__(self) -> Iterator[str]:
        return iter(self.written)

    def __len__(self) -> int:
        return len(self.written)


def _of_cluster(
    properties: Mapping[str, str | FromEnvironment | FromSecretsManager], info: ValidationInfo
) -> Mapping[str, str]:
    return EnvironmentProperties(f"cluster {info.data.get('name')}", properties)


def _brokers(value: str) -> str:
    for broker in value.split(","):
        _broker(broker.strip())
    return value


_broker = full_match(r"(\[[0-9A-Fa-f:]+\]|[^\s,:/]+):\d{1,5}", "is not host:port", "e.g. broker-1:9092,broker-2:9092")


@dataclass(frozen=True, slots=True)
class Cluster(Declared):
    """A Kafka cluster: its brokers and client properties. Spark gets the Java form of ``properties``."""

    name: Annotated[ClusterName, Field(examples=["main"])]
    """The name that streams use for the cluster. For `main`, KDI_KAFKA overrides bootstrap_servers."""
    bootstrap_servers: Annotated[str, AfterValidator(_brokers), Field(examples=["broker-1:9092,broker-2:9092"])]
    """host:port of one or more brokers, separated by commas."""
    properties: Annotated[
        Mapping[str, str],
        WrittenAs(ClientProperties, _of_cluster),
        Field(examples=[{"security.protocol": "SASL_SSL", "sasl.password": {"env": "KAFKA_PASSWORD"}}]),
    ] = field(default_factory=dict)
    """Client properties as librdkafka names them. A secret is {env: NAME}: the environment variable NAME holds it; or
    {aws_secret: NAME, key: KEY}: AWS Secrets Manager does."""


@dataclass(frozen=True, slots=True)
class Tls(Declared):
    """Certificates of a TLS connection; files are PEM."""

    ca: Annotated[str, Field(examples=["/etc/kdi/ca.pem"])] = ""
    """Certificates of the trusted authorities; by default those of the system."""
    certificate: Annotated[str, Field(examples=["/etc/kdi/client.pem"])] = ""
    """The client's certificate, followed by its chain."""
    key: Annotated[str, Field(examples=["/etc/kdi/client.key"])] = ""
    """The key of the client's certificate; by default it is in the certificate's file."""
    key_password: Annotated[ClientValue, Field(examples=[{"env": "REGISTRY_KEY_PASSWORD"}])] = ""
    """Password of the key."""

    @model_validator(mode="after")
    def _key_has_a_certificate(self) -> Tls:
        if (self.key or self.key_password) and not self.certificate:
            raise wrong("there is a key and no certificate", "give tls.certificate as well")
        return self


def _no_credentials(value: str) -> str:
    if "@" in value:
        raise wrong("holds user or password", "write them as username and password")
    return value


def _proxy(value: object) -> object:
    return _is_proxy(value) if isinstance(value, str) else _client_value(value)


_is_proxy = full_match(
    rf"http://([^\s/@]+@)?{HOST}:\d{{1,5}}/?", "is not the address of a proxy", "e.g. http://proxy:3128"
)


@dataclass(frozen=True, slots=True)
class Registry(Declared):
    """A schema registry with Confluent's API."""

    name: Annotated[RegistryName, Field(examples=["main"])]
    """The name that streams use for the registry."""
    url: Annotated[
        str,
        AfterValidator(_no_credentials),
        matching(
            f"https?://{HOST}(:\\d{{1,5}})?(/[^\\s?#]*)?",
            "is not the address of a registry",
            "e.g. https://registry:8081, or https://host/path",
        ),
        AfterValidator(lambda url: url.rstrip("/")),
        Field(examples=["https://registry:8081"]),
    ]
    """Address of its API: the part before /subjects and /schemas."""
    username: Annotated[ClientValue, Field(examples=["kdi"])] = ""
    """User, or API key."""
    password: Annotated[ClientValue, Field(examples=[{"env": "REGISTRY_PASSWORD"}])] = ""
    """Password of the user, or secret of the API key."""
    tls: Annotated[Tls, Field(examples=[{"ca": "/etc/kdi/ca.pem"}])] = Tls()
    """Certificates, for an address with https."""
    proxy: Annotated[
        str | FromEnvironment | FromSecretsManager, BeforeValidator(_proxy), Field(examples=["http://proxy:3128"])
    ] = ""
    """Address of a proxy; by default HTTP_PROXY, HTTPS_PROXY and NO_PROXY decide."""

    @model_validator(mode="after")
    def _user_and_password_come_together(self) -> Registry:
        if bool(self.username) != bool(self.password):
            raise wrong("of username and password one is missing", "give both, or neither")
        return self

    @property
    def properties(self) -> Mapping[str, str]:
        """User, proxy and certificates that are given, by name, such as ``tls.ca``."""
        given = {"username": self.username, "password": self.password, "proxy": self.proxy} | {
            f"tls.{name}": getattr(self.tls, name) for name in ("ca", "certificate", "key", "key_password")
        }
        return EnvironmentProperties(f"registry {self.name}", {name: value for name, value in given.items() if value})
