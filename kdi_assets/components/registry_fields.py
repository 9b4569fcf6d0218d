"""The fields of a registry's document."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from kdi_assets.components import checks
from kdi_assets.components.cluster_fields import ClientValue, FromEnvironment, with_secrets
from kdi_assets.components.strict import Fields
from kdi_assets.message_format import SchemaRegistry


class TlsFields(Fields):
    """Whom to trust, and who we are; files are PEM."""

    ca: str = Field(
        default="", description="The authorities to trust; the system's by default.", examples=["/etc/kdi/ca.pem"]
    )
    certificate: str = Field(
        default="", description="Our certificate, with the chain behind it.", examples=["/etc/kdi/client.pem"]
    )
    key: str = Field(
        default="", description="Its key; by default in the certificate's file.", examples=["/etc/kdi/client.key"]
    )
    key_password: ClientValue = Field(
        default="", description="Password of the key.", examples=[{"env": "REGISTRY_KEY_PASSWORD"}]
    )

    @model_validator(mode="after")
    def _key_has_a_certificate(self) -> TlsFields:
        if (self.key or self.key_password) and not self.certificate:
            raise checks.wrong("there is a key and no certificate", "give tls.certificate as well")
        return self


class SchemaRegistryFields(Fields):
    """A schema registry with Confluent's API, and how to speak to it."""

    name: Annotated[str, AfterValidator(checks.registry)] = Field(
        description="What streams call the registry.", examples=["main"]
    )
    url: Annotated[str, AfterValidator(checks.registry_url)] = Field(
        description="Address of its API: what stands before /subjects and /schemas.",
        examples=["https://registry:8081"],
    )
    username: ClientValue = Field(default="", description="User, or API key.", examples=["kdi"])
    password: ClientValue = Field(
        default="", description="Its password, or the secret of the key.", examples=[{"env": "REGISTRY_PASSWORD"}]
    )
    tls: TlsFields = Field(
        default=TlsFields(),
        description="Certificates, for an address with https.",
        examples=[{"ca": "/etc/kdi/ca.pem"}],
    )
    proxy: Annotated[str | FromEnvironment, BeforeValidator(checks.proxy)] = Field(
        default="",
        description="The proxy on the way; by default what HTTP_PROXY, HTTPS_PROXY and NO_PROXY say.",
        examples=["http://proxy:3128"],
    )

    @model_validator(mode="after")
    def _user_and_password_come_together(self) -> SchemaRegistryFields:
        if bool(self.username) != bool(self.password):
            raise checks.wrong("of username and password one is missing", "give both, or neither")
        return self

    def schema_registry(self) -> SchemaRegistry:
        """The registry that these fields describe."""
        given: dict[str, str | FromEnvironment] = {
            "username": self.username,
            "password": self.password,
            "proxy": self.proxy,
            **{f"tls.{name}": value for name, value in self.tls},
        }
        properties = with_secrets(f"registry {self.name}", {name: value for name, value in given.items() if value})
        return SchemaRegistry(self.name, self.url.rstrip("/"), properties)
