"""`dg scaffold defs`: what it writes is a document that the loader takes."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from kdi_assets import components
from kdi_assets.components.new_document import DocumentScaffolder
from kdi_assets.documents.loading.loader import read_streams


def scaffold(folder: Path, component: str, name: str) -> None:
    """As `dg scaffold defs kdi_assets.components.COMPONENT NAME` does it."""
    target = folder / name
    target.mkdir()
    request = dg.ScaffoldRequest(
        type_name=f"kdi_assets.components.{component}",
        target_path=target,
        scaffold_format="yaml",
        project_root=folder,
        params=DocumentScaffolder.get_scaffold_params()(),
    )
    DocumentScaffolder().scaffold(request)


def test_a_new_stream_and_its_cluster_are_documents_without_a_mistake(tmp_path: Path) -> None:
    scaffold(tmp_path, "KafkaCluster", "kafka")
    scaffold(tmp_path, "TopicTable", "orders")

    loaded = read_streams(tmp_path)

    assert loaded.mistakes == []
    assert {(s.topic, s.table, s.cluster.name) for s in loaded.streams.values()} == {
        ("orders", "bronze/orders", "main")
    }


@pytest.mark.parametrize(
    ("component", "others"),
    [
        ("SchemaRegistry", {}),
        ("TopicTables", {"KafkaCluster": "kafka"}),
        ("KinesisTable", {"KinesisConnection": "kinesis"}),
        ("RefinedTable", {"KafkaCluster": "kafka", "TopicTable": "web_requests"}),
        ("ServedTable", {}),
    ],
)
def test_new_documents_of_every_other_type_are_taken(component: str, others: dict[str, str], tmp_path: Path) -> None:
    for other, name in others.items():
        scaffold(tmp_path, other, name)
    scaffold(tmp_path, component, "daily")

    assert read_streams(tmp_path).mistakes == []


@pytest.mark.parametrize("component", components.__all__)
def test_dagster_is_told_of_the_scaffolder_of_every_type(component: str) -> None:
    assert getattr(components, component).__scaffolder_cls__ is DocumentScaffolder
