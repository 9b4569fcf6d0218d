"""The struct of what a source says of a message: one module names its fields."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kdi_assets
from kdi_assets.documents.model.source_struct import KAFKA, KINESIS, SOURCE_STRUCTS, SourceStruct

PACKAGE = Path(kdi_assets.__file__).parent
ENGINE = ("streams", "messages/formats", "follow/listeners", "operate/monitoring", "operate/upkeep", "operate/erase")
"""They work for streams of every source."""
NAMED = re.compile(
    rf"[\"'({{=\s]({'|'.join(s.name for s in SOURCE_STRUCTS)})\.({'|'.join(KAFKA.known)}|index|count|\{{)"
)


def test_the_engine_asks_the_stream_for_the_struct_of_its_messages() -> None:
    modules = [path for folder in ENGINE for path in sorted((PACKAGE / folder).rglob("*.py"))]
    found = {str(path.relative_to(PACKAGE)): NAMED.findall(path.read_text(encoding="utf-8")) for path in modules}

    assert len(modules) > 100
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("struct", "name", "instead"),
    [
        (KINESIS, "kafka.offset", "kinesis.offset"),
        (KINESIS, "Kafka.Topic", "kinesis.stream"),
        (KINESIS, "kafka.tombstone", "one of kinesis.stream, kinesis.shard_id, kinesis.sequence_number, "),
        (KINESIS, "kafka", "one of kinesis.stream, "),
        (KAFKA, "kinesis.partition_key", "kafka.key"),
        (KAFKA, "kinesis.shard_id", "one of kafka.topic, "),
        (KAFKA, "kafka.shard_id", ""),
        (KINESIS, "kinesis.key", ""),
        (KINESIS, "kafkas.key", ""),
    ],
)
def test_a_name_of_another_source_has_one_to_write_instead(struct: SourceStruct, name: str, instead: str) -> None:
    found = struct.instead_of(name)

    assert found.startswith(instead)
    assert bool(found) == bool(instead)
