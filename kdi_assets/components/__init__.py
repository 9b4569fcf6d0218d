"""What a YAML document means: its fields, and the assets and checks that they become.

The components are loaded when they are asked for: they bring Dagster with them, and the command line, which reads
the same documents with `load`, does without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kdi_assets.components.kafka_cluster import KafkaCluster
    from kdi_assets.components.schema_registry import SchemaRegistry
    from kdi_assets.components.topic_table import TopicTable

__all__ = ["KafkaCluster", "SchemaRegistry", "TopicTable"]

_MODULES = {"KafkaCluster": "kafka_cluster", "SchemaRegistry": "schema_registry", "TopicTable": "topic_table"}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # Dagster finds components by dir()
