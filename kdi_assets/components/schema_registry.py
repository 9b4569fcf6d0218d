"""The component of a registry: Dagster's face of ``SchemaRegistryFields``. It makes no definitions; streams name it."""

from __future__ import annotations

from pydantic import BaseModel

from kdi_assets.components.named import Named
from kdi_assets.components.registry_fields import SchemaRegistryFields


class SchemaRegistry(Named, SchemaRegistryFields):
    """A schema registry with Confluent's API: its address, credentials, certificates and proxy."""

    @classmethod
    def model(cls) -> type[BaseModel]:
        return SchemaRegistryFields
