"""How a client logs in to Kafka's brokers, as the document of a cluster says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from kdi_assets.documents.model.connections.aws_secrets import FromSecretsManager
from kdi_assets.documents.model.connections.client_values import ClientValue, FromEnvironment, SecretValue
from kdi_assets.documents.model.field_types import AWS_REGION, Declared, full_match, matching, wrong

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"]
AWS_MSK_IAM = "AWS_MSK_IAM"
EVENT_HUBS_USER = "$ConnectionString"
"""The user of Azure Event Hubs is this text, and its password is the connection string."""

_USER = ("username", "password")
_CLIENT = ("token_endpoint", "client_id", "client_secret")
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "PLAIN": _USER,
    "SCRAM-SHA-256": _USER,
    "SCRAM-SHA-512": _USER,
    "OAUTHBEARER": _CLIENT,
    AWS_MSK_IAM: ("region",),
}
_OPTIONAL = {"OAUTHBEARER": ("token_endpoint_ca", "scope", "extensions")}


def _extensions(value: dict[str, str]) -> dict[str, str]:
    for name, text in value.items():
        _extension_name(name)
        if "," in text or not text.isprintable():
            raise wrong(f"{name}: {text!r} is not a value of an extension", "text without commas")
    return value


_extension_name = full_match(r"(?!auth$)[A-Za-z]+", "is not a name of an extension", "letters, e.g. logicalCluster")


@dataclass(frozen=True, slots=True)
class Sasl(Declared):
    """User and password, token endpoint, or role of the client."""

    mechanism: Annotated[Mechanism, Field(examples=["SCRAM-SHA-512"])]
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER (a token endpoint of OAuth 2, client credentials) or AWS_MSK_IAM
    (the role or the keys that AWS's clients find)."""
    username: Annotated[ClientValue, Field(examples=["kdi"])] = ""
    """PLAIN and SCRAM: the user, or API key."""
    password: Annotated[SecretValue, Field(examples=[{"env": "KAFKA_PASSWORD"}])] = ""
    """PLAIN and SCRAM: the password, or secret of the API key."""
    connection_string: Annotated[SecretValue, Field(examples=[{"env": "EVENT_HUBS_CONNECTION_STRING"}])] = ""
    """PLAIN, in place of user and password: the connection string of Azure Event Hubs."""
    token_endpoint: Annotated[
        str,
        matching(
            r"https?://[^\s/?#@]+(/[^\s#]*)?",
            "is not the address of a token endpoint",
            "e.g. https://login.example.com/token",
        ),
        Field(examples=["https://login.example.com/oauth2/token"]),
    ] = ""
    """OAUTHBEARER: the address that gives tokens."""
    token_endpoint_ca: Annotated[ClientValue, Field(examples=["/etc/kdi/ca.pem"])] = ""
    """OAUTHBEARER: the authorities that its certificate may have, a file or text in PEM; by default those of the
    system."""
    client_id: Annotated[ClientValue, Field(examples=["kdi"])] = ""
    """OAUTHBEARER: the client that gets the token."""
    client_secret: Annotated[SecretValue, Field(examples=[{"env": "KAFKA_CLIENT_SECRET"}])] = ""
    """OAUTHBEARER: its secret."""
    scope: Annotated[str, Field(examples=["kafka"])] = ""
    """OAUTHBEARER: the scope to ask for; several with blanks between."""
    extensions: Annotated[
        dict[str, str], AfterValidator(_extensions), Field(examples=[{"logicalCluster": "lkc-1234"}])
    ] = field(default_factory=dict)
    """OAUTHBEARER: what the brokers want to know besides the token, by name."""
    region: Annotated[str, AWS_REGION, Field(examples=["eu-central-1"])] = ""
    """AWS_MSK_IAM: the region of the cluster."""

    @model_validator(mode="after")
    def _has_what_its_mechanism_needs(self) -> Sasl:
        given = [name for name in self.__dataclass_fields__ if name != "mechanism" and getattr(self, name)]
        needed = _NEEDED[self.mechanism]
        if self.mechanism == "PLAIN" and self.connection_string:
            needed = ("connection_string",)
        usable = (*needed, *_OPTIONAL.get(self.mechanism, ()))
        for name in given:
            if name not in usable:
                said = f"does not go with {self.mechanism}{' by connection_string' if self.connection_string else ''}"
                raise wrong(said, f"it takes {', '.join(usable)}", field=f"sasl.{name}")
        for name in needed:
            if name not in given:
                raise wrong(f"{self.mechanism} needs {name}", f"give sasl.{name} as well")
        return self

    @property
    def values(self) -> dict[str, str | FromEnvironment | FromSecretsManager]:
        """The given fields that may be references, by name."""
        names = (*_USER, "connection_string", *_CLIENT, "token_endpoint_ca")
        return {name: value for name in names if (value := getattr(self, name))}
