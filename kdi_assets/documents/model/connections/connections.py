"""Kafka clusters and schema registries as documents describe them. Secrets come from elsewhere, when they are used."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator
from pydantic_core import core_schema

from kdi_assets.documents.model.connections.aws_secrets import FromSecretsManager
from kdi_assets.documents.model.connections.client_values import (
    BELONGS_ELSEWHERE,
    REFERENCE,
    ClientValue,
    EnvironmentProperties,
    FromEnvironment,
    SecretValue,
    client_value,
)
from kdi_assets.documents.model.connections.kinesis import KinesisRegion
from kdi_assets.documents.model.connections.sasl import Sasl
from kdi_assets.documents.model.field_types import (
    ClusterName,
    Declared,
    RegistryName,
    WrittenAs,
    full_match,
    matching,
    wrong,
)
from kdi_assets.documents.model.source_struct import KAFKA, SourceStruct
from kdi_assets.documents.model.variables import VARIABLE
from kdi_assets.wording import BROKER

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

HOST = r"(\[[0-9A-Fa-f:]+\]|[^\s/:?#@\[\]]+)"
DECIDED_BY_FIELDS = re.compile(
    r"security\.protocol|(https|ssl)\.ca\.\w+|ssl\.(certificate|key|keystore|truststore)\..+"
    r"|sasl\.(mechanisms?|username|password|jaas\.config|login\.callback\.handler\.class)"
    r"|sasl\.oauthbearer\.(method|config|client\..+|token\.endpoint\.url|scope|extensions)"
    r"|enable\.sasl\.oauthbearer\.unsecure\.jwt"
)
"""Client properties that ``tls`` and ``sasl`` of a cluster decide together."""
SECRET_PROPERTIES = re.compile(r"(.+\.)?(password|passphrase|secret)|sasl\.jaas\.config")
"""Client properties that hold a secret, whatever their value."""
OWNED_CLIENT_PROPERTIES = {
    "bootstrap.servers": "write it as bootstrap_servers",
    "isolation.level": "remove it: only committed messages are read",
    "enable.auto.commit": "remove it: positions live in the table",
    "auto.offset.reset": "remove it: `start` of the stream decides where it begins",
}


def _client_property(name: str) -> str:
    if name in OWNED_CLIENT_PROPERTIES:
        raise wrong("is not a property to set here", OWNED_CLIENT_PROPERTIES[name])
    return name


ClientProperties = dict[Annotated[str, AfterValidator(_client_property)], ClientValue]


def _of_cluster(
    properties: Mapping[str, str | FromEnvironment | FromSecretsManager], info: ValidationInfo
) -> Mapping[str, str]:
    for name, value in properties.items():
        if isinstance(value, str) and (SECRET_PROPERTIES.fullmatch(name) or "PRIVATE KEY-----" in value):
            raise wrong(BELONGS_ELSEWHERE, REFERENCE, field=f"properties.{name}")
    return EnvironmentProperties(f"cluster {info.data.get('name')}", properties)


def _brokers(value: str) -> str:
    for broker in value.split(","):
        _broker(broker.strip())
    return value


_broker = full_match(BROKER, "is not host:port", "e.g. broker-1:9092,broker-2:9092")


@dataclass(frozen=True, slots=True)
class Tls(Declared):
    """Certificates of a TLS connection, each the path of a PEM file or its text ({env: NAME}, {aws_secret: NAME})."""

    ca: Annotated[ClientValue, Field(examples=["/etc/kdi/ca.pem"])] = ""
    """Certificates of the trusted authorities; by default those of the system."""
    certificate: Annotated[ClientValue, Field(examples=["/etc/kdi/client.pem"])] = ""
    """The client's certificate, followed by its chain."""
    key: Annotated[ClientValue, Field(examples=["/etc/kdi/client.key"])] = ""
    """The key of the client's certificate; by default it is in the certificate's file. For Kafka: PKCS #8."""
    key_password: Annotated[SecretValue, Field(examples=[{"env": "REGISTRY_KEY_PASSWORD"}])] = ""
    """Password of the key."""

    @model_validator(mode="after")
    def _key_has_a_certificate(self) -> Tls:
        if (self.key or self.key_password) and not self.certificate:
            raise wrong("there is a key and no certificate", "give tls.certificate as well")
        for name in ("certificate", "key"):
            if "PRIVATE KEY-----" in str(getattr(self, name)):
                right = "the path of a file, {env: NAME}, or {aws_secret: NAME, key: KEY}"
                raise wrong("holds a private key, which belongs in no document", right, field=f"tls.{name}")
        return self

    @property
    def values(self) -> dict[str, str | FromEnvironment | FromSecretsManager]:
        """The given fields, by name."""
        return {name: value for name in self.__dataclass_fields__ if (value := getattr(self, name))}


