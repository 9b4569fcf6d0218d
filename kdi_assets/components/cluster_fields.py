"""The fields of a Kafka cluster's document, and values that lie in the environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from kdi_assets.components import checks
from kdi_assets.components.environment import EnvironmentProperties
from kdi_assets.components.strict import Fields
from kdi_assets.stream import KafkaCluster


class FromEnvironment(Fields):
    """A value that lies in an environment variable: a secret, which belongs in no file."""

    env: str = Field(min_length=1, description="Name of the environment variable.", examples=["KAFKA_PASSWORD"])


ClientValue = Annotated[str | FromEnvironment, BeforeValidator(checks.client_value)]


class KafkaClusterFields(Fields):
    """Brokers, and how to speak to them."""

    name: Annotated[str, AfterValidator(checks.cluster)] = Field(
        description="What streams call the cluster. For `main`, KDI_KAFKA goes ahead of bootstrap_servers.",
        examples=["main"],
    )
    bootstrap_servers: Annotated[str, AfterValidator(checks.bootstrap_servers)] = Field(
        description="host:port of one broker or more, separated by commas.", examples=["broker-1:9092,broker-2:9092"]
    )
    properties: dict[Annotated[str, AfterValidator(checks.client_property)], ClientValue] = Field(
        default={},
        description="Client properties as librdkafka names them. A secret is {env: NAME}: the environment variable NAME"
        " holds it.",
        examples=[{"security.protocol": "SASL_SSL", "sasl.password": {"env": "KAFKA_PASSWORD"}}],
    )

    def kafka_cluster(self, *, bootstrap_servers: str = "") -> KafkaCluster:
        """The cluster that these fields describe; ``bootstrap_servers``, if given, go ahead of the document's."""
        properties = with_secrets(f"cluster {self.name}", self.properties)
        return KafkaCluster(self.name, bootstrap_servers or self.bootstrap_servers, properties)


def with_secrets(of: str, properties: Mapping[str, str | FromEnvironment]) -> Mapping[str, str]:
    """Properties, of which some are read from the environment when they are used."""
    written = {name: value for name, value in properties.items() if isinstance(value, str)}
    variables = {name: value.env for name, value in properties.items() if isinstance(value, FromEnvironment)}
    return EnvironmentProperties(of, written, variables) if variables else written
