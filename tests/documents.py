"""Documents of streams that nobody drains, written into a folder as a person writes them."""

from __future__ import annotations

from pathlib import Path

CLUSTER = 'type: kdi_assets.components.KafkaCluster\nattributes: {name: main, bootstrap_servers: "localhost:9092"}\n'
REGISTRY = "type: kdi_assets.components.SchemaRegistry\nattributes: {name: main, url: https://registry:8081}\n"
ORDERS = f"""{CLUSTER}---
type: kdi_assets.components.TopicTable
attributes:
  topic: orders
  table: orders
  date: current_date()
"""
"""A stream whose document more fields can be written behind."""
OF_REGISTRY = "format: {avro: {registry: main}}"


def stream(table: str, *, record: str = "schema: id bigint", more: str = "") -> str:
    """The document of a stream; ``more`` are further attributes, each behind a comma."""
    fields = f"topic: t, table: {table}, {record}, date: current_date(){more}"
    return f"type: kdi_assets.components.TopicTable\nattributes: {{{fields}}}\n"


def written(folder: Path, **files: str) -> Path:
    """The folder, with a document in each subfolder; ``a__b`` is one in another."""
    for name, text in files.items():
        path = folder.joinpath(*name.split("__")) / "defs.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
