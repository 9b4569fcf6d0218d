"""docs/streams.md names every field of the documents, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import BaseModel

from kdi_assets.components.avro_fields import AvroFields
from kdi_assets.components.cluster_fields import KafkaClusterFields
from kdi_assets.components.fields import TopicTableFields
from kdi_assets.components.format_fields import CsvFields, FormatFields
from kdi_assets.components.judging_fields import ContractFields, DeadLetterLimitFields, ExpectationFields
from kdi_assets.components.protobuf_fields import ProtobufFields
from kdi_assets.components.registry_fields import SchemaRegistryFields, TlsFields
from kdi_assets.components.route_fields import RouteFields
from kdi_assets.components.time_fields import DrainWhenFields

PAGE = Path(__file__).parent.parent.parent / "docs" / "streams.md"


def fields_in(section: str) -> set[str]:
    """The fields that the table of a section names in its first column."""
    text = PAGE.read_text().partition(section)[2]
    table = re.split(r"\n#+ ", text, maxsplit=1)[0]
    rows = re.findall(r"^\| (`[^|]+) \|", table, re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


@pytest.mark.parametrize(
    ("section", "model"),
    [
        ("## `kdi_assets.components.TopicTable`", TopicTableFields),
        ("### `format`", FormatFields),
        ("#### `csv`", CsvFields),
        ("#### `avro`", AvroFields),
        ("#### `protobuf`", ProtobufFields),
        ("### `route`", RouteFields),
        ("### `drain_when`", DrainWhenFields),
        ("### `expectations`", ExpectationFields),
        ("### `contract`", ContractFields),
        ("### `dead_letter_limit`", DeadLetterLimitFields),
        ("## `kdi_assets.components.KafkaCluster`", KafkaClusterFields),
        ("## `kdi_assets.components.SchemaRegistry`", SchemaRegistryFields),
        ("### `tls`", TlsFields),
    ],
)
def test_the_page_has_a_row_for_every_field(section: str, model: type[BaseModel]) -> None:
    assert fields_in(section) == {info.alias or name for name, info in model.model_fields.items()}
