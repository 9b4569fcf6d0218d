"""The fields that say which schemas of a registry messages are written with."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from kdi_assets.components.checks import registry, wrong
from kdi_assets.components.strict import Fields
from kdi_assets.message_format import RegistrySchemas, SchemaRegistry


def registry_or_none(value: str) -> str:
    """A registry's name, or nothing."""
    return registry(value) if value else value


class RegistryFields(Fields):
    """Which schemas of which registry."""

    registry: Annotated[str, AfterValidator(registry_or_none)] = Field(
        default="",
        description="Messages behind the frame of a schema registry's serializer: name of the SchemaRegistry document.",
        examples=["main"],
    )
    subject: str = Field(
        default="",
        description="Subject of the schemas in the registry; by default the topic with -value.",
        examples=["orders-value"],
    )
    version: Annotated[int, Field(gt=0)] | None = Field(
        default=None,
        description="The version of the subject that every message becomes; by default the latest.",
        examples=[3],
    )

    @model_validator(mode="after")
    def _of_a_registry(self) -> RegistryFields:
        if (self.subject or self.version) and not self.registry:
            raise wrong("names subject or version and no registry", "e.g. registry: main")
        return self

    def schemas_of(self, registry: SchemaRegistry, topic: str) -> RegistrySchemas:
        """The schemas that these fields describe."""
        return RegistrySchemas(registry, self.subject or f"{topic}-value", self.version)