class OnOrOff:
    """A field that documents write as true, false, or a mapping; pydantic would report a mistake for each form."""

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        tls = handler.generate_schema(Tls)
        written = core_schema.union_schema([core_schema.bool_schema(), tls])
        return core_schema.no_info_wrap_validator_function(_on_or_off, tls, json_schema_input_schema=written)


def _on_or_off(value: object, read: Callable[[object], Any]) -> Any:
    return value if isinstance(value, bool) else read(value)


@dataclass(frozen=True, slots=True)
class Cluster(Declared):
    """A Kafka cluster: its brokers, and how to connect to them. Spark gets the Java form of all of it."""

    system: ClassVar[str] = "kafka"
    struct: ClassVar[SourceStruct] = KAFKA
    knows_offsets: ClassVar[bool] = True
    """Whether a message has an offset before it is drained."""

    name: Annotated[ClusterName, Field(examples=["main"])]
    """The name that streams use for the cluster. For `main`, KDI_KAFKA overrides bootstrap_servers."""
    bootstrap_servers: Annotated[
        str, AfterValidator(_brokers), Field(examples=["broker-1:9092,broker-2:9092"]), VARIABLE
    ]
    """host:port of one or more brokers, separated by commas."""
    properties: Annotated[
        Mapping[str, str],
        WrittenAs(ClientProperties, _of_cluster),
        Field(examples=[{"socket.keepalive.enable": "true"}]),
    ] = field(default_factory=dict)
    """Other client properties, as librdkafka names them. A secret is {env: NAME}: the environment variable NAME holds
    it; or {aws_secret: NAME, key: KEY}: AWS Secrets Manager does."""
    tls: Annotated[Tls | bool | None, OnOrOff(), Field(examples=[{"ca": "/etc/kdi/ca.pem"}])] = None
    """Certificates; true for the authorities of the system, false for plain text. By default true with `sasl`, else
    false."""
    sasl: Annotated[Sasl | None, Field(examples=[{"mechanism": "AWS_MSK_IAM", "region": "eu-central-1"}])] = None
    """How to log in; by default not at all."""

    @model_validator(mode="after")
    def _properties_leave_the_fields_alone(self) -> Cluster:
        if self.connects_by_fields:
            for name in filter(DECIDED_BY_FIELDS.fullmatch, self.properties):
                right = "remove it, or write all of the connection as properties, without tls and sasl"
                raise wrong("is decided by tls and sasl", right, field=f"properties.{name}")
        return self

    @property
    def address(self) -> str:
        """Where it is, for people."""
        return self.bootstrap_servers

    @property
    def connects_by_fields(self) -> bool:
        """Whether ``tls`` or ``sasl`` say how to connect; else the properties do."""
        return self.tls is not None or self.sasl is not None

    @property
    def uses_tls(self) -> bool:
        """Whether connections use TLS, as ``tls`` and ``sasl`` say it."""
        return self.sasl is not None if self.tls is None else self.tls is not False

    @property
    def credentials(self) -> Mapping[str, str]:
        """The given values of ``tls`` and ``sasl``, by name, such as ``tls.ca``."""
        tls = self.tls.values if isinstance(self.tls, Tls) else {}
        sasl = self.sasl.values if self.sasl else {}
        given = {f"tls.{name}": value for name, value in tls.items()}
        given |= {f"sasl.{name}": value for name, value in sasl.items()}
        return EnvironmentProperties(f"cluster {self.name}", given)


SourceConnection = Cluster | KinesisRegion
"""What leads to the topic of a stream; ``system`` is the kind of its source."""


def _no_credentials(value: str) -> str:
    if "@" in value:
        raise wrong("holds user or password", "write them as username and password")
    return value


def _proxy(value: object) -> object:
    if not isinstance(value, str):
        return client_value(value)
    if "@" in value:  # before the error that shows it
        raise wrong("holds user or password", f"write the whole address as {REFERENCE}")
    return _is_proxy(value)


_is_proxy = full_match(rf"http://{HOST}:\d{{1,5}}/?", "is not the address of a proxy", "e.g. http://proxy:3128")


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
        VARIABLE,
    ]
    """Address of its API: the part before /subjects and /schemas."""
    username: Annotated[ClientValue, Field(examples=["kdi"])] = ""
    """User, or API key."""
    password: Annotated[SecretValue, Field(examples=[{"env": "REGISTRY_PASSWORD"}])] = ""
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
        own = {name: value for name in ("username", "password", "proxy") if (value := getattr(self, name))}
        given = own | {f"tls.{name}": value for name, value in self.tls.values.items()}
        return EnvironmentProperties(f"registry {self.name}", given)
