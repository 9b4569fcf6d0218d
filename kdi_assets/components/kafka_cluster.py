"""The component of a cluster: Dagster's face of ``KafkaClusterFields``. It makes no definitions; streams name it."""

from __future__ import annotations

from typing import Self

import dagster as dg
from pydantic import BaseModel

from kdi_assets.components.fields import KafkaClusterFields


class KafkaCluster(dg.Component, dg.Resolvable, KafkaClusterFields):
    """A Kafka cluster: its brokers, and the client properties to speak to them."""

    @classmethod
    def model(cls) -> type[BaseModel]:
        return KafkaClusterFields

    @classmethod
    def resolve_from_model(cls, context: dg.ResolutionContext, model: BaseModel) -> Self:
        return cls.model_construct(**dict(model))  # as written, without templates

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        return dg.Definitions()
