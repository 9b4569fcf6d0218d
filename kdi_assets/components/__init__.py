"""The Dagster components, one for each type of document, and the assets and checks they become.

The components are imported on first use, because they import Dagster; the command line reads the same documents
without Dagster.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kdi_assets.components.topic_table import (
        KafkaCluster,
        KinesisConnection,
        KinesisTable,
        RefinedTable,
        SchemaRegistry,
        ServedTable,
        TopicTable,
        TopicTables,
    )

__all__ = [
    "KafkaCluster",
    "KinesisConnection",
    "KinesisTable",
    "RefinedTable",
    "SchemaRegistry",
    "ServedTable",
    "TopicTable",
    "TopicTables",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(import_module(f"{__name__}.topic_table"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # Dagster finds components by dir()
