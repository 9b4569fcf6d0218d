"""Documents of streams that nobody drains, written into a folder as a person writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdi_assets.documents.loading.errors import Mistakes
from kdi_assets.documents.loading.loader import load_streams
from kdi_assets.documents.model.stream import Stream

CLUSTER = 'type: kdi_assets.components.KafkaCluster\nattributes: {name: main, bootstrap_servers: "localhost:9092"}\n'
REGISTRY = "type: kdi_assets.components.SchemaRegistry\nattributes: {name: main, url: https://registry:8081}\n"
ORDERS = f"""{CLUSTER}---
type: kdi_assets.components.TopicTable
attributes:
  topic: orders
  table: orders
  date: current_date()
"""
"""A stream whose document can get more fields at its end."""
SHORTEST = {"topic": "orders", "table": "bronze/orders", "schema": "id bigint", "date": "current_date()"}
OF_REGISTRY = "format: {avro: {registry: main}}"
TOPIC_TABLES = "type: kdi_assets.components.TopicTables"
SERVED = """type: kdi_assets.components.ServedTable
attributes: {table: made/elsewhere, keys: [id], into: {duckdb: {file: x.duckdb, table: elsewhere_now}}}
"""


def stream(table: str, *, record: str = "schema: id bigint", more: str = "") -> str:
    """The document of a stream; ``more`` are further attributes, each after a comma."""
    fields = f"topic: t, table: {table}, {record}, date: current_date(){more}"
    return f"type: kdi_assets.components.TopicTable\nattributes: {{{fields}}}\n"


def refined(table: str, *, upstream: str = "bronze/web", more: str = "") -> str:
    """The document of a refined table; ``more`` are further attributes, each after a comma."""
    return f"type: kdi_assets.components.RefinedTable\nattributes: {{table: {table}, from: {upstream}{more}}}\n"


def written(folder: Path, **files: str) -> Path:
    """The folder, with a document in each subfolder; ``a__b`` is a subfolder of a subfolder."""
    for name, text in files.items():
        path = folder.joinpath(*name.split("__")) / "defs.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def with_attribute(line: str) -> str:
    """The shortest document, plus a line."""
    attributes = "\n".join(f"  {name}: {value}" for name, value in SHORTEST.items())
    return f"type: kdi_assets.components.TopicTable\nattributes:\n{attributes}\n  {line}\n"


def only_stream(folder: Path, document: str) -> Stream:
    """The document's stream, beside a cluster's document."""
    (folder / "defs.yaml").write_text(f"\n{CLUSTER}---\n{document}", encoding="utf-8")
    (meant,) = load_streams(folder).values()
    return meant


def only_mistake(folder: Path, line: str) -> str:
    """The only mistake of that line in the shortest document: field, message, and what would be right."""
    with pytest.raises(Mistakes) as refused:
        only_stream(folder, with_attribute(line))
    (mistake,) = refused.value.mistakes
    assert mistake.line == 11, mistake.text()
    return f"{mistake.field}: {mistake.message}; {mistake.right}"


def mistakes_of(folder: Path) -> list[str]:
    """What the loader refuses in a folder, each with its relative path."""
    with pytest.raises(Mistakes) as refused:
        load_streams(folder)
    return [mistake.text().removeprefix(f"{folder}/") for mistake in refused.value.mistakes]
