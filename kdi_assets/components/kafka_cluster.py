"""The component of a cluster: Dagster's face of ``KafkaClusterFields``. It makes no definitions; streams name it."""

from __future__ import annotations

from pydantic import BaseModel

from kdi_assets.components.cluster_fields import KafkaClusterFields
from kdi_assets.components.named import Named


class KafkaCluster(Named, KafkaClusterFields):
    """A Kafka cluster: its brokers, and the client properties to speak to them."""

    @classmethod
    def model(cls) -> type[BaseModel]:
        return KafkaClusterFields
